"""The published JSON Schema of a line of a watch, generated from its records.

``python schemas/watch_schema.py --write`` writes it, ``--check`` fails when the published file is not what they say.
"""

from __future__ import annotations

import sys
from typing import Final, get_args

from definitions import components, publish, text

from gradir.watches.forms import Line

__all__ = ["PUBLISHED", "schema_text"]

PUBLISHED: Final = "schemas/gir-watch-1.0.schema.json"
"""Where it is published, from the project's root."""


def schema_text() -> str:
    """The JSON Schema (draft 2020-12) of a line that ``gradir watch -o watch.jsonl`` writes."""
    lines, definitions = components(*get_args(Line))
    # A file is known by its first line, which has all of this.
    definitions["Head"]["required"] = [*definitions["Head"]["properties"]]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": PUBLISHED.rpartition("/")[2],
        "title": "A line of a watched training, version 1.0",
        "description": "The head, then modules, steps and findings in their order, and the end.",
        "oneOf": lines,
        "$defs": dict(sorted(definitions.items())),
    }
    return text(schema)


if __name__ == "__main__":
    sys.exit(publish(PUBLISHED, schema_text(), sys.argv))
