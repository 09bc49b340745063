"""The published JSON Schema of an overlay, generated from its records.

``python schemas/overlay_schema.py --write`` writes it, ``--check`` fails when the published file is not what they say.
"""

from __future__ import annotations

import sys
from typing import Final

from definitions import headed, publish, text

from gradir.overlays import FORMAT, VERSION, Overlay

__all__ = ["PUBLISHED", "schema_text"]

PUBLISHED: Final = f"schemas/{FORMAT}-{VERSION}.schema.json"
"""Where it is published, from the project's root."""

# Numbers on a logarithmic scale are above zero.
_LOG: Final = {
    "if": {"properties": {"scale": {"const": "log"}}, "required": ["scale"]},
    "then": {"properties": {"values": {"additionalProperties": {"exclusiveMinimum": 0}}}},
}


def schema_text() -> str:
    """The JSON Schema (draft 2020-12) of what ``gradir explain --overlay`` writes."""
    schema = headed(Overlay, PUBLISHED, f"What is drawn over a GIR graph, version {VERSION}")
    schema["$defs"]["Channel"] |= _LOG
    return text(schema)


if __name__ == "__main__":
    sys.exit(publish(PUBLISHED, schema_text(), sys.argv))
