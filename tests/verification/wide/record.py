"""docs/verification-wide.json: the same text for the same results, wherever and however long they were made."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from wide.results import Result, versions

__all__ = ["document", "record", "totals"]

_FAILURES: Final = {
    "backward": "its own backward fails, without gradir too",
    "configuration": "no configuration that the rules make gives a model",
    "crash": "the process ended",
    "download": "it asks for files of a hub",
    "export": "torch.export cannot export it",
    "gradient": "no output has a gradient",
    "inputs": "its forward takes none of the inputs that the rules make",
    "memory": "it needs more than 9 GiB",
    "package": "a package is missing, or an operator that no build for the CPU has",
    "program": "torch.export gives another program in another process",
    "size": "it has more than 40 million parameters as small as the rules make it",
    "time": "it takes more than five minutes",
}
_FIELDS: Final = ("family", "name", "class_name", "nodes", "edges", "reached", "parameters", "mismatches", "failure")


def document(results: Sequence[Result], missing: int = 0) -> str:
    """Return the whole file for results in their order, of which ``missing`` were not looked at."""
    head = {"packages": versions(), "missing": missing, "failures": _FAILURES}
    rows = ",\n".join(json.dumps(record(result)) for result in results)
    return f'{json.dumps(head, indent=1)[:-2]},\n "results": [\n{rows}\n]}}\n'


def record(result: Result) -> dict[str, Any]:
    """Return the fields of a result that do not depend on the machine, without the empty ones."""
    fields = {field: getattr(result, field) for field in _FIELDS if getattr(result, field)}
    return fields | ({"class_name": result.class_name.lstrip("_")} if result.class_name else {})


def totals(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the rows of the table in docs/verification.md."""
    families: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in records:
        families[one["family"]].append(one)
    for family, members in [*families.items(), ("**all**", records)]:
        built = [one for one in members if "failure" not in one]
        nodes, edges = (sum(one.get(count, 0) for one in built) for count in ("nodes", "edges"))
        wrong = sum("mismatches" in one for one in built)
        yield f"| {family} | {len(members):,} | {len(built):,} | {nodes:,} | {edges:,} | {wrong:,} |"
