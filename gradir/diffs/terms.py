"""Terms: the meaning of a value, independent of the operations that compute it.

A term has axes, and no shape. A value is a term with the axes that make each of its dimensions. A transpose, a view or
an expand changes no term. So ``x @ W.T`` and a linear layer are the same product, in which each operand lists its axes
of the result. Equal terms have one number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import permutations
from math import prod
from typing import Final, NamedTuple

_DIGITS: Final = 9
# The place of an axis in a result: a kind of dimension, its number, and the number of the axis in it.
Place = tuple[str, int, int]
# A term, and for each of its axes the number in the result, below 0 for a summed axis.
Operand = tuple[int, tuple[int, ...]]


class Value(NamedTuple):
    """A term by its number, the axes of the term in each dimension, and a factor.

    A dimension of size 1 has no axes. An axis ``-n`` is ``n`` equal entries.
    """

    term: int
    dims: tuple[tuple[int, ...], ...]
    factor: float = 1.0


class Terms:
    """The terms of any number of graphs, each once.

    Methods that return a value return ``None`` if they cannot tell the axes apart.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._sizes: list[tuple[int, ...]] = []
        # By term with a split axis, the term with the whole axis and that axis.
        self._parts: dict[int, tuple[int, int]] = {}

    def leaf(self, name: Hashable, shape: Sequence[int]) -> Value:
        """Return a value that no known operation computes."""
        sizes = tuple(size for size in shape if size != 1)
        axes = iter(range(len(sizes)))
        dims = tuple(() if size == 1 else (next(axes),) for size in shape)
        return Value(self._term((name, tuple(shape)), sizes), dims)

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the sizes of the dimensions."""
        return tuple(prod(self._size(value, axis) for axis in dim) for dim in value.dims)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value | None:
        """Return the same elements in the same order with another shape."""
        left = [axis for dim in value.dims for axis in dim][::-1]
        if 0 in shape:
            return None
        dims: list[list[int]] = []
        for size in shape:
            dim: list[int] = []
            missing = size
            while missing > 1:
                if not left:
                    return None
                axis = left.pop()
                own = self._size(value, axis)
                if missing % own:
                    if own % missing:
                        return None
                    value, axis, rest, shift = self._split_axis(value, axis, missing)
                    dims = [[*map(shift, each)] for each in dims]
                    dim, left = [*map(shift, dim)], [*map(shift, left), rest]
                    own = missing
                dim.append(axis)
                missing //= own
            dims.append(dim)
        return None if left else Value(value.term, tuple(map(tuple, dims)), value.factor)

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value repeated along dimensions of size 1, and in new leading dimensions."""
        dims = [*([()] * (len(shape) - len(value.dims))), *value.dims]
        new = [(-size,) if not dim and size != 1 else dim for dim, size in zip(dims, shape, strict=True)]
        return Value(value.term, tuple(new), value.factor)

    def apply_elementwise(
        self, word: Hashable, values: Sequence[Value], shape: Sequence[int], *, in_any_order: bool = False
    ) -> Value | None:
        """Return a function of the entries in the same place."""
        aligned = self._align([self.fold_factor(value) for value in values], len(shape))
        if aligned is None:
            return None
        values, rows = aligned
        result = self._result_places(values, rows, shape)
        places = [_places(row, len(shape)) for row in rows]
        return self._make_value(word, values, places, result, in_any_order=in_any_order)

    def matmul(self, a: Value, b: Value) -> Value | None:
        """Return the product of vectors or matrices, for each entry of the leading dimensions."""
        inner = [a.dims[-1], b.dims[-2] if len(b.dims) > 1 else b.dims[-1]]
        values = [a, b]
        if [self._size(a, axis) for axis in inner[0]] != [self._size(b, axis) for axis in inner[1]]:
            values = [self._merge_axes(a, len(a.dims) - 1), self._merge_axes(b, max(len(b.dims) - 2, 0))]
        rows = [[*value.dims] for value in values]
        summed = [rows[0].pop(), rows[1].pop(-2 if len(rows[1]) > 1 else -1)]
        own = [rows[0].pop() if rows[0] else None, rows[1].pop() if rows[1] else None]
        rank = max(map(len, rows))
        rows = [[*([()] * (rank - len(row))), *row] for row in rows]
        shapes = [self.shape(Value(value.term, tuple(row))) for value, row in zip(values, rows, strict=True)]
        shape = [max(sizes) for sizes in zip(*shapes, strict=True)]
        if not self._fit(values, rows, rank):
            return None
        result = self._result_places(values, rows, shape)
        places = [_places(row, rank) for row in rows]
        for at, (kind, axes) in enumerate(zip("mn", own, strict=True)):
            if axes is not None:
                places[at] |= {axis: (kind, 0, number) for number, axis in enumerate(axes) if axis >= 0}
                result.append([((kind, 0, number), self._size(values[at], axis)) for number, axis in enumerate(axes)])
            places[at] |= {axis: ("sum", 0, number) for number, axis in enumerate(summed[at]) if axis >= 0}
        if any(one < 0 and other < 0 for one, other in zip(*summed, strict=True)):
            return None
        value = self._make_value("matmul", values, places, result, in_any_order=True)
        return value and value._replace(factor=a.factor * b.factor)

    def sum(self, value: Value, over: Iterable[int], *, keeps: bool) -> Value:
        """Return a sum over dimensions."""
        over = {dim % len(value.dims) for dim in over} if value.dims else set()
        summed = sorted(axis for dim in over for axis in value.dims[dim] if axis >= 0)
        equal = prod(-axis for dim in over for axis in value.dims[dim] if axis < 0)
        dims = [() if at in over else dim for at, dim in enumerate(value.dims) if keeps or at not in over]
        term = value.term
        if summed:
            sizes = tuple(size for axis, size in enumerate(self._sizes[term]) if axis not in summed)
            term = self._term(("sum", term, tuple(summed)), sizes)
        return Value(term, _without_axes(dims, summed), value.factor * equal)

    def apply_along(self, word: str, value: Value, dim: int) -> Value | None:
        """Return a function of all entries along a dimension that keeps its size, such as a softmax."""
        value = self.fold_factor(value)
        axes = value.dims[dim] if value.dims else ()
        if any(axis < 0 for axis in axes):
            return None
        term = self._term((word, value.term, tuple(sorted(axes))), self._sizes[value.term])
        return Value(term, value.dims)

    def add(self, values: Sequence[Value], shape: Sequence[int]) -> Value | None:
        """Return a sum of values, each with its factor."""
        first = min(values, key=lambda value: value.term).factor
        if not first:
            return None
        found = self.apply_elementwise(
            "add", [value._replace(factor=value.factor / first) for value in values], shape, in_any_order=True
        )
        return found and found._replace(factor=first)

    def multiply(self, a: Value, b: Value, shape: Sequence[int]) -> Value | None:
        """Return a product of entries."""
        values = [value._replace(factor=1.0) for value in (a, b)]
        found = self.apply_elementwise("mul", values, shape, in_any_order=True)
        return found and found._replace(factor=a.factor * b.factor)

    def fold_factor(self, value: Value) -> Value:
        """Return a value without a factor."""
        # Programs spell 1 / 8 ** 0.5 in several ways, which differ in the last digits.
        factor = float(f"{value.factor:.{_DIGITS}g}")
        if factor == 1:
            return value._replace(factor=1.0)
        return Value(self._term(("times", value.term, factor), self._sizes[value.term]), value.dims)

    def normalize(self, value: Value) -> Value:
        """Return a value without a factor, with one axis for each dimension."""
        value = self.fold_factor(value)
        for at, dim in enumerate(value.dims):
            if len(dim) > 1:
                value = self._merge_axes(value, at)
        return value

    def _term(self, key: Hashable, sizes: tuple[int, ...]) -> int:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self._sizes)
            self._sizes.append(sizes)
        return found

    def _size(self, value: Value, axis: int) -> int:
        return -axis if axis < 0 else self._sizes[value.term][axis]

    def _split_axis(self, value: Value, axis: int, size: int) -> tuple[Value, int, int, Callable[[int], int]]:
        """Return the value with an axis split in two, both parts, and a function that renumbers other axes."""
        if axis < 0:
            return value, -size, axis // size, lambda each: each
        sizes = self._sizes[value.term]
        new = (*sizes[:axis], size, sizes[axis] // size, *sizes[axis + 1 :])
        term = self._term(("split", value.term, axis, size), new)
        self._parts[term] = value.term, axis

        def shift(each: int) -> int:
            return each + (each > axis)

        return Value(term, (), value.factor), axis, axis + 1, shift

    def _merge_axes(self, value: Value, at: int) -> Value:
        """Return the value with one axis for a dimension that may have several."""
        axes = value.dims[at]
        if len(axes) < 2:
            return value
        whole, cut = self._parts.get(value.term, (-1, -1))
        if axes == (cut, cut + 1) and whole >= 0:
            new, term = cut, whole
        elif all(axis < 0 for axis in axes):
            size = prod(axes) if len(axes) % 2 else -prod(axes)
            return value._replace(dims=(*value.dims[:at], (size,), *value.dims[at + 1 :]))
        else:
            new = min(axis for axis in axes if axis >= 0)
            merged = prod(self._size(value, axis) for axis in axes)
            sizes = tuple(
                merged if axis == new else size
                for axis, size in enumerate(self._sizes[value.term])
                if axis not in axes or axis == new
            )
            term = self._term(("merged", value.term, axes), sizes)
        dims = [*value.dims[:at], (new,), *value.dims[at + 1 :]]
        removed = [axis for axis in axes if axis >= 0 and axis != new]
        return Value(term, _without_axes(dims, removed), value.factor)

    def _align(self, values: list[Value], rank: int) -> tuple[list[Value], list[list[tuple[int, ...]]]] | None:
        """Return the values and their dimensions, so that all axes in the same place have the same size."""
        for dim in range(rank):
            places = [(at, dim - rank + len(value.dims)) for at, value in enumerate(values)]
            places = [(at, own) for at, own in places if own >= 0 and any(axis >= 0 for axis in values[at].dims[own])]
            if len({tuple(self._size(values[at], axis) for axis in values[at].dims[own]) for at, own in places}) > 1:
                for at, own in places:
                    values[at] = self._merge_axes(values[at], own)
        rows = [[*([()] * (rank - len(value.dims))), *value.dims] for value in values]
        return (values, rows) if self._fit(values, rows, rank) else None

    def _fit(self, values: Sequence[Value], rows: Sequence[Sequence[tuple[int, ...]]], rank: int) -> bool:
        """Return whether all axes in a dimension have the same sizes in all operands with axes there."""
        for dim in range(rank):
            sizes = {
                tuple(self._size(value, axis) for axis in row[dim])
                for value, row in zip(values, rows, strict=True)
                if any(axis >= 0 for axis in row[dim])
            }
            if len(sizes) > 1:
                return False
        return True

    def _result_places(
        self, values: Sequence[Value], rows: Sequence[Sequence[tuple[int, ...]]], shape: Sequence[int]
    ) -> list[list[tuple[Place, int]]]:
        """Return for each dimension the places and sizes of its axes, as in the first operand that has any there."""
        result: list[list[tuple[Place, int]]] = []
        for dim, whole in enumerate(shape):
            owners = (pair for pair in zip(values, rows, strict=True) if any(axis >= 0 for axis in pair[1][dim]))
            owner = next(owners, None)
            sizes = [whole] * (whole != 1) if owner is None else [self._size(owner[0], axis) for axis in owner[1][dim]]
            result.append([(("", dim, number), size) for number, size in enumerate(sizes)])
        return result

    def _make_value(
        self,
        word: Hashable,
        values: Sequence[Value],
        places: Sequence[dict[int, Place]],
        result: Sequence[Sequence[tuple[Place, int]]],
        *,
        in_any_order: bool,
    ) -> Value | None:
        """Return the term of operands by the places of their axes, with these places in each dimension."""
        sizes = {place: size for dim in result for place, size in dim}
        if any(len(found) != len(self._sizes[value.term]) for found, value in zip(places, values, strict=True)):
            # The same axis is in two places, as in a diagonal.
            return None
        order = [*range(len(values))]
        if in_any_order:
            order.sort(key=lambda at: values[at].term)
        is_square = in_any_order and len(order) == 2 and values[0].term == values[1].term
        candidates: list[tuple[tuple[Operand, ...], dict[Place, int]]] = []
        for each in permutations(order) if is_square else (order,):
            numbers: dict[Place, int] = {}
            operands = tuple(
                (values[at].term, tuple(_number(numbers, places[at][axis]) for axis in sorted(places[at])))
                for at in each
            )
            candidates.append((operands, numbers))
        operands, numbers = min(candidates, key=lambda candidate: candidate[0])
        axes = {place: number for place, number in numbers.items() if number >= 0}
        term = self._term((word, operands), tuple(sizes[place] for place in sorted(axes, key=axes.__getitem__)))
        dims = tuple(tuple(axes.get(place, -size) for place, size in dim) for dim in result)
        return Value(term, dims)


def _without_axes(dims: Iterable[tuple[int, ...]], removed: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return dimensions with new numbers of the axes after removed ones."""
    return tuple(
        tuple(axis if axis < 0 else axis - sum(each < axis for each in removed) for axis in dim) for dim in dims
    )


def _places(row: Sequence[tuple[int, ...]], rank: int) -> dict[int, Place]:
    return {
        axis: ("", dim, number) for dim, axes in enumerate(row[:rank]) for number, axis in enumerate(axes) if axis >= 0
    }


def _number(numbers: dict[Place, int], place: Place) -> int:
    """Return the number of a place in order of appearance: from 0 up, or from -1 down for a summed one."""
    if place not in numbers:
        is_summed = place[0] == "sum"
        count = sum((number < 0) == is_summed for number in numbers.values())
        numbers[place] = -1 - count if is_summed else count
    return numbers[place]
