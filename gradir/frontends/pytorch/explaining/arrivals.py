"""What a backward says of leaves: to which a gradient that is zero or not finite comes, where it became so, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple

import torch
from msgspec.structs import replace

from gradir.frontends.pytorch.explaining import traps
from gradir.frontends.pytorch.explaining.gradients import Arrival, Gradients
from gradir.frontends.pytorch.explaining.losses import Losses
from gradir.frontends.pytorch.explaining.magnitudes import is_zero
from gradir.frontends.pytorch.explaining.naming import few, name_of_step, user_name
from gradir.frontends.pytorch.explaining.zeros import SLOPES, STAYING, Origin, Zeros
from gradir.frontends.pytorch.private import AFTER_FORWARD, FORWARD_CLASS, hooks_of, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.tensors import numbers_in
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.modes import CompiledPart
from gradir.frontends.pytorch.recording.places import Place, Written, locate_function, locate_return
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step
from gradir.frontends.walks import grouped

BROKEN: Final = frozenset(
    {*("all_masked", "born", "exploding", "hook_nonfinite", "nonfinite", "nonfinite_input", "overflow"), "where_trap"}
)
"""The kinds of findings that are alarms whatever learns."""

# From this many runs of one line on it is a loop, in which gradients may grow.
_MOST_REPEATED: Final = 4
# Functions that subtract what all entries have in common, by the start of their name.
_SUBTRACTING: Final = ("LogSoftmax", "Native", "SafeSoftmax", "ScaledDotProduct", "Softmax")
# How far to look for one of them.
_MOST_ABOVE: Final = 20


class Finding(NamedTuple):
    """A finding about leaves: the kind of a cause, its place, and whether it lasts."""

    kind: str
    op: str = ""
    place: Place | None = None
    lasts: bool = True
    detail: str = ""


class Judge:
    """Knows what is to be said of the leaves of a graph of which it is known what arrives there."""

    def __init__(
        self, live: LiveGraph, gradients: Gradients, recorded: Losses, arrivals: Mapping[str, Arrival]
    ) -> None:
        self._live = live
        self._gradients = gradients
        self._recorded = recorded
        self._flow = recorded.flow
        leaves = recorded.subject.tensors
        # The first operation in a Function runs when that has just taken its number.
        inside = ((step.number - 1, step.inside) for step in reversed(self._flow.steps))
        self._functions = {number: within for number, within in inside if within is not None}
        self._spoils: dict[GradFn, tuple[GradFn, str, str]] = {}
        self._births = traps.Births(live)
        closed = {name for name in arrivals if is_zero(leaves[name])}
        starting = {recorded.values[name] for name in closed if arrivals[name].kind == "some"}
        lost = [name for name in closed if arrivals[name].kind == "zero" and arrivals[name].arose]
        waiting = {recorded.values[name]: [*map(self._origin, arrivals[name].arose)] for name in lost}
        fixed = (name for name, leaf in leaves.items() if not leaf.requires_grad and is_zero(leaf))
        frozen = frozenset(recorded.values[name] for name in fixed)
        self._zeros = Zeros(recorded.flowing, recorded.words.names, starting, waiting, frozen)
        self._outputs = [found.tensor for found in live.captured if found.role == "output"]
        # Where the loss is no number, nothing moves.
        self._is_lost = not all(bool(torch.isfinite(numbers_in(tensor)).all()) for tensor in self._outputs)
        self._undefined = traps.first_undefined(live.grad_fns) if self._is_lost else None

    def of_loss(self) -> Finding | None:
        """Return why the loss is infinite or NaN, if it is."""
        if not self._is_lost:
            return None
        fn = self._undefined or self._births.before(next(iter(reversed(self._live.grad_fns))))
        if fn is not None:
            return self._found("loss_undefined", fn, detail=traps.why_undefined(fn))
        # The first step behind the loss that gave NaN or infinity, as far as results were looked at.
        broken, step = self._flow.broken, None
        values = [value for value in map(self._flow.noted, self._outputs) if value in broken]
        while values:
            step = self._flow.step_of(max(values))
            values = [] if step is None else [read.value for read in step.inputs if read.value in broken]
        if step is None:
            return Finding("loss_undefined")
        is_half = any(meta.dtype == "float16" for meta in step.outputs)
        detail = "its result is too large for float16" if is_half else ""
        return Finding("loss_undefined", name_of_step(step), step.place, detail=detail)

    def verdict(self, arrival: Arrival, leaf: torch.Tensor) -> tuple[str, Sequence[Finding]]:
        """Return whether ``none``, ``zero``, ``nonfinite`` or ``some`` comes to a leaf, and why."""
        arose = arrival.arose or (None,)
        if arrival.kind == "zero":
            # Where no function made it zero, what came from several sides cancels.
            cancels = not arrival.arose and not hooks_of(leaf)
            return "zero", [Finding("cancel")] if cancels else [*self._of_zero(arrival, leaf)]
        if arrival.kind == "rounding":
            return "zero", [*map(self._of_rounding, arose)]
        if arrival.kind == "nonfinite":
            return "nonfinite", [self._of_nonfinite(fn, leaf) for fn in arose]
        if arrival.kind == "none":
            kinds = {fn: "no_derivative" if fn and not hasattr(fn, FORWARD_CLASS) else "withheld" for fn in arose}
            return "none", [self._returned(fn, self._found(kind, fn)) for fn, kind in kinds.items()]
        return arrival.kind, ()

    def _of_zero(self, arrival: Arrival, leaf: torch.Tensor) -> Iterator[Finding]:
        hooks = {fn: self._hook(fn, leaf) for fn in arrival.arose or (None,)}
        if self._undefined is not None and not any(hooks.values()):
            yield self._found("undefined", self._undefined, detail=traps.why_undefined(self._undefined))
            return
        kinds = {
            fn: "hooked" if hook else "lost" if self._is_lost else "zero" if fn is None else self._kind(fn)
            for fn, hook in hooks.items()
        }
        factors = [fn for fn, kind in kinds.items() if kind in {"closed", "factor"}]
        resets = {fn: reset for fn in factors if (reset := self._reset(fn)) is not None}
        lasts = self._is_lost or all(kind in {*STAYING, "hooked", "underflow", "vanished"} for kind in kinds.values())
        for fn, hook in hooks.items():
            if resets and fn in factors:
                # The zeros in which a state begins are as they should be.
                continue
            found = self._found(kinds[fn], fn, lasts=lasts, detail=self._words_of_zero(kinds[fn], fn))
            found = self._returned(fn, found) if kinds[fn] in {"given_zero", "zero"} else found
            yield found if hook is None else found._replace(op=hook.name, place=hook.place)
        for fn, reset in resets.items():
            found = self._found(kinds[fn], fn, lasts=lasts)
            used = self._recorded.words.line(found.place)
            yield found._replace(place=reset.place, detail=f"{name_of_step(reset)} makes the zeros here, used {used}")

    def _reset(self, fn: GradFn | None) -> Step | None:
        """Return what made the zeros that an operation multiplies by, if that has run at its line before."""
        step = None if fn is None else self._step(fn)
        if step is None:
            return None
        first = self._first_runs[step.func, step.place]
        return next((self._flow.steps[at] for at in self._zeros.makers(step) if at > first), None)

    @cached_property
    def _first_runs(self) -> dict[tuple[object, Place | None], int]:
        found: dict[tuple[object, Place | None], int] = {}
        for index, step in enumerate(self._flow.steps):
            found.setdefault((step.func, step.place), index)
        return found

    def _of_rounding(self, fn: GradFn | None) -> Finding:
        """Return a finding at the line that subtracts what a function adds to all entries."""
        above = () if fn is None else islice(self._gradients.meetings.above(fn), _MOST_ABOVE)
        later = next((each for each in above if type(each).__name__.startswith(_SUBTRACTING)), None)
        step = None if later is None else self._step(later)
        found = self._found("rounding", fn)
        return found if step is None else found._replace(place=step.place, detail=f"by {name_of_step(step)}")

    def _words_of_zero(self, kind: str, fn: GradFn | None) -> str:
        if kind == "vanished" and fn is not None:
            node = self._origin(fn)[0]
            return f"in {node.op} it falls below the smallest number of {node.outputs[0].dtype}, and becomes 0"
        if kind != "cancel" or fn is None:
            return ""
        steps = map(self._step, self._gradients.cancelling.get(fn, ()))
        shown = few(self._recorded.words.called_at(step) for step in steps if step is not None)
        return f"the paths through {shown} cancel" if shown else ""

    def _of_nonfinite(self, fn: GradFn | None, leaf: torch.Tensor) -> Finding:
        hook = self._hook(fn, leaf)
        if fn is None or hook is not None:
            return Finding("nonfinite") if hook is None else Finding("hook_nonfinite", hook.name, hook.place)
        if fn not in self._spoils:
            self._spoils[fn] = self._spoil(fn)
        at, kind, detail = self._spoils[fn]
        return self._found(kind, at, detail=detail)

    def _spoil(self, fn: GradFn) -> tuple[GradFn, str, str]:
        """Return the function that first gave NaN or infinity, the kind of cause, and its details."""
        grown = self._grown(fn)
        if grown is not None:
            return fn, *grown
        first = self._births.before(fn)
        if first is None or not self._is_lost:
            kind, detail = traps.why_nonfinite(self._live, fn, self._gradients.masking(fn), first, self._words_of_line)
            return fn, kind, "; ".join(filter(None, [detail, self._rows(fn)]))
        kind, detail = traps.why_nonfinite(self._live, first, None, None, self._words_of_line)
        return first, *(self._births.explain(first) if kind == "nonfinite" else (kind, detail))

    def _rows(self, fn: GradFn) -> str:
        """Return the samples of a batch that a function spoils, in words, unless it spoils all."""
        rows, count = self._gradients.passed(fn).rows
        if not rows or count not in self._batches:
            return ""
        return f"in sample{'s' if len(rows) > 1 else ''} {few(map(str, rows))} of {count}"

    @cached_property
    def _batches(self) -> set[object]:
        """The sizes of the first dimensions of what is no parameter and not computed."""
        inputs = [outside.meta for outside in self._flow.outside if outside.role == "input"]
        inputs += [meta for step in self._flow.steps if not step.inputs for meta in step.outputs]
        return {meta.shape[0] for meta in inputs if meta.shape and len(meta.shape) > 1}

    def _grown(self, fn: GradFn) -> tuple[str, str] | None:
        """Return the kind of a gradient that only became too large, and how often the line ran in which it grew."""
        node, step = self._origin(fn)
        if traps.why_undefined(fn) not in {"", traps.ITS_RESULT}:
            return None
        repeated = [] if step is None else self._repeated.get((step.func, step.place), [])
        if len(repeated) >= _MOST_REPEATED and traps.grows(repeated, self._gradients):
            return "exploding", f"it runs {len(repeated)} times in this line"
        return ("overflow", "") if traps.overflows(fn, node) else None

    @cached_property
    def _repeated(self) -> dict[tuple[object, Place | None], list[GradFn]]:
        steps = ((fn, self._step(fn)) for fn in self._live.grad_fns)
        return grouped(((step.func, step.place), fn) for fn, step in steps if step is not None)

    def _returned(self, fn: GradFn | None, found: Finding) -> Finding:
        """Return a finding about the backward of a custom Function with its line, and any other unchanged."""
        function = getattr(fn, FORWARD_CLASS, None)
        place = locate_return(getattr(function, "backward", None))
        if function is None or place is None:
            return found
        at = self._recorded.words.line(found.place)
        return found._replace(op=function.__name__, place=place, detail=f"it is applied {at}" if at else "")

    def _hook(self, fn: GradFn | None, leaf: torch.Tensor) -> Written | None:
        """Return the hook at a function, or on a leaf, that changed a gradient."""
        if fn is None:
            return next(map(locate_function, (hooks_of(leaf) or {}).values()), None)
        node, step = self._origin(fn)
        unknown = Written(node.op, None if step is None else step.place)
        if type(fn).__name__ == AFTER_FORWARD:
            return next(map(locate_function, self._recorded.subject.hooks.get(node.scope, ())), unknown)
        if fn not in self._gradients.hooked:
            return None
        made = self._flow.maker_of(fn)
        return next((hook for value, hook in self._flow.hooks if value.maker == made != FROM_OUTSIDE), unknown)

    def _kind(self, fn: GradFn) -> str:
        if fn in self._gradients.constant:
            return self._gradients.constant[fn]
        if traps.underflows(fn, self._origin(fn)[0], self._gradients):
            return "underflow"
        if traps.vanishes(fn, self._origin(fn)[0], self._gradients):
            return "vanished"
        if hasattr(fn, FORWARD_CLASS) and not _keeps_tensors(fn):
            return "given_zero"
        index = self._flow.maker_of(fn)
        is_compiled = index != FROM_OUTSIDE and isinstance(self._flow.steps[index].func, CompiledPart)
        # Torch gives compiled code zeros for what it computes and nothing takes.
        is_left_out = is_compiled and not self._recorded.flowing.wanted.issuperset(self._flow.made_by(index))
        return "opaque" if is_left_out else self._zeros.kind(self._origin(fn))

    def _found(self, kind: str, fn: GradFn | None, *, lasts: bool = True, detail: str = "") -> Finding:
        if fn is None:
            return Finding(kind, lasts=lasts)
        node, step = self._origin(fn)
        function = self._functions.get(sequence_number(fn)) if step is None else None
        if function is not None:
            return Finding(kind, function.called, function.place, lasts, detail)
        # torch gives what has no derivative a function that says so.
        is_missing = step is not None and node.op.endswith("not_implemented")
        op = name_of_step(step) if step is not None and is_missing else user_name(node.op, step)
        op = SLOPES.get(op, op) if kind == "flat_slope" else op
        return Finding(kind, op, None if step is None else step.place, lasts, detail)

    def _origin(self, fn: GradFn) -> Origin:
        node, function = self._live.graph.nodes[self._live.grad_fns[fn]], getattr(fn, FORWARD_CLASS, None)
        # A Function of the program may be called as one of torch, such as Round.
        return node if function is None else replace(node, op=function.__name__), self._step(fn)

    def _step(self, fn: GradFn) -> Step | None:
        index = self._flow.maker_of(fn)
        return None if index == FROM_OUTSIDE else self._flow.steps[index]

    def _words_of_line(self, fn: GradFn) -> str:
        step = self._step(fn)
        return "" if step is None else self._recorded.words.line(step.place)


def _keeps_tensors(fn: GradFn) -> bool:
    try:
        return bool(fn.saved_tensors) or any(isinstance(value, torch.Tensor) for value in vars(fn).values())
    except RuntimeError:
        # torch raises for tensors that a backward has freed, so there were some.
        return True
