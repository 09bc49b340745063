"""What msgspec derives from records, as it is published: in plain words, and open to what a later version adds."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["components", "make_document", "text"]


def components(*records: type) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return the schemas of records, and the definitions that they refer to."""
    schemas, definitions = msgspec.json.schema_components(records, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        prose, _, _ = inspect.cleandoc(definition.get("description", "")).partition("\n\n>>>")
        definition["description"] = prose
        # The records are closed so that a reader notices what it ignores; it ignores it all the same.
        for closing in ("additionalProperties", "maxItems"):
            definition.pop(closing, None)
    return list(schemas), definitions


def make_document(name: str, document: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a document, to publish in a file of this name."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        **document,
        # In an order that stays when a record is moved in its module.
        "$defs": dict(sorted(definitions.items())),
    }


def text(schema: Mapping[str, Any]) -> str:
    """Return a schema as it is published."""
    written = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
    # msgspec writes Hunk[Node] as Hunk_Node_.
    return re.sub(r"(Hunk_[A-Za-z]+)_", r"\1", written)
