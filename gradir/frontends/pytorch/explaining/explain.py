"""From a recorded forward, and a backward if asked for, to an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import torch

from gradir.errors import CaptureError
from gradir.explanations.model import Cause, Explanation, Level, Term
from gradir.frontends.pytorch.explaining.cuts import DERIVING, EXPLICIT, Flowing, Stop
from gradir.frontends.pytorch.explaining.gradients import Arrival, gradients_of, is_zero
from gradir.frontends.pytorch.explaining.places import lines_of
from gradir.frontends.pytorch.private import ACCUMULATOR, PACKED, hooks_of, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.recording.compiled import CompiledPart
from gradir.frontends.pytorch.recording.flow import FROM_OUTSIDE, Flow, Place, Step, Value
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.spec import own_error

__all__ = ["Subject", "explain", "explain_failure"]

_LEVELS: Final[Mapping[str, Level]] = {"opaque": "info", "rounding": "note", "starting": "note"}
_SMALL: Final = 20_000
"""The nodes of a graph through which a backward is run to explain it, if nobody says otherwise."""


class Subject(NamedTuple):
    """What is to be explained.

    ``tensors`` are the parameters and tensors by name, ``owned`` the names that a module gives, ``captured`` what
    backward would start from, ``live`` their graph if they have one, ``given`` the tensors of the optimizer by id(), if
    there is one. ``parametrized`` are names that a module computes of its parameters, ``aside`` the tensors that
    modules keep otherwise than as parameters and buffers, ``untied`` pairs of parameters that were one tensor.
    """

    flow: Flow
    tensors: Mapping[str, torch.Tensor]
    owned: frozenset[str]
    captured: Sequence[torch.Tensor]
    live: LiveGraph | None
    given: frozenset[int] | None
    parametrized: frozenset[str]
    aside: Mapping[str, torch.Tensor]
    untied: Sequence[tuple[str, str]]


def explain_failure(subject: Subject, error: BaseException) -> Explanation:
    """Explain why an operation of the recorded forward raised an error."""
    return _Search(subject).explanation_of_failure(own_error(error))


def explain(subject: Subject, *, values: bool | None) -> Explanation:
    """Explain a loss; with ``values``, also by a backward that adds nothing to ``.grad``."""
    return _Search(subject).explanation(values=values)


class _Search:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._flow = subject.flow
        ends = map(subject.flow.value_of, subject.captured)
        # What was made of the recording's tensors outside it has a past that is not known here.
        self._is_whole = all(value.maker != FROM_OUTSIDE for value in ends)
        self._flowing = Flowing(subject.flow, subject.captured)
        self._lines = ShownLines()
        self._leaves = set() if subject.live is None else {id(leaf) for leaf in subject.live.leaves.values()}
        self._hidden = self._hidden_names()
        self._values = {
            name: self._flowing.root(subject.flow.value_of(tensor)) for name, tensor in subject.tensors.items()
        }
        self._names: dict[Value, list[str]] = {}
        for name, value in self._values.items():
            self._names.setdefault(value, []).append(name)
        self._stopped = self._all_leaves(stop.leaves for stop in self._flowing.stops)
        self._compiled = set(self._flowing.members(self._flowing.compiled))
        self._taken = {read.value for step in subject.flow.steps for read in step.inputs}
        self._left = self._all_leaves(leaving.leaves for leaving in self._flowing.exits)
        self._statuses = {name: self._status(name, tensor) for name, tensor in subject.tensors.items()}
        self._causes: list[Cause] = []

    def explanation(self, *, values: bool | None) -> Explanation:
        live = self._subject.live
        if values is None and live is not None:
            values = len(live.graph.nodes) <= _SMALL and not self._is_used_up(live)
        arrivals: Mapping[str, Arrival] = {}
        failure = ""
        if values and live is not None:
            # What a backward of gradir's would change for the program's own is worth more than the values.
            with suppress(CaptureError):
                try:
                    arrivals = self._arrivals(live)
                except RuntimeError as error:
                    failure = own_error(error)
        self._tell_stops()
        self._tell_exits()
        self._tell_exchanges()
        self._tell_what_is_no_leaf()
        if failure and live is not None:
            self._tell_what_was_written(live, failure)
        elif arrivals and live is not None:
            self._tell_values(live, arrivals)
        elif self._is_whole:
            self._statuses.update(dict.fromkeys(self._joined(), "unused"))
        self._tell_unused()
        self._tell_frozen()
        self._tell_optimizer()
        self._tell_unregistered()
        for names in self._subject.untied:
            self._tell("untied", "error", "", names, None)
        return Explanation(self._statuses, tuple(self._causes), tuple(self._terms()))

    def _terms(self) -> Iterator[Term]:
        for value in self._flowing.terms:
            step = None if value.maker == FROM_OUTSIDE else self._flow.steps[value.maker]
            behind = self._flowing.leaves_behind(value)
            names = tuple(
                name
                for name in self._names_of(behind)
                if self._statuses[name] == "reached" or self._values[name] not in self._compiled
            )
            variable = self._flow.variables.get(value, "")
            yield Term(
                names,
                variable,
                "" if step is None else _called(step),
                lines_of(step.place, self._lines)[0] if step else None,
            )

    def explanation_of_failure(self, error: str) -> Explanation:
        self._statuses = dict.fromkeys(self._statuses, "error")
        failed = self._flow.failure
        if failed is not None:
            makers = [self._flow.steps[read.value.maker] for read in failed.reads if read.value.maker != FROM_OUTSIDE]
            inferred = [step for step in makers if step.mode == "inference_mode"]
            for step in inferred:
                self._tell("inference_mode", "error", _called(step), [], step.place, detail=error)
            if not inferred:
                self._tell("raised", "error", failed.called, [], failed.place, detail=error)
        else:
            self._tell("backward", "error", "", [], None, detail=error)
        return Explanation(self._statuses, tuple(self._causes))

    def _all_leaves(self, sets: Iterable[int]) -> set[Value]:
        return set(self._flowing.members(reduce(or_, sets, 0)))

    # What each parameter gets.

    def _hidden_names(self) -> frozenset[str]:
        live = self._subject.live
        cuts = () if live is None else live.graph.cuts
        return frozenset(name for cut in cuts if cut.kind == "hidden" for name in cut.names)

    def _status(self, name: str, tensor: torch.Tensor) -> str:
        value = self._values[name]
        if name in self._hidden:
            return "hidden"
        if not tensor.requires_grad and tensor.is_leaf:
            return "frozen"
        if not tensor.is_leaf and not (tensor.requires_grad and tensor.retains_grad):
            return "nonleaf"
        if self._gets_gradient(tensor):
            return "reached"
        if value in self._stopped or value in self._left:
            return "cut"
        return "unused" if self._is_whole and not self._may_be_inside(value) else "unreached"

    def _may_be_inside(self, value: Value) -> bool:
        """Whether a compiled part may compute what was captured of a leaf; it may have leaves that nothing shows."""
        return value in self._compiled or (self._flowing.has_compiled and value not in self._taken)

    def _gets_gradient(self, tensor: torch.Tensor) -> bool:
        """Whether autograd has a tensor in the graph; one that keeps its gradient on the way is there by itself."""
        if not tensor.is_leaf or id(tensor) in self._leaves:
            return True
        return any(tensor is captured for captured in self._subject.captured)

    # Why.

    def _tell_stops(self) -> None:
        groups: dict[tuple[str, Place | None], tuple[Stop, int]] = {}
        for stop in self._flowing.stops:
            first, leaves = groups.get((stop.kind, stop.step.place), (stop, 0))
            groups[stop.kind, stop.step.place] = first, leaves | stop.leaves
        for (kind, place), (stop, leaves) in groups.items():
            names = list(self._names_of(self._flowing.members(leaves)))
            level = self._level_of(names)
            if level == "error" or kind in EXPLICIT:
                self._tell(kind, level, _called(stop.step), names, place)

    def _tell_exits(self) -> None:
        told: set[str] = set()
        for leaving in self._flowing.exits:
            names = [
                name
                for name in self._names_of(self._flowing.members(leaving.leaves))
                if self._statuses[name] == "cut" and self._values[name] not in self._stopped and name not in told
            ]
            if names:
                told.update(names)
                self._tell("exit", self._level_of(names), leaving.exit.called.strip("_"), names, leaving.exit.place)

    def _tell_exchanges(self) -> None:
        for exchange in self._flow.exchanges:
            names = list(self._names_of(self._flowing.root(read.value) for read in exchange.reads))
            if names:
                self._tell("exchanged", "info", "", names, exchange.place)

    def _tell_what_is_no_leaf(self) -> None:
        for name, tensor in self._subject.tensors.items():
            if self._statuses[name] != "nonleaf" or name in self._subject.owned:
                continue
            value = self._subject.flow.value_of(tensor)
            step = None if value.maker == FROM_OUTSIDE else self._flow.steps[value.maker]
            level: Level = "info" if name in self._subject.parametrized else "error"
            self._tell("nonleaf", level, "", [name], None if step is None else step.place)

    def _tell_unused(self) -> None:
        names = [name for name, status in self._statuses.items() if status == "unused" and self._is_trained(name)]
        joined = [name for name in names if id(self._subject.tensors[name]) in self._leaves]
        if joined:
            self._tell("unused", "error", "", joined, None)
        alone = [name for name in names if name not in joined]
        if alone:
            self._tell("unused", "info", "", alone, None)
        unknown = [name for name, status in self._statuses.items() if status == "unreached" and self._is_trained(name)]
        for kind in ("opaque", "unrecorded"):
            kinds = [name for name in unknown if self._may_be_inside(self._values[name]) == (kind == "opaque")]
            if kinds:
                self._tell(kind, "info", "", kinds, None)

    def _joined(self) -> Iterator[str]:
        """What only a function that joins all outputs of a model has in the graph: nothing is computed of it."""
        for name, value in self._values.items():
            if self._statuses[name] == "reached" and value in self._taken and value not in self._flowing.wanted:
                yield name

    def _tell_frozen(self) -> None:
        names = [
            name
            for name, status in self._statuses.items()
            if status == "frozen" and name in self._subject.owned and self._values[name] in self._flowing.wanted
        ]
        if names:
            nothing_learns = self._subject.live is None and "cut" not in self._statuses.values()
            self._tell("frozen", "error" if nothing_learns else "info", "", names, None)

    def _tell_optimizer(self) -> None:
        given = self._subject.given
        if given is None:
            return
        names = [
            name
            for name, status in self._statuses.items()
            if status == "reached" and name in self._subject.owned and id(self._subject.tensors[name]) not in given
        ]
        if names:
            # A step of a GAN or of an actor moves a part of what it reaches, and means to.
            self._tell("not_in_optimizer", "note", "", names, None)

    def _tell_unregistered(self) -> None:
        own = {id(tensor) for name, tensor in self._subject.tensors.items() if name in self._subject.owned}
        names = [name for name, tensor in self._subject.aside.items() if id(tensor) in self._leaves - own]
        if names:
            self._tell("not_registered", "error", "", names, None)

    # What a backward gives.

    def _arrivals(self, live: LiveGraph) -> dict[str, Arrival]:
        """What a backward gives each leaf that is reached.

        Raises:
            CaptureError: a backward would leave none for the program, or change it.
            RuntimeError: whatever the backward raises.
        """
        accumulators = {id(fn.variable): fn for fn in live.grad_fns if type(fn).__name__ == ACCUMULATOR}
        gradients = gradients_of(live)
        found = {
            name: gradients.at(tensor, accumulators[id(tensor)])
            for name, tensor in self._subject.tensors.items()
            if self._statuses[name] == "reached" and id(tensor) in accumulators
        }
        lost = self._stopped | self._left
        for name, arrival in found.items():
            if arrival.kind == "none" and self._values[name] in lost:
                # A function that joins all outputs of a model has it in the graph all the same.
                self._statuses[name] = "cut"
        return found

    def _tell_values(self, live: LiveGraph, arrivals: Mapping[str, Arrival]) -> None:
        reached = {name: self._subject.tensors[name] for name in arrivals}
        made = self._numbers_of_steps()
        arose: dict[tuple[str, str, Place | None], list[str]] = {}
        starting = self._starting({name: reached[name] for name, found in arrivals.items() if found.kind == "some"})
        for name, arrival in arrivals.items():
            tensor = reached[name]
            if arrival.kind == "none" and self._statuses[name] != "cut":
                # Of what nothing is computed of, a function that joins all outputs of a model knows all the same.
                is_cut = self._values[name] in self._flowing.wanted or not self._is_whole
                is_inside = self._may_be_inside(self._values[name])
                self._statuses[name] = "unreached" if is_inside else "cut" if is_cut else "unused"
                if is_cut and not is_inside:
                    arose.setdefault(("withheld", "", None), []).append(name)
            # Where no function made it zero, what came from several sides cancels.
            cancels = arrival.kind == "zero" and not arrival.arose and not hooks_of(tensor)
            kind = "rounding" if cancels else arrival.kind
            if kind in ("zero", "rounding", "nonfinite"):
                self._statuses[name] = "zero" if kind == "rounding" else kind
                for fn in arrival.arose or (None,):
                    index = None if fn is None else made.get(sequence_number(fn))
                    op = "" if fn is None else live.graph.nodes[live.grad_fns[fn]].op
                    line = None if index is None else self._flow.steps[index].place
                    told = self._kind_of_zero(index, starting) if kind == "zero" and index is not None else kind
                    arose.setdefault((told, op, line), []).append(name)
        for (kind, op, line), names in arose.items():
            self._tell(kind, _LEVELS.get(kind, "error"), op, names, line)

    def _kind_of_zero(self, index: int, starting: Set[Value]) -> str:
        """What is told of a gradient that a step makes zero, where ``starting`` are leaves that are zero and learn."""
        step = self._flow.steps[index]
        if not starting.isdisjoint(self._factors(step)):
            return "starting"
        given = (Value(index, number) for number in range(len(step.outputs)))
        # torch gives zeros for what a compiled part computes and nothing takes.
        is_left = isinstance(step.func, CompiledPart) and any(value not in self._flowing.wanted for value in given)
        return "opaque" if is_left else "zero"

    def _starting(self, learning: Mapping[str, torch.Tensor]) -> set[Value]:
        """The leaves that are zero throughout and get a gradient, so that they will not be zero for long."""
        return {self._values[name] for name, tensor in learning.items() if is_zero(tensor)}

    def _factors(self, step: Step) -> Iterator[Value]:
        """What an operation takes, as it was before views of it were made."""
        for read in step.inputs:
            value = read.value
            while value.maker != FROM_OUTSIDE and "view" in (maker := self._flow.steps[value.maker]).kinds:
                value = maker.inputs[maker.kinds.index("view")].value
            yield self._flowing.root(value)

    def _is_used_up(self, live: LiveGraph) -> bool:
        """Whether a backward from what was captured has freed the graph, as it should, and not one that ran before."""
        made, nodes = self._numbers_of_steps(), live.graph.nodes
        freed = [
            made.get(sequence_number(fn), 0)
            for fn, node_id in live.grad_fns.items()
            if any(slot.state == "freed" for slot in nodes[node_id].saved)
        ]
        last = max(map(self._flow.value_of, self._subject.captured)).maker
        between = self._flow.steps[min(freed) : last] if freed else ()
        return bool(freed) and not any(step.called in DERIVING for step in between)

    def _makers(self) -> dict[int, Step]:
        """The step that made each grad_fn, by sequence number."""
        return {number: self._flow.steps[index] for number, index in self._numbers_of_steps().items()}

    def _numbers_of_steps(self) -> dict[int, int]:
        """The place of the step that made each grad_fn, whose number is taken before the operation runs."""
        found: dict[int, int] = {}
        for index, step in enumerate(self._flow.steps):
            if step.mode == "grad" and any(read.carries for read in step.inputs):
                found.setdefault(step.number - 1, index)
        return found

    def _tell_what_was_written(self, live: LiveGraph, error: str) -> None:
        self._statuses = dict.fromkeys(self._statuses, "error")
        writes: dict[tuple[str, Place | None], None] = {}
        for fn, node_id in live.grad_fns.items():
            for slot in live.graph.nodes[node_id].saved:
                step = self._last_write(getattr(fn, f"{PACKED}{slot.slot}", None)) if slot.state == "stale" else None
                if step is not None:
                    writes[_called(step), step.place] = None
        for called, place in writes:
            self._tell("inplace", "error", called, [], place)
        if not writes:
            self._tell_what_was_freed(live, error)

    def _tell_what_was_freed(self, live: LiveGraph, error: str) -> None:
        makers = self._makers()
        for fn, node_id in live.grad_fns.items():
            node = live.graph.nodes[node_id]
            if any(slot.state == "freed" for slot in node.saved):
                step = makers.get(sequence_number(fn))
                self._tell("freed", "error", node.op, [], None if step is None else step.place)
                return
        self._tell("raised", "error", "the backward", [], None, detail=error)

    def _last_write(self, raw: Any) -> Step | None:
        held = getattr(raw, "data", None)
        storage = storage_of(held) if isinstance(held, torch.Tensor) else None
        index = None if storage is None else self._flow.last_write(storage)
        return None if index is None else self._flow.steps[index]

    # Words.

    def _names_of(self, leaves: Iterable[Value]) -> Iterator[str]:
        for leaf in leaves:
            yield from self._names.get(leaf, ())

    def _is_trained(self, name: str) -> bool:
        given = self._subject.given
        return given is None or id(self._subject.tensors[name]) in given

    def _level_of(self, names: Iterable[str]) -> Level:
        return "error" if any(self._statuses[name] == "cut" and self._is_trained(name) for name in names) else "info"

    def _tell(
        self, kind: str, level: Level, op: str, names: Iterable[str], place: Place | None, *, detail: str = ""
    ) -> None:
        source, via = lines_of(place, self._lines)
        self._causes.append(Cause(kind, level, op, tuple(names), source, via, detail))


def _called(step: Step) -> str:
    """What the program calls an operation; an operator and what no call is known of have torch's own name."""
    if step.called and not step.called.startswith("__"):
        return step.called
    return str(step.func.__name__).partition(".")[0]
