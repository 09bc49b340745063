"""Measure the gradients of a backward pass, and find the functions that made them zero or not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import torch
from torch.utils.hooks import RemovableHandle

from gradir.frontends.pytorch.explaining import magnitudes
from gradir.frontends.pytorch.explaining.magnitudes import Size, measure_size, run_backward
from gradir.frontends.pytorch.private import ACCUMULATOR, hooks_of, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import read_saved_tensor
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.walks import follow
from gradir.ir.memo import group_by_key


class Dominators:
    """Finds the functions that every path of a backward to another function goes through."""

    def __init__(
        self, ran: Iterable[GradFn], senders: Mapping[GradFn, Sequence[tuple[GradFn, int]]], starts: Collection[object]
    ) -> None:
        """``ran`` are functions in the order of a backward, which begins at ``starts``. ``senders`` send to them."""
        self._nearest: dict[GradFn, tuple[int, GradFn | None]] = {}
        for fn in ran:
            nearest = None if fn in starts else self.common([sender for sender, _ in senders.get(fn, ())])
            # The number of dominators, and the nearest, which the functions at the start do not have.
            self._nearest[fn] = 0 if nearest is None else self._nearest[nearest][0] + 1, nearest

    def common(self, fns: Sequence[GradFn]) -> GradFn | None:
        """Return the nearest function that every path to some functions goes through, which may be one of them."""
        return reduce(self._find_common, fns, fns[0] if fns else None)

    def of(self, fn: GradFn) -> Iterator[GradFn]:
        """Yield the functions that every path to a function goes through, the nearest first."""
        return follow(self._nearest[fn][1], lambda each: self._nearest[each][1])

    def _find_common(self, one: GradFn | None, other: GradFn | None) -> GradFn | None:
        while one is not other and one is not None and other is not None:
            if self._nearest[one][0] < self._nearest[other][0]:
                one, other = other, one
            one = self._nearest[one][1]
        return None if other is None else one


# A smaller fraction of the incoming gradient counts as nothing.
_NOTHING: Final = 1e-5
# With dtypes of a coarser precision, sums may cancel by rounding only.
_COARSE: Final = 1e-4
# A sum that cancels may differ from zero by this many times the precision of its dtype.
_ROUNDINGS: Final = 16
# The number of functions to search for a mask.
_MOST_SENDERS: Final = 100

# Functions that compute the gradient of each entry by itself.
_BY_ELEMENT: Final = frozenset[str]().union(
    ("Abs", "Add", "Clamp", "ClampMax", "ClampMin", "Clone", "Cos", "Div", "Exp", "Log", "Mul", "Neg", "Pow"),
    ("Relu", "Sigmoid", "Sin", "Sqrt", "Sub", "Tanh", "ToCopy"),
)

# The saved mask of a function, and whether true selects the first input.
_MASKS: Final = {
    "WhereBackward0": ("condition", True),
    **dict.fromkeys(("MaskedFillBackward0", "MaskedFillBackward1"), ("mask", False)),
}

# The input slot of the bias.
_ADDED_TO_ALL: Final[Mapping[str, int]] = {
    "AddmmBackward0": 0,
    **{f"{name}Backward0": 2 for name in ("Convolution", "NativeBatchNorm", "NativeGroupNorm", "NativeLayerNorm")},
}

_MOST_ORIGINS: Final = 16
_MOST_ROWS: Final = 3

_IsBad: TypeAlias = "Callable[[Size | None], bool]"


class Arrival(NamedTuple):
    """A leaf gets ``none``, ``zero``, ``rounding`` (terms cancel), ``nonfinite`` or ``some``, from functions."""

    kind: str
    arose: tuple[GradFn, ...] = ()


class _Passed(NamedTuple):
    """The gradients that a function received and passed on."""

    came: tuple[Size | None, ...]
    went: tuple[Size | None, ...]
    # A mask of the zeros that became infinite or NaN, unless other entries did so too.
    spoilt: torch.Tensor | None = None
    # The first places of NaN or infinity in the first dimension, and its length.
    rows: tuple[tuple[int, ...], int] = ((), 0)


_NOTHING_PASSED: Final = _Passed((), ())


class Gradients:
    """The sizes of the gradients that one backward brought to each grad_fn and each leaf."""

    def __init__(self, live: LiveGraph, passed: Mapping[GradFn, _Passed], arrived: Mapping[int, Size | None]) -> None:
        self._passed = passed
        self.hooked: set[GradFn] = set()
        """Functions that receive a bad gradient although a good one was sent, because of a hook on a tensor."""
        self._arrived = arrived
        ends = ((end, (fn, slot)) for fn in passed for slot, end in enumerate(fn.next_functions))
        edges = [(end, sender) for end, sender in ends if end[0] is not None]
        self._consumers = group_by_key((child, sender) for (child, _), sender in edges)
        self._edges = group_by_key(edges)
        # The functions that turned good gradients into bad ones, by each function that received or made bad ones.
        self._origins: dict[_IsBad, dict[GradFn, tuple[GradFn, ...]]] = {}
        for is_bad in (_is_nonfinite, _is_missing, _is_zero):
            self._origins[is_bad] = {}
            self._find_origins(is_bad)
        found = [each for each in magnitudes.find_constants(live, passed, self._edges) if self._is_nothing(live, each)]
        self.constant = {each.fn: each.kind for each in found}
        """The functions whose result is always constant, with the kind of cause."""
        self._cancelled = {(each.at, each.number): each.fn for each in found}
        self.cancelling: dict[GradFn, tuple[GradFn, ...]] = {}
        """The last functions on the paths of a gradient that adds up to nothing, by the function before all paths."""
        self._starts = frozenset(entry.tensor.grad_fn for entry in live.captured if entry.role == "output")
        self._find_cancelling(live)
        # The constant functions behind each function that receives gradients of constants only.
        self._nothing: dict[GradFn, tuple[GradFn, ...]] = {}
        for fn, (came, *_) in passed.items() if self._cancelled else ():
            made = [self._find_constants(fn, number) for number in range(len(came))]
            if any(made) and all(found or _is_zero(size) for found, size in zip(made, came, strict=True)):
                self._nothing[fn] = tuple(dict.fromkeys(chain(*made)))[:_MOST_ORIGINS]

    @cached_property
    def dominators(self) -> Dominators:
        """The functions that all gradients of others go through."""
        return Dominators(self._passed, self._consumers, self._starts)

    def measure_leaf(self, leaf: torch.Tensor) -> float | str:
        """Return the norm of the gradient of a leaf, or ``none``, ``zero`` or ``nonfinite``."""
        size = self._arrived.get(id(leaf))
        return "none" if size is None else size.value

    def norms_by_node(self, live: LiveGraph) -> dict[str, float | str]:
        """Return the norm of the gradient at each node of the graph, and the worst or largest of several."""
        norms: dict[str, float | str] = {}
        for fn, (came, *_) in self._passed.items():
            known = [size for size in came if size is not None]
            if known:
                norms[live.grad_fns[fn]] = max(known, key=lambda size: (not size.is_finite, size.norm)).value
        norms.update((id_, self.measure_leaf(leaf)) for id_, leaf in live.leaves.items())
        # An accumulator passes nothing on, so it has no hook.
        accumulators = (fn for fn in live.grad_fns if type(fn).__name__ == ACCUMULATOR)
        norms.update((live.grad_fns[fn], self.measure_leaf(fn.variable)) for fn in accumulators)
        return {id_: norms[id_] for id_ in live.graph.nodes if id_ in norms}

    def flow_through(self, fn: GradFn) -> _Passed:
        """Return the gradients that a function received and passed on."""
        return self._passed.get(fn, _NOTHING_PASSED)

    def came_to(self, fn: GradFn) -> float:
        """Return the largest entry of the gradients that a function received."""
        return max((size.largest for size in self.flow_through(fn).came if size is not None), default=0.0)

    def find_mask(self, fn: GradFn) -> GradFn | None:
        """Return the `where` or `masked_fill` that masks every entry that a function makes infinite or NaN."""
        spoilt = self._passed[fn].spoilt
        if spoilt is None:
            return None
        waiting, seen = [fn], {fn}
        while waiting and len(seen) <= _MOST_SENDERS:
            for sender, slot in self._consumers.get(waiting.pop(0), ()):
                if _masks_out(sender, slot, spoilt):
                    return sender
                # Other functions may move entries, so the mask would not fit.
                if sender not in seen and type(sender).__name__.partition("Backward")[0] in _BY_ELEMENT:
                    seen.add(sender)
                    waiting.append(sender)
        return None

    def arrival_at(self, leaf: torch.Tensor, accumulator: GradFn) -> Arrival:
        """Return the arrival at a leaf of the graph."""
        size = self._arrived.get(id(leaf))
        if size is None:
            return Arrival("none", self._origins_above(accumulator, _is_missing))
        if not size.is_finite:
            return Arrival("nonfinite", self._origins_above(accumulator, _is_nonfinite))
        made = self._find_constants(accumulator, 0)
        if made:
            takers = self._consumers[accumulator]
            is_added = all(_ADDED_TO_ALL.get(type(fn).__name__) == slot for fn, slot in takers)
            # A term that is added to all entries and subtracted again always cancels.
            is_rounding = is_added and (accumulator, 0) in self._cancelled
            takers = takers[:_MOST_ORIGINS]
            return Arrival("rounding", tuple(fn for fn, _ in takers)) if is_rounding else Arrival("zero", made)
        if not size.largest:
            arose = self._origins_above(accumulator, _is_zero)
            takers = self._consumers.get(accumulator, [])
            direct = {fn for fn, slot in takers if _ADDED_TO_ALL.get(type(fn).__name__) == slot} - self.hooked
            # The gradient of a term that is added to all entries is a sum, which is zero only if its terms cancel.
            return Arrival("rounding" if arose and direct.issuperset(arose) else "zero", arose)
        return self._judge_rounding(size, leaf, accumulator)

    def _judge_rounding(self, size: Size, leaf: torch.Tensor, accumulator: GradFn) -> Arrival:
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

    def _is_nothing(self, live: LiveGraph, found: magnitudes.Constant) -> bool:
        """Return whether the measured gradient of a constant is nothing, which an added bound or term can change."""
        came, went, *_ = self._passed[found.fn]
        sent = self._passed[found.at].came if found.at in self._passed else (self._arrived[id(found.at.variable)],)
        result, source = sent[found.number], came[0] if found.kind.endswith("adds_up") else went[0]
        dtype = live.graph.nodes[live.grad_fns[found.fn]].outputs[0].dtype
        if result is None or source is None or dtype is None or not result.is_finite:
            return False
        # A normalisation divides by a deviation, which makes its roundings larger.
        inverse = read_saved_tensor(found.fn, "result2") if found.kind == "norm_adds_up" else None
        scale = 1.0 if inverse is None else max(1.0, float(inverse.max())) ** 2
        return result.largest <= torch.finfo(getattr(torch, dtype)).eps * _ROUNDINGS * scale * source.largest

    def _find_cancelling(self, live: LiveGraph) -> None:
        for (at, number), senders in self._edges.items():
            hooks = hooks_of(at.variable) if type(at).__name__ == ACCUMULATOR else None
            if len(senders) == 1 or (at, number) in self._cancelled or hooks:
                continue
            sent = [self._passed[fn].went[slot] for fn, slot in senders if slot < len(self._passed[fn].went)]
            largest = max((size.largest for size in sent if size is not None), default=0.0)
            came = self._passed[at].came[number] if at in self._passed else self._arrived[id(at.variable)]
            dtype = live.graph.nodes[live.grad_fns[at]].outputs[0].dtype
            if came is None or dtype is None or not largest or _is_nonfinite(came) or any(map(_is_nonfinite, sent)):
                continue
            precision = torch.finfo(getattr(torch, dtype)).eps
            # A small sum proves nothing with the precision of half.
            if came.largest <= (precision * _ROUNDINGS * largest if precision < _COARSE else 0.0):
                fns = sorted({fn for fn, _ in senders}, key=sequence_number)
                common = self.dominators.common(fns) or fns[-1]
                self._cancelled[at, number] = common
                self.constant.setdefault(common, "cancel")
                self.cancelling[common] = (*self.cancelling.get(common, ()), *fns)[:_MOST_ORIGINS]

    def _find_constants(self, fn: GradFn, number: int) -> tuple[GradFn, ...]:
        """Return the constants that make the gradient of a function's output nothing, if only constants do."""
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
        # Each function ran after the functions that sent it a gradient.
        for fn, (came, went, *_) in self._passed.items():
            known = [size for size in came if size is not None]
            if any(map(is_bad, known)):
                origins[fn] = self._origins_above(fn, is_bad) or self._find_hooked(fn, is_bad)
            elif known and any(map(is_bad, went)):
                origins[fn] = (fn,)
            elif not known and is_bad is _is_missing:
                # A function that receives nothing may run anyway, and passes nothing on.
                origins[fn] = self._origins_above(fn, is_bad)

    def _find_hooked(self, fn: GradFn, is_bad: _IsBad) -> tuple[GradFn, ...]:
        # Gradients of several senders may cancel.
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


def measure_gradients(live: LiveGraph) -> Gradients:
    """Run a backward that changes nothing, and measure each gradient."""
    passed: dict[GradFn, _Passed] = {}
    # Functions that may be constant, and those that they send a gradient to, need exact sizes.
    exact = {fn for fn in live.grad_fns if type(fn).__name__ in magnitudes.MAY_BE_CONSTANT}
    exact |= {fn.next_functions[0][0] for fn in exact if fn.next_functions}

    def measure(fn: GradFn, went: Sequence[torch.Tensor | None], came: Sequence[torch.Tensor | None]) -> None:
        estimate = partial(measure_size, is_exact=False)
        sizes = _Passed(tuple(map(estimate, came)), tuple(map(estimate, went)))
        if fn in exact or _may_cancel(sizes, went):
            sizes = _Passed(tuple(map(measure_size, came)), tuple(map(measure_size, went)))
        if any(map(_is_nonfinite, sizes.went)) and not any(map(_is_nonfinite, sizes.came)):
            sizes = sizes._replace(spoilt=_find_spoilt(came, went), rows=_find_nonfinite_rows(went))
        passed[fn] = sizes

    def register() -> list[RemovableHandle]:
        return [fn.register_hook(partial(measure, fn)) for fn in live.grad_fns if type(fn).__name__ != ACCUMULATOR]

    arrived = {id(leaf): measure_size(gradient) for leaf, gradient in run_backward(live, register)}
    return Gradients(live, passed, arrived)


def _may_cancel(sizes: _Passed, went: Sequence[torch.Tensor | None]) -> bool:
    """Return whether the largest entry that is passed on may be nothing beside the largest received, by the norms."""
    nothing = 2 * _NOTHING * max((size.norm for size in sizes.came if size is not None), default=0.0)
    pairs = zip(sizes.went, (0 if gradient is None else gradient.numel() for gradient in went), strict=True)
    return nothing > 0 and any(size and count and size.norm <= nothing * math.sqrt(count) for size, count in pairs)


def _find_spoilt(came: Sequence[torch.Tensor | None], went: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """Return a mask of zeros that become NaN or infinite, or ``None`` if other entries do so too."""
    given = next(_select_strided(came), None) if len(came) == 1 else None
    if given is None:
        return None
    found: torch.Tensor | None = None
    for mask in (~torch.isfinite(gradient) for gradient in _select_strided(went)):
        if mask.any():
            if mask.shape != given.shape or given[mask].any():
                return None
            found = mask if found is None else found | mask
    return found


def _select_strided(gradients: Iterable[torch.Tensor | None]) -> Iterator[torch.Tensor]:
    return (each.detach() for each in gradients if each is not None and each.layout is torch.strided)


def _find_nonfinite_rows(went: Sequence[torch.Tensor | None]) -> tuple[tuple[int, ...], int]:
    """Return the rows of a gradient with NaN or infinity and the number of rows, unless all have."""
    for gradient in filter(torch.Tensor.dim, _select_strided(went)):
        is_finite = torch.isfinite(gradient).reshape(gradient.shape[0], math.prod(gradient.shape[1:])).all(1)
        rows = tuple((~is_finite).nonzero().flatten().tolist())
        if rows:
            return (rows[:_MOST_ROWS], gradient.shape[0]) if len(rows) < gradient.shape[0] else ((), 0)
    return (), 0


def _masks_out(fn: GradFn, slot: int, spoilt: torch.Tensor) -> bool:
    """Return whether a mask selects none of these entries of one input of a function."""
    name, selects_first = _MASKS.get(type(fn).__name__, ("", False))
    mask = read_saved_tensor(fn, name) if name else None
    if mask is None or mask.dtype is not torch.bool:
        return False
    try:
        mask = mask.expand_as(spoilt)
    except RuntimeError:
        return False
    selected = mask if selects_first == (slot == 0) else ~mask
    return not bool((selected & spoilt).any())


def _is_zero(size: Size | None) -> bool:
    return size is None or (size.is_finite and not size.largest)


def _is_missing(size: Size | None) -> bool:
    return size is None


def _is_nonfinite(size: Size | None) -> bool:
    return size is not None and not size.is_finite
