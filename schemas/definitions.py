"""What msgspec derives from records, as it is published: in plain words, and open to what a later version adds."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

__all__ = ["components"]


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
