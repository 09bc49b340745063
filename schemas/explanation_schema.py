"""The published JSON Schema of an explanation, generated from its records.

``python schemas/explanation_schema.py --write`` writes it, ``--check`` fails when the published file is not what they
say.
"""

from __future__ import annotations

import sys
from typing import Final

from definitions import components, publish, text

from gradir.explanations.forms import Document

__all__ = ["PUBLISHED", "schema_text"]

PUBLISHED: Final = "schemas/gir-explanation-1.0.schema.json"
"""Where it is published, from the project's root."""


def schema_text() -> str:
    """The JSON Schema (draft 2020-12) of what ``gradir explain --format json`` prints."""
    _, definitions = components(Document)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": PUBLISHED.rpartition("/")[2],
        **definitions.pop("Document"),
        "title": "Why a gradient does not arrive, version 1.0",
        "$defs": dict(sorted(definitions.items())),
    }
    return text(schema)


if __name__ == "__main__":
    sys.exit(publish(PUBLISHED, schema_text(), sys.argv))
