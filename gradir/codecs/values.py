"""What every encoding asks of a graph before it is written: that it can be read back as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol

from gradir.errors import FormatError, GraphError
from gradir.ir import AttrValue, Graph, Node, NonFinite
from gradir.ir.fields import fields_of
from gradir.ir.records import fault_in, rule_of_attributes
from gradir.ir.validate import check_all

__all__ = ["check_attributes", "check_graph", "check_nodes", "harmless"]

_LARGEST: Final = 2**63 - 1
_DEPTH: Final = 3
_KINDS: Final[frozenset[type]] = frozenset({type(None), bool, int, float, str, NonFinite, tuple})


class _Attributed(Protocol):
    """A node, or a kind of nodes."""

    @property
    def attrs(self) -> Mapping[str, AttrValue]: ...

    @property
    def ext(self) -> Mapping[str, AttrValue]: ...


def check_graph(graph: Graph) -> None:
    """Refuse a graph that could be written but not read back as it is.

    Raises:
        FormatError: it breaks a rule of the IR, or a field holds something else than its type says.
    """
    try:
        check_all(graph)
    except GraphError as error:
        raise FormatError(str(error)) from error
    check_attributes("the producer", graph.producer)


def check_nodes(nodes: Sequence[Node]) -> None:
    """Refuse attributes that were changed, in a graph found good before, to what cannot be read back.

    Raises:
        FormatError: a value is not an `AttrValue`, such as an integer of 65 bits, or a float that is not finite.
    """
    if harmless(nodes):
        return
    for node in nodes:
        check_attributes(f"node {node.id!r}", node)


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


def harmless(records: Iterable[_Attributed]) -> bool:
    """Whether all attributes are of known types, fit and are finite, found out at once; false when in doubt."""
    values: list[Any] = []
    for record in records:
        if record.attrs:
            values += record.attrs.values()
        if record.ext:
            values += record.ext.values()
    for _ in range(_DEPTH):
        kinds = set(map(type, values))
        if not kinds <= _KINDS:
            return False
        # The same few numbers come again and again.
        if float in kinds and not all(map(math.isfinite, {value for value in values if type(value) is float})):
            return False
        if int in kinds and not _fit({value for value in values if type(value) is int}):
            return False
        if tuple not in kinds:
            return True
        values = [entry for value in values if type(value) is tuple for entry in value]
    return not values


def _fit(integers: set[int]) -> bool:
    return -_LARGEST - 1 <= min(integers) <= max(integers) <= _LARGEST
