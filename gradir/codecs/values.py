"""What every encoding asks of a graph before it is written: that it can be read back as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from gradir.errors import FormatError, GraphError
from gradir.ir import AttrValue, Graph
from gradir.ir.excerpt import excerpt
from gradir.ir.validate import check_all

__all__ = ["check_finite", "check_graph", "harmless"]


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


def check_finite(owner: str, attributes: Mapping[str, AttrValue]) -> None:
    """Refuse floats that JSON has no spelling for, and which its writer would turn into null.

    Raises:
        FormatError: a value is an untagged nan or infinity.
    """
    for key, value in attributes.items():
        strange = _not_finite(value)
        if strange is not None:
            raise FormatError(
                f"attribute {excerpt(key)} of {owner} holds the float {strange}, which a file cannot: "
                f"write it as NonFinite('{strange}')"
            )


def _not_finite(value: AttrValue) -> float | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    if not isinstance(value, (tuple, list)):
        return None
    return next((found for entry in value if (found := _not_finite(entry)) is not None), None)


def harmless(records: Iterable[_Attributed]) -> bool:
    """Whether all floats among attributes are finite, found out at once; types were checked as they were read."""
    values: list[Any] = []
    for record in records:
        if record.attrs:
            values += record.attrs.values()
        if record.ext:
            values += record.ext.values()
    while values:
        # The same few numbers come again and again.
        if not all(map(math.isfinite, {value for value in values if type(value) is float})):
            return False
        values = [entry for value in values if type(value) is tuple for entry in value]
    return True
