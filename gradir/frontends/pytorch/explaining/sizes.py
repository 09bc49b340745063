"""Where the size of a dimension comes from: from the inputs of a forward, or from its parameters and the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from math import prod
from typing import Any, Final, TypeAlias

from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import Step, Value, plain_name
from gradir.frontends.walks import reached

_MOST_STEPS: Final = 1000
_MATRICES: Final[Mapping[str, int]] = {"addbmm": 1, "addmm": 1, "baddbmm": 1, "bmm": 0, "mm": 0}
"""Where the first of the two matrices stands that an operation multiplies."""

Sizes: TypeAlias = "tuple[int, ...]"
_At: TypeAlias = "tuple[Value, int | None]"
"""A value, and a dimension of it; ``None`` where it is not known which."""


def is_of_input(flow: Flow, value: Value, dim: int) -> bool:
    """Return whether a value has one entry along a dimension because an input of the forward has one.

    Behind a view any dimension of one entry counts. The program itself made an input of several sequences of one entry.
    """
    start: _At = value, dim % max(len(_shape(flow, value)), 1)
    for at, place in islice(reached([start], partial(_behind, flow)), _MOST_STEPS):
        step = flow.step_of(at)
        # What is made of nothing stands for an input, as in `model(torch.randn(1, 3))`.
        is_input = not step.inputs if step is not None else flow.outside[at.number].role == "input"
        shape = _shape(flow, at) if is_input else ()
        ones = [each for each, size in enumerate(shape) if size == 1] if place is None else [place]
        if is_input and any(prod(size for each, size in enumerate(shape[:-1]) if each != one) == 1 for one in ones):
            return True
    return False


def _behind(flow: Flow, at: _At) -> Iterator[_At]:
    """The inputs of the step that made a value, and the dimensions by which that has a single entry along its own."""
    (value, dim), step = at, flow.step_of(at[0])
    if step is None:
        return
    shapes = [_shape(flow, read.value) for read in step.inputs]
    places: list[int | None] = [None] * len(shapes)
    if dim is not None:
        # An operation may have a form with other arguments.
        with suppress(IndexError, KeyError, TypeError, ZeroDivisionError):
            places = _places(step, _shape(flow, value), dim, shapes)
    for read, shape, place in zip(step.inputs, shapes, places, strict=False):
        # Where an input has more entries, the operation made one of them.
        if place is None or (0 <= place < len(shape) and shape[place] == 1):
            yield read.value, place


def _places(step: Step, shape: Sizes, dim: int, shapes: list[Sizes]) -> list[int | None]:
    """The dimension of each input that a dimension of the output is; -1 for none, ``None`` where it is not known."""
    name, given = plain_name(step.func), dict[str, Any](step.constants)
    if name in _MATRICES:
        last = len(shape) - 1
        left, right = (-1, dim) if dim == last else (dim, -1) if dim == last - 1 else (dim, dim)
        return [*[-1] * _MATRICES[name], left, right]
    if name in _BY_NAME:
        return _BY_NAME[name](given, shape, dim, shapes)
    if len(shapes) == 1 and len(shape) < len(shapes[0]):
        gone, rank = given.get("dim", ()), len(shapes[0])
        dims = {each % rank for each in (gone if isinstance(gone, (tuple, list)) else (gone,))}
        left_over = [each for each in range(rank) if each not in dims]
        return [left_over[dim] if len(left_over) == len(shape) else None]
    return [dim - (len(shape) - len(each)) for each in shapes]


def _swapped(given: Mapping[str, Any], shape: Sizes, dim: int, _: list[Sizes]) -> list[int | None]:
    one, other = (given[key] % len(shape) for key in ("dim0", "dim1"))
    return [{one: other, other: one}.get(dim, dim)]


def _without_new(given: Mapping[str, Any], shape: Sizes, dim: int, shapes: list[Sizes]) -> list[int | None]:
    new = given.get("dim", 0) % len(shape)
    return [-1 if dim == new else dim - (dim > new)] * len(shapes)


_BY_NAME: Final[Mapping[str, Callable[[Mapping[str, Any], Sizes, int, list[Sizes]], list[int | None]]]] = {
    **dict.fromkeys(
        ("reshape", "unsafe_view", "view"), lambda _, shape, dim, shapes: [_through_view(shapes[0], shape, dim)]
    ),
    **dict.fromkeys(("stack", "unsqueeze"), _without_new),
    "convolution": lambda _, __, dim, ___: [-1, 0] if dim == 1 else [dim, -1],
    "embedding": lambda _, shape, dim, __: [1, -1] if dim == len(shape) - 1 else [-1, dim],
    "permute": lambda given, shape, dim, _: [given["dims"][dim] % len(shape)],
    "t": lambda _, __, dim, ___: [1 - dim],
    "transpose": _swapped,
}
"""By name of an operation what gives the dimensions, of its arguments, the shape that it gives and those it takes."""


def _through_view(source: Sizes, shape: Sizes, dim: int) -> int | None:
    behind = len(shape) - dim
    found = {dim} if source[: dim + 1] == shape[: dim + 1] else set[int]()
    if source[-behind:] == shape[dim:]:
        found.add(len(source) - behind)
    return found.pop() if len(found) == 1 else None


def _shape(flow: Flow, value: Value) -> Sizes:
    return tuple(size if isinstance(size, int) else 0 for size in flow.meta_of(value).shape or ())
