"""The published JSON Schemas of the format, generated from the model.

``python schemas/gir_schemas.py --write`` writes those of the newest version, and those of reports. ``--check`` fails
when they are out of date, when one of an older version was edited, or when the newest version is not allowed to change
what it changes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from definitions import components, make_document
from definitions import text as schema_text
from report_schemas import schemas
from schema_change import breaking_changes

from gradir.codecs.document import FORMAT, NEWEST, RELEASED, Document, layout
from gradir.ir import Node, Scope
from gradir.ir.fields import fields_of, records_in
from gradir.ir.head import Head
from gradir.ir.model import ROLES, Record

__all__ = ["PUBLISHED", "json_schema", "schema_text", "trouble"]

_FOLDER: Final = "schemas"
# The digests of the schemas that are never to change, in the form that sha256sum reads.
_SUMS: Final = "SHA256SUMS"

# Where the schema of the document is published, from the project's root. It is that of both encodings.
PUBLISHED: Final = f"{_FOLDER}/gir-{NEWEST}.schema.json"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document of the newest version."""
    schemas, definitions = components(Document)
    document = definitions.pop("Document", schemas[0])
    definitions["Node"]["properties"]["role"]["examples"] = list(ROLES)
    head = {
        "format": {"const": FORMAT},
        "version": {"type": "string", "pattern": f"^{NEWEST.major}\\.(0|[1-9][0-9]*)$"},
    }
    document |= {
        "properties": {key: head.get(key, document["properties"][key]) for key in layout()},
        "required": [key for key in layout() if key in document["required"]],
        "title": f"GIR {NEWEST}, the gradir graph format",
    }
    return make_document(PUBLISHED.removeprefix(f"{_FOLDER}/"), document, definitions)


def trouble(root: Path) -> Iterator[str]:
    """What is wrong with the schemas that are published below ``root``, a line each."""
    for line in (root / _FOLDER / _SUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        if hashlib.sha256((root / _FOLDER / name).read_bytes()).hexdigest() != digest:
            yield f"{_FOLDER}/{name} is published and must not change; a change needs a new version"
    text = schema_text(json_schema())
    if not (root / PUBLISHED).exists() or (root / PUBLISHED).read_text(encoding="utf-8") != text:
        yield f"{PUBLISHED} is not what the model says: run 'make schema' and review the change"
    yield from _breaking(root, json.loads(text))
    yield from _find_undated(root)


def _find_undated(root: Path) -> Iterator[str]:
    """The fields that the published schema of the newest version lacks, and that are said to be no newer."""
    if not (root / PUBLISHED).exists():
        return
    newest = json.loads((root / PUBLISHED).read_text(encoding="utf-8"))
    records: list[type[Record]] = [Node, Scope, Head]
    for record in records:
        schema = newest if record is Head else newest["$defs"].get(record.__name__, {})
        for field in fields_of(record):
            if field.key not in schema.get("properties", ()) and field.about.since <= NEWEST:
                yield f"{record.__name__}: {field.key} is new after {NEWEST}: declare since which version it is there"
            inner = records_in(field)
            # The schema of a row has no keys.
            if inner is not None and inner not in records and not inner.__struct_config__.array_like:
                records.append(inner)


def _breaking(root: Path, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the schema breaks of that of the version before, if it is one of the same major version."""
    for version in reversed(RELEASED[:-1]):
        older = root / PUBLISHED.replace(str(NEWEST), str(version))
        if version.major == NEWEST.major and older.exists():
            for change in breaking_changes(json.loads(older.read_text(encoding="utf-8")), schema):
                yield f"{PUBLISHED}: {change} since {version}, which needs version {NEWEST.major + 1}.0"
            return


def main(arguments: list[str]) -> int:
    """Write or check the published schemas below the current directory."""
    reports = {Path(_FOLDER, name): written for name, written in schemas().items()}
    if arguments == ["--write"]:
        for path, written in {Path(PUBLISHED): schema_text(json_schema()), **reports}.items():
            path.write_text(written, encoding="utf-8")
        return 0
    if arguments != ["--check"]:
        sys.stderr.write("usage: python schemas/gir_schemas.py --write|--check\n")
        return 2
    found = list(trouble(Path()))
    for path, written in reports.items():
        if not path.exists() or path.read_text(encoding="utf-8") != written:
            found.append(f"{path} is not what the records say: run 'make schema' and review the change")
    sys.stderr.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
