"""Find the leaves whose gradient is zero or not finite, and the function at fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple

import torch
from msgspec.structs import replace

from gradir.frontends.pytorch.explaining import traps
from gradir.frontends.pytorch.explaining.gradients import Arrival, Gradients
from gradir.frontends.pytorch.explaining.losses import Losses
from gradir.frontends.pytorch.explaining.magnitudes import is_zero
from gradir.frontends.pytorch.explaining.naming import list_first, name_in_program, operation_name
from gradir.frontends.pytorch.explaining.zeros import LASTING_KINDS, SLOPES, Origin, Zeros
from gradir.frontends.pytorch.private import AFTER_FORWARD, FORWARD_CLASS, hooks_of, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.tensors import read_stored_values
from gradir.frontends.pytorch.reading.walk import GradFn, find_only_input
from gradir.frontends.pytorch.recording.modes import CompiledPart
from gradir.frontends.pytorch.recording.places import Place, Written, locate_function, locate_return
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value
from gradir.frontends.walks import follow
from gradir.ir.memo import group_by_key

BROKEN: Final = frozenset(
    {*("all_masked", "born", "exploding", "hook_nonfinite", "nonfinite", "nonfinite_input", "overflow"), "where_trap"}
)
"""The kinds of findings that are errors even if no trained parameter has them."""

# A line that runs this often is a loop, in which gradients may grow.
_MOST_REPEATED: Final = 4
# Functions that subtract a common part of all entries, by the start of their name.
_SUBTRACTING: Final = ("LogSoftmax", "Native", "SafeSoftmax", "ScaledDotProduct", "Softmax")
# The number of functions to search for one of them.
_MOST_ABOVE: Final = 20


# Operations whose result is infinite or NaN if any entry of an input is, of a division if one of the dividend is.
_SPREADING: Final = frozenset(
    ("abs", "add", "cat", "clone", "div", "mean", "mul", "neg", "rsub", "squeeze", "stack", "sub", "sum", "view")
)
# Kinds of which the values of the data may be the origin.
_UNKNOWN_ORIGIN: Final = frozenset({"born", "nonfinite", "nonfinite_input"})
# Functions that write a given number, such as the minus infinity of a mask, or none.
_FILLING: Final = frozenset(
    {*("empty", "empty_like", "fill_", "full", "full_like", "masked_fill", "masked_fill_", "new_empty", "new_full")}
    | {"tensor", "where"}
)


class Finding(NamedTuple):
    """A finding about leaves: the kind of a cause, its place, and whether it lasts."""

    kind: str
    op: str = ""
    place: Place | None = None
    lasts: bool = True
    detail: str = ""


def _finding_of_broken(kind: str, step: Step) -> Finding:
    is_half = any(meta.dtype == "float16" for meta in step.outputs)
    return Finding(
        kind, operation_name(step), step.place, detail="its result is too large for float16" if is_half else ""
    )


def _is_lost(loss: torch.Tensor) -> bool:
    values = read_stored_values(loss)
    # The outputs of a model, such as masked logits, may be infinite on purpose.
    return bool((values.isnan() if values.numel() > 1 else ~values.isfinite()).any())


class Judge:
    """Explains the gradients that arrive at the leaves of a graph."""

    def __init__(
        self, live: LiveGraph, gradients: Gradients, recorded: Losses, arrivals: Mapping[str, Arrival]
    ) -> None:
        self._live, self._gradients = live, gradients
        self._recorded, self._flow = recorded, recorded.flow
        leaves = recorded.subject.tensors
        # A Function takes its number just before its first operation does.
        inside = ((step.number - 1, step.inside) for step in reversed(self._flow.steps))
        self._functions = {number: within for number, within in inside if within is not None}
        self._spoils: dict[GradFn, Finding] = {}
        self._births = traps.NonfiniteOrigins(live)
        closed = {name for name in arrivals if is_zero(leaves[name])}
        starting = {recorded.values[name] for name in closed if arrivals[name].kind == "some"}
        lost = [name for name in closed if arrivals[name].kind == "zero" and arrivals[name].arose]
        waiting = {recorded.values[name]: [*map(self._origin, arrivals[name].arose)] for name in lost}
        fixed = (name for name, leaf in leaves.items() if not leaf.requires_grad and is_zero(leaf))
        frozen = frozenset(recorded.values[name] for name in fixed)
        self._zeros = Zeros(recorded.flowing, recorded.words.names, starting, waiting, frozen)
        self._outputs = [found.tensor for found in live.captured if found.role == "output"]
        self._is_lost = any(map(_is_lost, self._outputs))
        self._undefined = traps.find_first_undefined(live.grad_fns) if self._is_lost else None

    def explain_loss(self) -> Finding | None:
        """Return the cause of an infinite or NaN loss, if it is one."""
        if not self._is_lost:
            return None
        fn = self._undefined or self._births.find_first_nonfinite(next(iter(reversed(self._live.grad_fns))))
        if fn is not None:
            return self._make_finding("loss_undefined", fn, detail=traps.explain_undefined(fn))
        step = self._find_first_broken(self._find_terms())
        return Finding("loss_undefined") if step is None else _finding_of_broken("loss_undefined", step)

    def _find_terms(self) -> set[Value]:
        """Return the loss, and the values that make it infinite or NaN if they are so themselves."""
        waiting = [value for value in map(self._flow.find_value, self._outputs) if value is not None]
        found = {*waiting}
        while waiting:
            step = self._flow.step_of(waiting.pop())
            if step is not None and (name := operation_name(step).rstrip("_")) in _SPREADING:
                waiting += {read.value for read in step.inputs[: 1 if name == "div" else None]} - found
                found.update(waiting)
        return found

    def _find_first_broken(self, values: Iterable[Value | None]) -> Step | None:
        """Return the first step with a checked result that is infinite or NaN."""
        nonfinite, step = self._flow.finite.broken, None
        waiting = [value for value in values if value in nonfinite]
        while waiting:
            step = self._flow.step_of(max(waiting))
            waiting = [] if step is None else [read.value for read in step.inputs if read.value in nonfinite]
        return step

    def verdict(self, arrival: Arrival, leaf: torch.Tensor) -> tuple[str, Sequence[Finding]]:
        """Return whether ``none``, ``zero``, ``nonfinite`` or ``some`` arrives at a leaf, with the causes."""
        arose = arrival.arose or (None,)
        if arrival.kind == "zero":
            # If no function made it zero, gradients from several functions cancel.
            cancels = not arrival.arose and not hooks_of(leaf)
            return "zero", [Finding("cancel")] if cancels else [*self._explain_zero(arrival, leaf)]
        if arrival.kind == "rounding":
            return "zero", [*map(self._explain_rounding, arose)]
        if arrival.kind == "nonfinite":
            return "nonfinite", [self._explain_nonfinite(fn, leaf) for fn in arose]
        if arrival.kind == "none":
            kinds = {fn: "no_derivative" if fn and not hasattr(fn, FORWARD_CLASS) else "withheld" for fn in arose}
            return "none", [self._move_to_backward(fn, self._make_finding(kind, fn)) for fn, kind in kinds.items()]
        return arrival.kind, ()

    def _explain_zero(self, arrival: Arrival, leaf: torch.Tensor) -> Iterator[Finding]:
        arose = dict.fromkeys(map(self._find_constant_input, arrival.arose)) or (None,)
        hooks = {fn: self._find_hook(fn, leaf) for fn in arose}
        if self._undefined is not None and not any(hooks.values()):
            yield self._make_finding("undefined", self._undefined, detail=traps.explain_undefined(self._undefined))
            return
        kinds = {
            fn: "hooked" if hook else "lost" if self._is_lost else "zero" if fn is None else self._kind(fn)
            for fn, hook in hooks.items()
        }
        factors = [fn for fn, kind in kinds.items() if kind in {"closed", "factor"}]
        resets = {fn: reset for fn in factors if (reset := self._find_reset(fn)) is not None}
        lasting = LASTING_KINDS | {"hooked", "underflow", "vanished"}
        lasts = self._is_lost or lasting.issuperset(kinds.values())
        for fn, hook in hooks.items():
            if resets and fn in factors:
                # A state that starts with zeros is not a fault.
                continue
            found = self._make_finding(kinds[fn], fn, lasts=lasts, detail=self._describe_zero(kinds[fn], fn))
            found = self._move_to_backward(fn, found) if kinds[fn] in {"given_zero", "zero"} else found
            yield found if hook is None else found._replace(op=hook.name, place=hook.place)
        for fn, reset in resets.items():
            found = self._make_finding(kinds[fn], fn, lasts=lasts)
            used = self._recorded.words.line(found.place)
            yield found._replace(place=reset.place, detail=f"{operation_name(reset)} makes the zeros here, used {used}")

    def _find_constant_input(self, fn: GradFn) -> GradFn:
        """Return the normalization of one entry that gives a bounded function its input, or else the function."""
        if self._zeros.kind(self._origin(fn)) not in {"dead", "out_of_range"}:
            return fn
        below = islice(follow(fn, find_only_input), 1, _MOST_ABOVE)
        return next((each for each in below if self._zeros.kind(self._origin(each)) == "one_entry"), fn)

    def _find_reset(self, fn: GradFn | None) -> Step | None:
        """Return the step that made the zeros that an operation multiplies by, if its line ran before that step."""
        step = None if fn is None else self._step(fn)
        if step is None:
            return None
        first = self._first_runs[step.func, step.place]
        return next((self._flow.steps[at] for at in self._zeros.makers(step) if at > first), None)

    @cached_property
    def _first_runs(self) -> dict[tuple[object, Place | None], int]:
        steps = reversed([*enumerate(self._flow.steps)])
        return {(step.func, step.place): index for index, step in steps}

    def _explain_rounding(self, fn: GradFn | None) -> Finding:
        """Return a finding at the line that subtracts the part that a function adds to all entries."""
        dominators = () if fn is None else islice(self._gradients.dominators.of(fn), _MOST_ABOVE)
        later = next((each for each in dominators if type(each).__name__.startswith(_SUBTRACTING)), None)
        step = None if later is None else self._step(later)
        found = self._make_finding("rounding", fn)
        return found if step is None else found._replace(place=step.place, detail=f"by {operation_name(step)}")

    def _describe_zero(self, kind: str, fn: GradFn | None) -> str:
        if kind == "vanished" and fn is not None:
            node = self._origin(fn)[0]
            return f"in {node.op} it falls below the smallest number of {node.outputs[0].dtype}, and becomes 0"
        if kind != "cancel" or fn is None:
            return ""
        steps = map(self._step, self._gradients.cancelling.get(fn, ()))
        shown = list_first(self._recorded.words.describe_step(step) for step in steps if step is not None)
        return f"the paths through {shown} cancel" if shown else ""

    def _explain_nonfinite(self, fn: GradFn | None, leaf: torch.Tensor) -> Finding:
        hook = self._find_hook(fn, leaf)
        if fn is None or hook is not None:
            return Finding("nonfinite") if hook is None else Finding("hook_nonfinite", hook.name, hook.place)
        if fn not in self._spoils:
            self._spoils[fn] = self._find_spoiler(fn)
        return self._spoils[fn]

    def _find_broken_data(self, fn: GradFn) -> Step | None:
        """Return the first step that made finite data of a function infinite or NaN, unless it makes a mask."""
        step = self._step(fn)
        made = None if step is None else self._find_first_broken(read.value for read in step.inputs)
        if made is None or operation_name(made) in _FILLING:
            return None
        tensors = [self._flow.tensor_of(read.value) for read in made.inputs if read.value.maker == FROM_OUTSIDE]
        is_finite = all(each is not None and bool(read_stored_values(each).isfinite().all()) for each in tensors)
        return made if is_finite else None

    def _find_spoiler(self, fn: GradFn) -> Finding:
        """Return a finding about the first function that returned NaN or infinity."""
        growth = self._explain_growth(fn)
        if growth is not None:
            kind, detail = growth
            return self._make_finding(kind, fn, detail=detail)
        first = self._births.find_first_nonfinite(fn)
        at, rows = fn, ""
        if first is None or not self._is_lost:
            mask, rows = self._gradients.find_mask(fn), self._describe_rows(fn)
            kind, detail = traps.explain_nonfinite(self._live, fn, mask, first, self._describe_line)
        else:
            at = first
            kind, detail = traps.explain_nonfinite(self._live, at, None, None, self._describe_line)
            kind, detail = self._births.explain(at) if kind == "nonfinite" else (kind, detail)
        made = self._find_broken_data(at) if kind in _UNKNOWN_ORIGIN and not detail else None
        if made is not None:
            return _finding_of_broken("born", made)
        return self._make_finding(kind, at, detail="; ".join(filter(None, [detail, rows])))

    def _describe_rows(self, fn: GradFn) -> str:
        """Return a text with the samples that a function makes NaN or infinite, unless all."""
        rows, count = self._gradients.flow_through(fn).rows
        if not rows or count not in self._batches:
            return ""
        return f"in sample{'s' if len(rows) > 1 else ''} {list_first(map(str, rows))} of {count}"

    @cached_property
    def _batches(self) -> set[object]:
        """The first dimensions of inputs and of tensors that steps without inputs make."""
        inputs = [outside.meta for outside in self._flow.outside if outside.role == "input"]
        inputs += [meta for step in self._flow.steps if not step.inputs for meta in step.outputs]
        return {meta.shape[0] for meta in inputs if meta.shape and len(meta.shape) > 1}

    def _explain_growth(self, fn: GradFn) -> tuple[str, str] | None:
        """Return the kind of cause and its details, if a gradient only became too large."""
        node, step = self._origin(fn)
        if traps.explain_undefined(fn) not in {"", traps.ITS_RESULT}:
            return None
        repeated = [] if step is None else self._repeated.get((step.func, step.place), [])
        if len(repeated) >= _MOST_REPEATED and traps.grows(repeated, self._gradients):
            return "exploding", f"it runs {len(repeated)} times in this line"
        return ("overflow", "") if traps.overflows(fn, node) else None

    @cached_property
    def _repeated(self) -> dict[tuple[object, Place | None], list[GradFn]]:
        steps = ((fn, self._step(fn)) for fn in self._live.grad_fns)
        return group_by_key(((step.func, step.place), fn) for fn, step in steps if step is not None)

    def _move_to_backward(self, fn: GradFn | None, found: Finding) -> Finding:
        """Return a finding about a custom Function with the line of its ``backward``, and any other unchanged."""
        function = getattr(fn, FORWARD_CLASS, None)
        place = locate_return(getattr(function, "backward", None))
        if function is None or place is None:
            return found
        at = self._recorded.words.line(found.place)
        return found._replace(op=function.__name__, place=place, detail=f"it is applied {at}" if at else "")

    def _find_hook(self, fn: GradFn | None, leaf: torch.Tensor) -> Written | None:
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
        if hasattr(fn, FORWARD_CLASS) and not _has_tensors(fn):
            return "given_zero"
        index = self._flow.maker_of(fn)
        is_compiled = index != FROM_OUTSIDE and isinstance(self._flow.steps[index].func, CompiledPart)
        # Torch gives compiled code zeros for what it computes and nothing takes.
        is_left_out = is_compiled and not self._recorded.flowing.wanted.issuperset(self._flow.values_of_step(index))
        kind = "opaque" if is_left_out else self._zeros.kind(self._origin(fn))
        return "saturated" if kind == "zero" and traps.is_saturated(fn) else kind

    def _make_finding(self, kind: str, fn: GradFn | None, *, lasts: bool = True, detail: str = "") -> Finding:
        if fn is None:
            return Finding(kind, lasts=lasts)
        node, step = self._origin(fn)
        function = self._functions.get(sequence_number(fn)) if step is None else None
        if function is not None:
            return Finding(kind, function.called, function.place, lasts, detail)
        # torch gives an operation without a derivative a function that raises an error.
        is_missing = step is not None and node.op.endswith("not_implemented")
        op = operation_name(step) if step is not None and is_missing else name_in_program(node.op, step)
        op = SLOPES.get(op, op) if kind == "flat_slope" else op
        return Finding(kind, op, None if step is None else step.place, lasts, detail)

    def _origin(self, fn: GradFn) -> Origin:
        node, function = self._live.graph.nodes[self._live.grad_fns[fn]], getattr(fn, FORWARD_CLASS, None)
        # A custom Function may have the name of a function of torch, such as Round.
        return node if function is None else replace(node, op=function.__name__), self._step(fn)

    def _step(self, fn: GradFn) -> Step | None:
        index = self._flow.maker_of(fn)
        return None if index == FROM_OUTSIDE else self._flow.steps[index]

    def _describe_line(self, fn: GradFn) -> str:
        step = self._step(fn)
        return "" if step is None else self._recorded.words.line(step.place)


def _has_tensors(fn: GradFn) -> bool:
    try:
        return bool(fn.saved_tensors) or any(isinstance(value, torch.Tensor) for value in vars(fn).values())
    except RuntimeError:
        # torch raises an error for freed tensors, so there were some.
        return True
