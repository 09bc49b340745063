"""The published JSON Schemas of reports and overlays, generated from their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

from definitions import components, make_document, text

from gradir import overlays
from gradir.diffs import diff_json
from gradir.diffs.changes import Diff
from gradir.distributed import model as ranks
from gradir.explanations.formats import Document
from gradir.ir.json_documents import READABLE
from gradir.watches.watch_formats import Line

__all__ = ["schemas"]

# Numbers on a logarithmic scale are above zero, which a type cannot say of one field for the value of another.
_LOG: Final = {
    "if": {"properties": {"scale": {"const": "log"}}, "required": ["scale"]},
    "then": {"properties": {"values": {"additionalProperties": {"exclusiveMinimum": 0}}}},
}


def schemas() -> dict[str, str]:
    """Return the text of each schema by the name of its file."""
    return {schema["$id"]: text(schema) for schema in _schemas()}


def _schemas() -> Iterator[dict[str, Any]]:
    yield _add_head(Diff, diff_json.FORMAT, diff_json.VERSION, "The difference between two GIR graphs")
    yield _add_head(Document, "gir-explanation", "1.0", "Why a gradient does not arrive")
    title = "What the ranks of a training do alike, and where they part"
    yield _add_head(ranks.Ranks, ranks.FORMAT, ranks.VERSION, title)
    overlay = _add_head(overlays.Overlay, overlays.FORMAT, overlays.VERSION, "What is drawn over a GIR graph")
    overlay["$defs"]["Channel"] |= _LOG
    yield overlay
    lines, definitions = components(*get_args(Line))
    # A file is known by its first line, which has all of this.
    definitions["Head"]["required"] = [*definitions["Head"]["properties"]]
    about = "The head, then modules, steps and findings in their order, and the end."
    watch = {"title": "A line of a watched training, version 1.0", "description": about, "oneOf": lines}
    yield make_document("gir-watch-1.0.schema.json", watch, definitions)


def _add_head(record: type, format: str, version: str, title: str) -> dict[str, Any]:
    """Return the schema of a record, with the head of a document if the record declares none."""
    _, definitions = components(record)
    document = definitions.pop(record.__name__)
    document["title"] = f"{title}, version {version}"
    if "format" not in document["properties"]:
        head = {"format": {"const": format}, "version": {"type": "string", "pattern": f"^{READABLE.pattern}$"}}
        document["properties"] = {**head, **document["properties"]}
        document["required"] = [*head, *document["required"]]
    return make_document(f"{format}-{version}.schema.json", document, definitions)
