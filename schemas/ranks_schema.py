"""The published JSON Schema of what is found of ranks, generated from its records.

``python schemas/ranks_schema.py --write`` writes it, ``--check`` fails when the published file is not what they say.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec
from definitions import components, publish

from gradir.distributed.model import FORMAT, VERSION, Ranks

__all__ = ["PUBLISHED", "ranks_schema", "schema_text"]

PUBLISHED: Final = f"schemas/{FORMAT}-{VERSION}.schema.json"
"""Where it is published, from the project's root."""


def ranks_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what ``gradir ranks --format json`` prints."""
    _, definitions = components(Ranks)
    document = definitions.pop("Ranks")
    head = {"format": {"const": FORMAT}, "version": {"type": "string", "pattern": r"^1\.(0|[1-9][0-9]*)$"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": PUBLISHED.rpartition("/")[2],
        **document,
        "title": f"What the ranks of a training do alike, and where they part, version {VERSION}",
        "properties": {**head, **document["properties"]},
        "required": [*head, *document["required"]],
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """The schema as it is published."""
    return msgspec.json.format(msgspec.json.encode(ranks_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.exit(publish(PUBLISHED, schema_text(), sys.argv))
