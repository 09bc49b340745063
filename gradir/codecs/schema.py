"""The published JSON Schema of the format, generated from the model.

``python -m gradir.codecs.schema --write`` writes it, ``--check`` fails when the published file is out of date.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from gradir.codecs.document import FORMAT, Document
from gradir.codecs.versions import NEWEST
from gradir.ir.model import ROLES

__all__ = ["PUBLISHED", "json_schema", "schema_text"]

PUBLISHED: Final = f"schemas/gir-{NEWEST}.schema.json"
"""Where the schema of this version is published, from the project's root."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document of the newest version."""
    (schema,), definitions = msgspec.json.schema_components([Document], ref_template="#/$defs/{name}")
    document = definitions.pop("Document", schema)
    document["properties"]["format"] = {"const": FORMAT}
    document["properties"]["version"] = {"type": "string", "pattern": f"^{NEWEST.major}\\.(0|[1-9][0-9]*)$"}
    definitions["Node"]["properties"]["role"]["examples"] = list(ROLES)
    for definition in (document, *definitions.values()):
        definition["description"] = inspect.cleandoc(definition.get("description", ""))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"gir-{NEWEST}.schema.json",
        **document,
        "title": f"GIR {NEWEST}, the gradir graph format",
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """The schema as it is published."""
    return msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the published schema below the current directory."""
    path = Path(PUBLISHED)
    if arguments == ["--write"]:
        path.write_text(schema_text(), encoding="utf-8")
        return 0
    if arguments != ["--check"]:
        sys.stderr.write("usage: python -m gradir.codecs.schema --write|--check\n")
        return 2
    if path.exists() and path.read_text(encoding="utf-8") == schema_text():
        return 0
    sys.stderr.write(f"{PUBLISHED} is not what the model says: run 'make schema' and review the change\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
