"""What a backward gives each leaf, and where a gradient that is zero or not finite became so."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import torch
from torch.utils.hooks import RemovableHandle

from gradir.frontends.pytorch.explaining.magnitudes import (
    MAY_BE_CONSTANT,
    Constant,
    Size,
    constants,
    run_backward,
    size_of,
)
from gradir.frontends.pytorch.private import ACCUMULATOR, hooks_of, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.walk import GradFn


class Meetings:
    """Knows of each function the nearest other one through which all goes that comes to it."""

    def __init__(
        self, ran: Iterable[GradFn], senders: Mapping[GradFn, Sequence[tuple[GradFn, int]]], starts: Collection[object]
    ) -> None:
        """``ran`` are functions in the order of a backward, which begins in ``starts``; ``senders`` send to them."""
        self._nearest: dict[GradFn, tuple[int, GradFn | None]] = {}
        for fn in ran:
            nearest = None if fn in starts else self.of([sender for sender, _ in senders.get(fn, ())])
            # With how many there are behind each other; nothing is nearest to those in which the backward begins.
            self._nearest[fn] = 0 if nearest is None else self._nearest[nearest][0] + 1, nearest

    def of(self, fns: Sequence[GradFn]) -> GradFn | None:
        """Return the nearest function through which all goes that comes to some, which may be one of them."""
        return reduce(self._met, fns, fns[0] if fns else None)

    def above(self, fn: GradFn) -> Iterator[GradFn]:
        """Yield the functions through which all goes that comes to one, the nearest first."""
        found = self._nearest[fn][1]
        while found is not None:
            yield found
            found = self._nearest[found][1]

    def _met(self, one: GradFn | None, other: GradFn | None) -> GradFn | None:
        while one is not other and one is not None and other is not None:
            if self._nearest[one][0] < self._nearest[other][0]:
                one, other = other, one
            one = self._nearest[one][1]
        return None if other is None else one


# A smaller part of the gradient that came counts as nothing.
_NOTHING: Final = 1e-5
# With dtypes of a coarser precision, sums may seem to cancel that do not.
_COARSE: Final = 1e-4
# A sum that cancels may be off by this many times the precision of its dtype.
_ROUNDINGS: Final = 16
# How many functions to look at behind another.
_MOST_SENDERS: Final = 100

# Functions that give each number its own gradient.
_BY_ELEMENT: Final = frozenset(
    {
        *("Abs", "Add", "Clamp", "ClampMax", "ClampMin", "Clone", "Cos", "Div", "Exp", "Log", "Mul", "Neg", "Pow"),
        *("Relu", "Sigmoid", "Sin", "Sqrt", "Sub", "Tanh", "ToCopy"),
    }
)

# The saved mask of a function, and whether it is true where the first input is taken.
_MASKS: Final = {
    "WhereBackward0": ("condition", True),
    "MaskedFillBackward0": ("mask", False),
    "MaskedFillBackward1": ("mask", False),
}

# The input slot of the bias.
_ADDED_TO_ALL: Final[Mapping[str, int]] = {
    "AddmmBackward0": 0,
    "ConvolutionBackward0": 2,
    "NativeBatchNormBackward0": 2,
    "NativeGroupNormBackward0": 2,
    "NativeLayerNormBackward0": 2,
}

_MOST_ORIGINS: Final = 16
_MOST_ROWS: Final = 3

_IsBad: TypeAlias = "Callable[[Size | None], bool]"


class Arrival(NamedTuple):
    """A leaf gets ``none``, ``zero``, ``rounding`` (numbers cancel), ``nonfinite`` or ``some``, from functions."""

    kind: str
    arose: tuple[GradFn, ...] = ()


class _Passed(NamedTuple):
    """The gradients that came to a function and that it passed on."""

    came: tuple[Size | None, ...]
    went: tuple[Size | None, ...]
    # Where zeros became infinite or NaN, if nothing else did.
    spoilt: torch.Tensor | None = None
    # The first places of NaN or infinity in the first dimension, and its length.
    rows: tuple[tuple[int, ...], int] = ((), 0)


_NOTHING_PASSED: Final = _Passed((), ())


class Gradients:
    """The sizes of the gradients that one backward brought to each grad_fn and each leaf."""

    def __init__(self, live: LiveGraph, passed: Mapping[GradFn, _Passed], arrived: Mapping[int, Size | None]) -> None:
        self._passed = passed
        self.hooked: set[GradFn] = set()
        """Functions whose gradient is good where it is sent and bad where it comes, as a hook on a tensor makes it."""
        self._arrived = arrived
        self._consumers: dict[GradFn, list[tuple[GradFn, int]]] = {}
        self._edges: dict[tuple[GradFn, int], list[tuple[GradFn, int]]] = {}
        for fn in passed:
            for slot, (child, number) in enumerate(fn.next_functions):
                if child is not None:
                    self._consumers.setdefault(child, []).append((fn, slot))
                    self._edges.setdefault((child, number), []).append((fn, slot))
        # Of each function that bad gradients come to or arise in, the functions that made them of good ones.
        self._origins: dict[_IsBad, dict[GradFn, tuple[GradFn, ...]]] = {}
        for is_bad in (_is_broken, _is_missing, _is_zero):
            self._origins[is_bad] = {}
            self._find_origins(is_bad)
        found = [each for each in constants(live, passed, self._edges) if self._is_nothing(live, each)]
        self.constant = {each.fn: each.kind for each in found}
        """The functions whose result is constant by how it is made, with the kind of cause that they are."""
        self._cancelled = {(each.at, each.number): each.fn for each in found}
        self.cancelling: dict[GradFn, tuple[GradFn, ...]] = {}
        """By the function through which all goes that adds up to nothing, the last ones on its paths."""
        self._starts = frozenset(entry.tensor.grad_fn for entry in live.captured if entry.role == "output")
        self._find_cancelling(live)
        # The functions to which nothing comes but what is constant sends, and what that is.
        self._nothing: dict[GradFn, tuple[GradFn, ...]] = {}
        for fn, (came, *_) in passed.items() if self._cancelled else ():
            made = [self._made_nothing(fn, number) for number in range(len(came))]
            if any(made) and all(found or _is_zero(size) for found, size in zip(made, came, strict=True)):
                self._nothing[fn] = tuple(dict.fromkeys(chain(*made)))[:_MOST_ORIGINS]

    @cached_property
    def meetings(self) -> Meetings:
        """The functions that all gradients of others go through."""
        return Meetings(self._passed, self._consumers, self._starts)

    def of_leaf(self, leaf: torch.Tensor) -> float | str:
        """Return the norm of what arrives at a leaf, or ``none``, ``zero`` or ``nonfinite``."""
        size = self._arrived.get(id(leaf))
        return "none" if size is None else size.value

    def by_node(self, live: LiveGraph) -> dict[str, float | str]:
        """Return the same of what comes to each node of the graph; of several gradients the worst or the largest."""
        at: dict[str, float | str] = {}
        for fn, (came, *_) in self._passed.items():
            known = [size for size in came if size is not None]
            if known:
                at[live.grad_fns[fn]] = max(known, key=lambda size: (not size.is_finite, size.norm)).value
        at.update((id_, self.of_leaf(leaf)) for id_, leaf in live.leaves.items())
        # What adds a gradient up is no function that anything goes through.
        accumulators = (fn for fn in live.grad_fns if type(fn).__name__ == ACCUMULATOR)
        at.update((live.grad_fns[fn], self.of_leaf(fn.variable)) for fn in accumulators)
        return {id_: at[id_] for id_ in live.graph.nodes if id_ in at}

    def passed(self, fn: GradFn) -> _Passed:
        """Return the gradients that came to a function and that it passed on."""
        return self._passed.get(fn, _NOTHING_PASSED)

    def came_to(self, fn: GradFn) -> float:
        """Return the largest number of the gradients that came to a function."""
        return max((size.largest for size in self.passed(fn).came if size is not None), default=0.0)

    def masking(self, fn: GradFn) -> GradFn | None:
        """Return the `where` or `masked_fill` that masks every number which a function spoils."""
        spoilt = self._passed[fn].spoilt
        if spoilt is None:
            return None
        waiting, seen = [fn], {fn}
        while waiting and len(seen) <= _MOST_SENDERS:
            for sender, slot in self._consumers.get(waiting.pop(0), ()):
                if _leaves_out(sender, slot, spoilt):
                    return sender
                # Where the numbers change places, the mask would be of others.
                if sender not in seen and type(sender).__name__.partition("Backward")[0] in _BY_ELEMENT:
                    seen.add(sender)
                    waiting.append(sender)
        return None

    def at(self, leaf: torch.Tensor, accumulator: GradFn) -> Arrival:
        """Return the arrival at a leaf of the graph."""
        size = self._arrived.get(id(leaf))
        if size is None:
            return Arrival("none", self._origins_above(accumulator, _is_missing))
        if not size.is_finite:
            return Arrival("nonfinite", self._origins_above(accumulator, _is_broken))
        made = self._made_nothing(accumulator, 0)
        if made:
            takers = self._consumers[accumulator]
            is_added = all(_ADDED_TO_ALL.get(type(fn).__name__) == slot for fn, slot in takers)
            # What is added to all and subtracted again cancels whatever a program makes of it.
            is_rounding = is_added and (accumulator, 0) in self._cancelled
            takers = takers[:_MOST_ORIGINS]
            return Arrival("rounding", tuple(fn for fn, _ in takers)) if is_rounding else Arrival("zero", made)
        if not size.largest:
            arose = self._origins_above(accumulator, _is_zero)
            takers = self._consumers.get(accumulator, [])
            direct = {fn for fn, slot in takers if _ADDED_TO_ALL.get(type(fn).__name__) == slot} - self.hooked
            # Of what is added to all the gradient is a sum, which is zero only where its terms cancel.
            return Arrival("rounding" if arose and direct.issuperset(arose) else "zero", arose)
        return self._rounded(size, leaf, accumulator)

    def _rounded(self, size: Size, leaf: torch.Tensor, accumulator: GradFn) -> Arrival:
        cancelling = [fn for fn, slot in self._consumers.get(accumulator, ()) if self._cancels(fn, slot)]
        if cancelling and len(cancelling) == len(self._consumers[accumulator]):
            rounding = torch.finfo(leaf.dtype).eps * _ROUNDINGS
            if size.largest <= rounding * max(map(self.came_to, cancelling)):
                is_constant = all(self.constant.get(fn) == "norm_adds_up" for fn in cancelling)
                return Arrival("zero" if is_constant else "rounding", tuple(cancelling))
        return Arrival("some")

    def _cancels(self, fn: GradFn, slot: int) -> bool:
        came, went, *_ = self._passed[fn]
        passed_on = went[slot] if slot < len(went) and any(came) else None
        return passed_on is not None and passed_on.largest <= _NOTHING * self.came_to(fn)

    def _is_nothing(self, live: LiveGraph, found: Constant) -> bool:
        """Return whether the numbers say so too, as they do not where a bound or a number that is added is larger."""
        came, went, *_ = self._passed[found.fn]
        sent = self._passed[found.at].came if found.at in self._passed else (self._arrived[id(found.at.variable)],)
        left, given = sent[found.number], came[0] if found.kind.endswith("adds_up") else went[0]
        dtype = live.graph.nodes[live.grad_fns[found.fn]].outputs[0].dtype
        if left is None or given is None or dtype is None or not left.is_finite:
            return False
        # A normalisation divides by a deviation, which makes its roundings larger.
        inverse = saved_tensor(found.fn, "result2") if found.kind == "norm_adds_up" else None
        scale = 1.0 if inverse is None else max(1.0, float(inverse.max())) ** 2
        return left.largest <= torch.finfo(getattr(torch, dtype)).eps * _ROUNDINGS * scale * given.largest

    def _find_cancelling(self, live: LiveGraph) -> None:
        for (at, number), senders in self._edges.items():
            hooks = hooks_of(at.variable) if type(at).__name__ == ACCUMULATOR else None
            if len(senders) == 1 or (at, number) in self._cancelled or hooks:
                continue
            sent = [self._passed[fn].went[slot] for fn, slot in senders if slot < len(self._passed[fn].went)]
            largest = max((size.largest for size in sent if size is not None), default=0.0)
            came = self._passed[at].came[number] if at in self._passed else self._arrived[id(at.variable)]
            dtype = live.graph.nodes[live.grad_fns[at]].outputs[0].dtype
            if came is None or dtype is None or not largest or _is_broken(came) or any(map(_is_broken, sent)):
                continue
            precision = torch.finfo(getattr(torch, dtype)).eps
            # What is small beside the precision of a half proves nothing.
            if came.largest <= (precision * _ROUNDINGS * largest if precision < _COARSE else 0.0):
                fns = sorted({fn for fn, _ in senders}, key=sequence_number)
                meeting = self.meetings.of(fns) or fns[-1]
                self._cancelled[at, number] = meeting
                self.constant.setdefault(meeting, "cancel")
                self.cancelling[meeting] = (*self.cancelling.get(meeting, ()), *fns)[:_MOST_ORIGINS]

    def _made_nothing(self, fn: GradFn, number: int) -> tuple[GradFn, ...]:
        """By which constants what comes to an output of a function is nothing; by none if it is not, or truly zero."""
        if (fn, number) in self._cancelled:
            return (self._cancelled[fn, number],)
        found: dict[GradFn, None] = {}
        for sender, slot in self._edges.get((fn, number), ()):
            went = self._passed[sender].went
            if sender not in self._nothing and slot < len(went) and not _is_zero(went[slot]):
                return ()
            found.update(dict.fromkeys(self._nothing.get(sender, ())))
        return tuple(found)

    def _find_origins(self, is_bad: _IsBad) -> None:
        origins = self._origins[is_bad]
        # They ran in an order in which nothing stands before what its gradient comes from.
        for fn, (came, went, *_) in self._passed.items():
            known = [size for size in came if size is not None]
            if any(map(is_bad, known)):
                origins[fn] = self._origins_above(fn, is_bad) or self._changed_on_the_way(fn, is_bad)
            elif known and any(map(is_bad, went)):
                origins[fn] = (fn,)
            elif not known and is_bad is _is_missing:
                # What gets nothing at all may run all the same, and passes that on.
                origins[fn] = self._origins_above(fn, is_bad)

    def _changed_on_the_way(self, fn: GradFn, is_bad: _IsBad) -> tuple[GradFn, ...]:
        # What several send may cancel.
        (sender, slot), *others = self._consumers.get(fn, [(fn, 0)])
        went = self._passed[sender].went
        if sender is fn or others or slot >= len(went) or is_bad(went[slot]):
            return ()
        self.hooked.add(fn)
        return (fn,)

    def _origins_above(self, fn: GradFn, is_bad: _IsBad) -> tuple[GradFn, ...]:
        found: dict[GradFn, None] = {}
        for sender, slot in self._consumers.get(fn, ()):
            went = self._passed[sender].went
            if slot >= len(went) or is_bad(went[slot]):
                found.update(dict.fromkeys(self._origins[is_bad].get(sender, ())))
        return tuple(found)[:_MOST_ORIGINS]


def gradients_of(live: LiveGraph) -> Gradients:
    """Run a backward that changes nothing, and measure each gradient on the way."""
    passed: dict[GradFn, _Passed] = {}
    # Of what may be constant, and of those that it sends a gradient to, numbers are compared.
    compared = {fn for fn in live.grad_fns if type(fn).__name__ in MAY_BE_CONSTANT}
    compared |= {fn.next_functions[0][0] for fn in compared if fn.next_functions}

    def note(fn: GradFn, went: Sequence[torch.Tensor | None], came: Sequence[torch.Tensor | None]) -> None:
        roughly = partial(size_of, is_exact=False)
        sizes = _Passed(tuple(map(roughly, came)), tuple(map(roughly, went)))
        if fn in compared or _may_cancel(sizes, went):
            sizes = _Passed(tuple(map(size_of, came)), tuple(map(size_of, went)))
        if any(map(_is_broken, sizes.went)) and not any(map(_is_broken, sizes.came)):
            sizes = sizes._replace(spoilt=_spoilt(came, went), rows=_broken_rows(went))
        passed[fn] = sizes

    def register() -> list[RemovableHandle]:
        return [fn.register_hook(partial(note, fn)) for fn in live.grad_fns if type(fn).__name__ != ACCUMULATOR]

    return Gradients(live, passed, {id(leaf): size_of(gradient) for leaf, gradient in run_backward(live, register)})


def _may_cancel(sizes: _Passed, went: Sequence[torch.Tensor | None]) -> bool:
    """Whether a largest number that is passed on may be nothing beside the largest that came, going by the norms."""
    nothing = 2 * _NOTHING * max((size.norm for size in sizes.came if size is not None), default=0.0)
    pairs = zip(sizes.went, (0 if gradient is None else gradient.numel() for gradient in went), strict=True)
    return nothing > 0 and any(size and count and size.norm <= nothing * math.sqrt(count) for size, count in pairs)


def _spoilt(came: Sequence[torch.Tensor | None], went: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """Return where zeros came and NaN or infinity goes on, ``None`` if other numbers become so, too."""
    given = came[0] if len(came) == 1 else None
    if given is None or given.layout is not torch.strided:
        return None
    with torch.no_grad():
        found: torch.Tensor | None = None
        for gradient in went:
            if gradient is None or gradient.layout is not torch.strided:
                continue
            broken = ~torch.isfinite(gradient.detach())
            if not broken.any():
                continue
            if gradient.shape != given.shape or given.detach()[broken].any():
                return None
            found = broken if found is None else found | broken
        return found


def _broken_rows(went: Sequence[torch.Tensor | None]) -> tuple[tuple[int, ...], int]:
    """Return the rows of a gradient with NaN or infinity and the number of rows, unless all have some."""
    for gradient in went:
        if gradient is None or gradient.layout is not torch.strided or not gradient.dim():
            continue
        broken = ~torch.isfinite(gradient.detach()).reshape(gradient.shape[0], -1).all(1)
        rows = tuple(broken.nonzero().flatten().tolist())
        if rows:
            return (rows[:_MOST_ROWS], gradient.shape[0]) if len(rows) < gradient.shape[0] else ((), 0)
    return (), 0


def _leaves_out(fn: GradFn, slot: int, spoilt: torch.Tensor) -> bool:
    """Return whether a function takes none of the results at these places through one of its inputs."""
    name, is_kept_where_true = _MASKS.get(type(fn).__name__, ("", False))
    mask = saved_tensor(fn, name) if name else None
    if mask is None or mask.dtype is not torch.bool:
        return False
    try:
        mask = mask.expand_as(spoilt)
    except RuntimeError:
        return False
    is_taken = mask if is_kept_where_true == (slot == 0) else ~mask
    return not bool((is_taken & spoilt).any())


def _is_zero(size: Size | None) -> bool:
    return size is None or (size.is_finite and not size.largest)


def _is_missing(size: Size | None) -> bool:
    return size is None


def _is_broken(size: Size | None) -> bool:
    return size is not None and not size.is_finite
