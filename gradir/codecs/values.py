"""What every encoding asks of a graph before it is written: that it can be read back as it is."""

from __future__ import annotations

from functools import cache
from typing import Any

from gradir.errors import FormatError, GraphError
from gradir.ir import Graph
from gradir.ir.fields import fields_of
from gradir.ir.records import fault_in, rule_of_attributes
from gradir.ir.validate import check_all

__all__ = ["check_attributes", "check_graph"]


def check_graph(graph: Graph) -> None:
    """Refuse a graph that could be written but not read back as it is.

    Raises:
        FormatError: it breaks a rule of the IR, or a field holds something else than its type says.
    """
    try:
        check_all(graph)
    except GraphError as error:
        raise FormatError(str(error)) from error


def check_attributes(owner: str, record: object) -> None:
    """Refuse attributes that no file spells: untagged floats that are not finite, which JSON would turn into null.

    Raises:
        FormatError: a value is not an `AttrValue`.
    """
    kind: Any = type(record)
    for field in _mappings(kind):
        fault = fault_in(getattr(record, field), rule_of_attributes(), field)
        if fault is not None:
            raise FormatError(f"{owner}: {fault.place} {fault.problem}")


@cache
def _mappings(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields_of(kind) if isinstance(field.default, dict))
