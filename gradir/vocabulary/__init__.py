"""Data on the operations of each framework.

Each framework has one module of plain names, found by an entry point of its name in a file::

    [project.entry-points."gradir.vocabularies"]
    torch = "gradir.vocabulary.pytorch:VOCABULARY"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gradir.entrypoints import EntryPoint, entry_points
from gradir.errors import warn

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["Vocabulary", "vocabulary_of"]

_GROUP: Final = "gradir.vocabularies"


class Vocabulary(NamedTuple):
    """Names of operations and attributes with a meaning to passes and diffs.

    >>> both = Vocabulary(frozenset({"view"})) | Vocabulary(frozenset({"expand_dims"}), synonyms={"copy": "copy_p"})
    >>> sorted(both.shape_operations), both.are_same("copy", "copy_p"), both.are_same("copy", "view")
    (['expand_dims', 'view'], True, False)
    """

    shape_operations: frozenset[str] = frozenset()
    """Operations that only rearrange a tensor's elements."""

    accumulators: frozenset[str] = frozenset()
    """Operations that accumulate the gradient of the leaf that is their input."""

    synonyms: Mapping[str, str] = MappingProxyType({})
    """Operations by equivalent ones, between which a framework chooses by release and device."""

    incidental: tuple[str, ...] = ()
    """Patterns of fields that differ between releases, which `gradir.diff` ignores."""

    unsettled: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """By operation, patterns of fields with values that the release chooses, not the program."""

    unexposed: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """By operation, patterns of fields that only some releases expose, so that a missing value equals any."""

    identities: frozenset[str] = frozenset()
    """Operations that select elements in order, and so return their input if they select all."""

    descriptions: Mapping[str, str] = MappingProxyType({})
    """Parts of the description of a module, by other spellings in some releases."""

    casts: frozenset[str] = frozenset()
    """Operations that return the same values with another dtype or device."""

    sizes: tuple[str, ...] = ()
    """Attributes that follow from the sizes of tensors, as patterns of fields."""

    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The names of attribute values 0, 1, 2 and so on, by ``attribute`` or ``operation.attribute``."""

    shared: Mapping[str, str] = MappingProxyType({})
    """Terms that frameworks share, by operation, see `gradir.vocabulary.shared`. In a term, a number is an input slot:
    ``addmm`` is ``add(matmul(1, 2), 0)``. A key can require values of attributes: ``pow.exponent=2``."""

    settings: Mapping[str, str] = MappingProxyType({})
    """Attributes with the same meaning in all frameworks: their shared names by ``operation.attribute``."""

    left_out: frozenset[str] = frozenset()
    """Operations with one input that other frameworks may lack, beside shape operations and casts."""

    parts: frozenset[str] = frozenset()
    """Operations whose outputs are slices of their input."""

    meanings: Mapping[str, str] = MappingProxyType({})
    """The meanings of operations for comparing results, see `gradir.diffs.computing`."""

    draws: frozenset[str] = frozenset()
    """Parts of names of operations whose order counts, since they draw random values or change a common state."""

    literal: str = ""
    """The attribute that holds a constant operand, by the input slot: ``in{}``."""

    contraction: str = ""
    """The attribute of a product with the summed and the batch dimensions of both operands."""

    axes: str = ""
    """The attribute with the dimensions of a sum or mean."""

    defaults: Mapping[str, str] = MappingProxyType({})
    """The default values of attributes and of parts of module descriptions, as text in lower case. All others are
    false; ``*`` is any value, if an attribute repeats other information."""

    def __or__(self, other: Vocabulary) -> Vocabulary:
        return Vocabulary(*map(_join, self, other))

    def are_same(self, one: str, other: str) -> bool:
        """Return whether two operations are equivalent, so that their attributes can be compared."""
        return self.synonyms.get(one, one) == self.synonyms.get(other, other)

    def value_name(self, operation: str, attribute: str, value: object) -> str:
        """Return the meaning of an attribute's value, or an empty text."""
        names = self.values.get(f"{operation}.{attribute}") or self.values.get(attribute, ())
        return names[value] if type(value) is int and 0 <= value < len(names) else ""

    def describe_the_same(self, one: str, other: str) -> bool:
        """Return whether two descriptions of a module from different releases are equivalent."""
        return self._plain(one) == self._plain(other)

    def _plain(self, description: str) -> str:
        for part, same in self.descriptions.items():
            description = description.replace(part, same)
        return description


def _join(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping):
        return {**one, **other}
    if isinstance(one, tuple):
        return (*one, *other)
    return one | other if isinstance(one, frozenset) else one or other


def vocabulary_of(*graphs: Graph) -> Vocabulary:
    """Return the vocabulary of some graphs, which is empty for an unknown framework.

    A graph without the name of a framework may have operations of any.
    """
    return _find_vocabulary(frozenset(graph.producer.framework for graph in graphs))


# Every pass needs a vocabulary. The cache is bounded, since a file may name any framework.
@lru_cache
def _find_vocabulary(frameworks: frozenset[str]) -> Vocabulary:
    found = Vocabulary()
    for point in sorted(set(entry_points(_GROUP))):
        if not frameworks or not frameworks.isdisjoint(("", point.name)):
            found |= _load(point)
    return found


@lru_cache
def _load(point: EntryPoint) -> Vocabulary:
    try:
        found: Vocabulary = Vocabulary() | point.load()
    except Exception as error:  # noqa: BLE001 (an error of another package must not prevent the display of a graph)
        warn(f"the vocabulary of {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}")
        return Vocabulary()
    return found
