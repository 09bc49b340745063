"""What every encoding asks of attribute values before they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any, Final

import msgspec

from gradir.codecs.excerpt import excerpt
from gradir.errors import FormatError
from gradir.ir import AttrValue, Graph

__all__ = ["check_attributes", "check_finite", "check_graph"]

_LARGEST: Final = 2**63 - 1
_DEPTH: Final = 3


def check_graph(graph: Graph) -> None:
    """Refuse a graph whose attributes could be written but not read back as they are.

    Raises:
        FormatError: see `check_attributes`.
    """
    nodes = graph.nodes.values()
    found = chain.from_iterable(map(attrgetter("attrs", "ext"), nodes))
    mappings = filter(None, chain([graph.producer.options], found))
    if _harmless(list(chain.from_iterable(map(methodcaller("values"), mappings)))):
        return
    check_attributes("the producer", graph.producer.options)
    for node in nodes:
        check_attributes(f"node {node.id!r}", node.attrs)
        check_attributes(f"node {node.id!r}", node.ext)


def check_attributes(owner: str, attributes: Mapping[str, AttrValue]) -> None:
    """Refuse attributes that could be written but not read back as they are.

    Raises:
        FormatError: a value is not an `AttrValue`, such as an integer of 65 bits, or a float that is not finite.
    """
    if not attributes:
        return
    try:
        msgspec.convert(attributes, dict[str, AttrValue])
    except msgspec.ValidationError as error:
        raise FormatError(f"an attribute of {owner} cannot be kept: {error}") from error
    check_finite(owner, attributes)


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


def _harmless(values: list[Any]) -> bool:
    """Whether numbers fit and are finite, found out for all values at once; false when in doubt."""
    for _ in range(_DEPTH):
        kinds = set(map(type, values))
        if list in kinds or not all(map(math.isfinite, _only(float, kinds, values))):
            return False
        integers = _only(int, kinds, values)
        if integers and not -_LARGEST - 1 <= min(integers) <= max(integers) <= _LARGEST:
            return False
        values = list(chain.from_iterable(_only(tuple, kinds, values)))
    return not values


def _only(kind: type, kinds: set[type], values: list[Any]) -> list[Any]:
    if kind not in kinds:
        return []
    return values if len(kinds) == 1 else [value for value in values if type(value) is kind]
