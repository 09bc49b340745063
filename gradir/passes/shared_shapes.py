"""Shapes as two frameworks can be asked for them: without the order of dimensions, or without dimensions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from gradir.ir.model import bounded
from gradir.vocabulary.shared import KEEPS_DIMENSIONS, PRODUCT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.ir.model import AttrValue, Shape
    from gradir.passes.translating import Word

__all__ = ["count_of", "elements", "operand_sizes", "parameter_shape"]


def elements(shape: Shape | None) -> int | None:
    """How many elements there are; ``None`` where a size is not known.

    >>> elements((2, 3)), elements(("batch", 3)), elements(None)
    (6, None, None)
    """
    if shape is None or not all(isinstance(size, int) for size in shape):
        return None
    return bounded(prod(size for size in shape if isinstance(size, int)))


def count_of(shape: Shape | None) -> Shape | None:
    """A shape of one dimension with as many elements."""
    count = elements(shape)
    return None if count is None else (count,)


def operand_sizes(value: AttrValue, shapes: Sequence[Shape | None]) -> tuple[tuple[int, ...] | None, ...]:
    """Of both operands of a product what is summed, what goes together and the rest, each as one size.

    ``value`` is ``((summed of each), (together of each))``, as lists of dimensions.

    >>> operand_sizes((((2,), (0,)), ((), ())), [(5, 7, 8), (8, 2, 4)])
    ((8, 1, 35), (8, 1, 8))
    """
    # What a file holds may be anything.
    given: Any = value
    try:
        summed, together = given
        return tuple([_sizes(*each) for each in zip(summed, together, shapes, strict=True)])
    except (TypeError, ValueError, IndexError):
        return (None, None)


def _sizes(summed: Sequence[int], together: Sequence[int], shape: Shape | None) -> tuple[int, ...] | None:
    if shape is None or elements(shape) is None:
        return None
    rest = [at for at in range(len(shape)) if at not in summed and at not in together]
    groups = ([shape[at] for at in summed], [shape[at] for at in together], [shape[at] for at in rest])
    return tuple(elements(tuple(group)) or 0 for group in groups)


def parameter_shape(shape: Shape | None, users: Sequence[tuple[Word, int]]) -> Shape | None:
    """The shape of a parameter up to what a framework arranges: its sizes in order, or how many elements it has.

    ``users`` are what takes it, each with the slot. Of what a product takes, dimensions that are summed together are
    one, as those of several heads are; of what only adds or multiplies it by element, all are.

    >>> parameter_shape((8, 2, 4), ())
    (2, 4, 8)
    """
    if shape is None:
        return None
    known = {word.operands[slot] for word, slot in users if word.op == PRODUCT and slot < len(word.operands)}
    sizes = known.pop() if len(known) == 1 else None
    if sizes is not None and all(word.op == PRODUCT for word, _ in users) and elements(sizes) == elements(shape):
        return tuple(sorted(size for size in sizes if size != 1)) or (1,)
    if users and not any(word.op in KEEPS_DIMENSIONS for word, _ in users):
        return count_of(shape) or shape
    return tuple(sorted((size for size in shape if size != 1), key=_place)) or (1,)


def _place(size: int | str) -> tuple[bool, int, str]:
    """Numbers in their order, then sizes that are not known."""
    return (False, size, "") if isinstance(size, int) else (True, 0, size)
