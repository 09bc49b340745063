"""The published JSON Schema of a diff, generated from its records.

``python schemas/diff_schema.py --write`` writes it, ``--check`` fails when the published file is not what they say.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final

import msgspec
from definitions import components, publish

from gradir.diffs.changes import Diff
from gradir.diffs.diff_json import FORMAT, VERSION

__all__ = ["PUBLISHED", "diff_schema", "schema_text"]

PUBLISHED: Final = f"schemas/{FORMAT}-{VERSION}.schema.json"
"""Where it is published, from the project's root."""


def diff_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what ``gradir diff --format json`` prints."""
    _, definitions = components(Diff)
    document = definitions.pop("Diff")
    head = {"format": {"const": FORMAT}, "version": {"type": "string", "pattern": r"^1\.(0|[1-9][0-9]*)$"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": PUBLISHED.rpartition("/")[2],
        **document,
        "title": f"The difference between two GIR graphs, version {VERSION}",
        "properties": {**head, **document["properties"]},
        "required": [*head, *document["required"]],
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """The schema as it is published."""
    text = msgspec.json.format(msgspec.json.encode(diff_schema()), indent=2).decode() + "\n"
    # msgspec writes Hunk[Node] as Hunk_Node_.
    return re.sub(r"(Hunk_[A-Za-z]+)_", r"\1", text)


if __name__ == "__main__":
    sys.exit(publish(PUBLISHED, schema_text(), sys.argv))
