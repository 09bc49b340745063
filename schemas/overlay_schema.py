"""The published JSON Schema of an overlay, generated from its records.

``python schemas/overlay_schema.py --write`` writes it, ``--check`` fails when the published file is not what they say.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec
from definitions import components, publish

from gradir.overlays import FORMAT, VERSION, Overlay

__all__ = ["PUBLISHED", "schema_text"]

PUBLISHED: Final = f"schemas/{FORMAT}-{VERSION}.schema.json"
"""Where it is published, from the project's root."""


def schema_text() -> str:
    """The JSON Schema (draft 2020-12) of what ``gradir explain --overlay`` writes."""
    _, definitions = components(Overlay)
    document = definitions.pop("Overlay")
    head = {"format": {"const": FORMAT}, "version": {"type": "string", "pattern": r"^1\.(0|[1-9][0-9]*)$"}}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": PUBLISHED.rpartition("/")[2],
        **document,
        "title": f"What is drawn over a GIR graph, version {VERSION}",
        "properties": {**head, **document["properties"]},
        "required": [*head, *document["required"]],
        "$defs": dict(sorted(definitions.items())),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.exit(publish(PUBLISHED, schema_text(), sys.argv))
