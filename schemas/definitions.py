"""What msgspec derives from records, as it is published: in plain words, and open to what a later version adds."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gradir.ir.json_documents import READABLE

__all__ = ["components", "headed", "publish", "text"]


def components(*records: type) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The schemas of records, and the definitions that they refer to."""
    schemas, definitions = msgspec.json.schema_components(records, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        prose, _, _ = inspect.cleandoc(definition.get("description", "")).partition("\n\n>>>")
        definition["description"] = prose
        # The records are closed so that a reader notices what it ignores; it ignores it all the same.
        for closing in ("additionalProperties", "maxItems"):
            definition.pop(closing, None)
    return list(schemas), definitions


def headed(record: type, published: str, title: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a record in a document with a head, published under its name."""
    _, definitions = components(record)
    document = definitions.pop(record.__name__)
    name = published.rpartition("/")[2]
    version = {"type": "string", "pattern": f"^{READABLE.pattern}$"}
    head = {"format": {"const": name.rpartition("-")[0]}, "version": version}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        **document,
        "title": title,
        "properties": {**head, **document["properties"]},
        "required": [*head, *document["required"]],
        "$defs": dict(sorted(definitions.items())),
    }


def text(schema: Mapping[str, Any]) -> str:
    """Return a schema as it is published."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def publish(published: str, written: str, arguments: list[str]) -> int:
    """Write or check a published schema below the current directory, as a program with these arguments."""
    path = Path(published)
    if arguments[1:] == ["--write"]:
        path.write_text(written, encoding="utf-8")
        return 0
    if arguments[1:] != ["--check"]:
        sys.stderr.write(f"usage: python {arguments[0]} --write|--check\n")
        return 2
    if path.exists() and path.read_text(encoding="utf-8") == written:
        return 0
    sys.stderr.write(f"{published} is not what the records say: run 'make schema' and review the change\n")
    return 1
