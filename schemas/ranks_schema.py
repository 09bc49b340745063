"""The published JSON Schema of what is found of ranks, generated from its records.

``python schemas/ranks_schema.py --write`` writes it, ``--check`` fails when the published file is not what they say.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from definitions import headed, publish, text

from gradir.distributed.model import FORMAT, VERSION, Ranks

__all__ = ["PUBLISHED", "ranks_schema", "schema_text"]

PUBLISHED: Final = f"schemas/{FORMAT}-{VERSION}.schema.json"
"""Where it is published, from the project's root."""


def ranks_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what ``gradir ranks --format json`` prints."""
    return headed(Ranks, PUBLISHED, f"What the ranks of a training do alike, and where they part, version {VERSION}")


def schema_text() -> str:
    """The schema as it is published."""
    return text(ranks_schema())


if __name__ == "__main__":
    sys.exit(publish(PUBLISHED, schema_text(), sys.argv))
