"""What each parameter of a recording gets, and the lines at which a forward and what ran after it lose gradients."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import torch

from gradir.explanations.model import Cause, Level
from gradir.frontends.pytorch.explaining.cuts import Flowing, Stop
from gradir.frontends.pytorch.explaining.graph_cuts import kind_of_cut, operation_of
from gradir.frontends.pytorch.explaining.intended_cuts import IntendedCuts, cut_by_program, is_own_of_torch
from gradir.frontends.pytorch.explaining.misuse import Unnamed, held_otherwise
from gradir.frontends.pytorch.explaining.naming import Words, few
from gradir.frontends.pytorch.explaining.step_kinds import EXPLICIT
from gradir.frontends.pytorch.explaining.subject import Subject, find_foreign, find_left_over, find_replaced
from gradir.frontends.pytorch.private import CHECKPOINT
from gradir.frontends.pytorch.reading.tensors import numbers_in, storage_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value, plain_name
from gradir.frontends.pytorch.recording.timelines import calls_from
from gradir.ir.text import counted
from gradir.vocabulary.patterns import EXCUSING, LOST, OTHER_MODEL

_BACKWARD: Final = "backward"
# Every optimizer of torch tells the profiler of its step by a name that starts so.
_STEP: Final = "Optimizer.step#"
_SCALING: Final = frozenset({"clamp", "clamp_max", "clamp_min", "div", "mul"})


class Clearing(NamedTuple):
    """The line that wiped a gradient, and that of the step which came too late."""

    place: Place | None
    step: Place | None


class Clearings:
    """Knows from a recorded flow how the gradients of a backward were cleared."""

    def __init__(self, flow: Flow, captured: Iterable[Value]) -> None:
        self._flow, starts = flow, set(captured)
        self._backwards = [index for index, step in enumerate(flow.steps) if step.called == _BACKWARD]
        own = (each for each in self._backwards if any(read.value in starts for read in flow.steps[each].inputs))
        self._start = next(own, len(flow.steps))
        words = ((at, value) for at, step in enumerate(flow.steps) for _, value in step.constants)
        self._used = sorted({at for at, value in words if isinstance(value, str) and value.startswith(_STEP)})
        emptied = [clearing for clearing in flow.clearings if clearing.before > self._start]
        self._emptied = {clearing.reads[0].value: clearing for clearing in reversed(emptied)}

    def of(self, tensor: torch.Tensor) -> Clearing | None:
        """Return how the gradient of a leaf was cleared before a step used it, if it was."""
        found = self._wiped(tensor)
        if found is None:
            return None
        index, place = found
        # A step with a gradient of zeros writes all the same.
        last = index if tensor.grad is not None else len(self._flow.steps)
        if self._start <= self._last_write(tensor) < last:
            return None
        later = bisect_left(self._used, index)
        if later == len(self._used) or later > bisect_left(self._used, self._start):
            return None
        # What a backward comes to again by then has a new gradient.
        if bisect_left(self._backwards, index) < bisect_left(self._backwards, self._used[later]):
            return None
        return Clearing(place, self._flow.steps[self._used[later]].place)

    def scaled(self, tensor: torch.Tensor) -> Step | None:
        """The step that multiplied or clamped the gradient of a leaf to zero, after the backward that brought it."""
        index = self._zeroed(tensor.grad, _SCALING)
        # A step may have used it before.
        is_used = index is not None and self._start <= self._last_write(tensor) < index
        return None if index is None or is_used else self._flow.steps[index]

    def _wiped(self, tensor: torch.Tensor) -> tuple[int, Place | None] | None:
        if tensor.grad is None:
            emptied = self._emptied.get(self._flow.value_of(tensor))
            return None if emptied is None else (emptied.before, emptied.place)
        index = self._zeroed(tensor.grad, {"zero"})
        return None if index is None else (index, self._flow.steps[index].place)

    def _zeroed(self, gradient: torch.Tensor | None, names: Collection[str]) -> int | None:
        """Return the operation of such a name that wrote to a gradient last and left nothing but zeros in it."""
        index = FROM_OUTSIDE if gradient is None else self._last_write(gradient)
        if gradient is None or index <= self._start or bool(numbers_in(gradient).any()):
            return None
        return index if plain_name(self._flow.steps[index].func).removeprefix("foreach_") in names else None

    def _last_write(self, tensor: torch.Tensor) -> int:
        storage = storage_of(tensor)
        writes = () if storage is None else self._flow.writes(storage)
        return writes[-1] if writes else FROM_OUTSIDE


class Losses:
    """Knows the parameters of what was recorded, each with a status, and tells of the lines that lose gradients."""

    def __init__(self, subject: Subject, flowing: Flowing) -> None:
        self.subject, self.flow, self.flowing = subject, subject.flow, flowing
        self.leaves = set() if subject.live is None else {id(leaf) for leaf in subject.live.leaves.values()}
        self.values = {name: flowing.root(self.flow.value_of(tensor)) for name, tensor in subject.tensors.items()}
        self.words = Words(subject.flow, self.values)
        self.stopped = set(flowing.leaves_cut_by(flowing.stops))
        self._hidden = self._all_hidden()
        self.left = set(flowing.members(*(leaving.leaves for leaving in flowing.exits.values())))
        self._put = set(flowing.members(*flowing.puttings.values()))
        used = self.leaves | {id(outside.tensor()) for outside in self.flow.outside}
        self.stale = find_left_over(subject.trained or (), self.owned(), used)
        self.replaced = find_replaced(subject.trained or (), self.owned(), self.stale)
        new = [subject.tensors[name] for name in self.replaced]
        self.given = None if subject.trained is None else {id(tensor) for tensor in (*subject.trained, *new)}
        self.unnamed = Unnamed(subject, is_open=self.flowing.has_compiled)
        self.statuses = {name: self._status(name, tensor) for name, tensor in subject.tensors.items()}
        self.swapped: list[str] = []
        self._cut_by_program = set[Value]()
        self.causes: list[Cause] = []
        self.gradients: dict[str, float | str] = {}
        self.gradients_at: dict[str, float | str] = {}

    def _all_hidden(self) -> set[int]:
        """The tensors that a function in the graph may reach, by id(), whichever of their names the graph has."""
        live, tensors = self.subject.live, self.subject.tensors
        cuts = () if live is None else live.graph.cuts
        names = (name for cut in cuts if cut.kind == "hidden" for name in cut.names)
        hidden = {id(tensors[name]) for name in names if name in tensors}
        # Of tensors that no module has the graph does not tell, and a reentrant checkpoint runs in the recording.
        steps = [step for step in self.flow.steps if step.inside and f"{step.inside.called}Backward" == CHECKPOINT]
        inside = {read.value for step in steps for read in step.inputs} & self.flowing.wanted - self.stopped
        others = [tensors[name] for name in tensors.keys() - self.subject.owned] if inside else []
        return hidden.union(id(tensor) for tensor in others if self.flow.value_of(tensor) in inside) - self.leaves

    def _status(self, name: str, tensor: torch.Tensor) -> str:
        value = self.values[name]
        if id(tensor) in self._hidden:
            return "hidden"
        if not tensor.requires_grad and tensor.is_leaf:
            return "frozen"
        if not tensor.is_leaf and not (tensor.requires_grad and tensor.retains_grad):
            return "nonleaf"
        # One that keeps its gradient on the way is in the graph by itself.
        is_captured = any(tensor is captured for captured in self.subject.captured)
        if not tensor.is_leaf or id(tensor) in self.leaves or is_captured:
            return "reached"
        if value in self.stopped or value in self.left or value in self._put:
            return "cut"
        return "unused" if self.flowing.is_whole and not self.flowing.may_be_inside(value) else "unreached"

    def owned(self) -> dict[str, torch.Tensor]:
        """Return the parameters that a module gives, by name."""
        return {name: tensor for name, tensor in self.subject.tensors.items() if name in self.subject.owned}

    def is_trained(self, name: str) -> bool:
        """Return whether a parameter is to learn, as far as an optimizer was given."""
        return self.given is None or id(self.subject.tensors[name]) in self.given

    def level_of(self, names: Iterable[str]) -> Level:
        """Return the level of a cut of these names."""
        # Where nothing has a graph, a backward raises whatever the optimizer has.
        lacking = (name for name in names if self.statuses[name] == "cut")
        return "error" if any(self.subject.live is None or self.is_trained(name) for name in lacking) else "info"

    def names_that_are(self, status: str) -> list[str]:
        """Return the names of a status."""
        return [name for name, given in self.statuses.items() if given == status]

    def tell_of(self, kind: str, level: Level, names: Sequence[str], **said: str) -> None:
        """Tell what no line of the program shows, if it is so of any tensor."""
        if names:
            self.tell(kind, level, "", names, None, **said)

    def tell(self, kind: str, level: Level, op: str, names: Iterable[str], place: Place | None, **said: str) -> None:
        """Note a cause, with what else is said of it; see `Words.cause`."""
        self.causes.append(self.words.cause(kind, level, op, names, place, **said))

    def tell_stops(self) -> None:
        """Tell where values go on without their gradient."""
        groups = self.flowing.stops_by_place()
        if not groups:
            return
        intended = IntendedCuts(self.flowing, self.leaves, lambda leaf: tuple(self.words.names_of([leaf])))
        patterns, targets = intended.patterns(groups)
        self._cut_by_program = cut_by_program(self.flowing, patterns)
        for key, stops in groups.items():
            self._tell_stops_at(*key, stops, intended, patterns[key], is_target=key in targets)

    def _tell_stops_at(
        self,
        kind: str,
        place: Place | None,
        stops: Sequence[Stop],
        intended: IntendedCuts,
        pattern: str,
        *,
        is_target: bool,
    ) -> None:
        """Tell of the stops of a place; ``is_target`` is whether they cut a target of what is lost elsewhere."""
        behind = self.flowing.leaves_cut_by(stops)
        is_own = all(map(is_own_of_torch, stops))
        names = list(self.words.names_of(behind))
        level = self.level_of(names)
        # What the optimizer has is to learn, whatever it looks like.
        if pattern in EXCUSING and (self.given is None or intended.are_moved(behind) or self._has_only(behind)):
            level = "info"
        lost = [name for name in names if self.statuses[name] == "cut"]
        # A teacher that is a copy takes no gradient from what the program cuts in another place.
        is_lost_elsewhere = is_own and all(self.values[name] in self._cut_by_program for name in lost)
        kind = kind_of_cut(kind, stops, is_lost=bool(lost) and not is_lost_elsewhere)
        if is_target or is_lost_elsewhere:
            level = "info"
        if level == "info" and not is_own and self.unnamed.lacks_any(map(self.flow.tensor_of, behind)):
            level = "error"
        if not pattern and level == "info" and lost:
            pattern = "other optimizer"
        if self.subject.live is None and behind and not is_own:
            # No backward starts from what was captured, whether the tensor that is lost has a name or not.
            level, pattern = "error", "" if pattern in EXCUSING else pattern
        if level == "info" and not names and self._held.isdisjoint(behind):
            # What was there before, as of parameters that DistributedDataParallel or fully_shard sets, learns nothing.
            return
        if level == "error" or kind in EXPLICIT or (lost and any(stop.is_read for stop in stops)):
            self._tell_cut(kind, level, place, stops, behind, pattern=pattern, is_own=is_own)

    def _tell_cut(
        self,
        kind: str,
        level: Level,
        place: Place | None,
        stops: Sequence[Stop],
        behind: Sequence[Value],
        *,
        pattern: str,
        is_own: bool,
    ) -> None:
        names = list(self.words.names_of(behind))
        if level == "error" and pattern in LOST:
            names = [name for name in names if self.statuses[name] == "cut"]
        shown = names or [self.flow.variables[leaf] for leaf in behind if leaf in self.flow.variables]
        detail = self._describe_foreign(behind) if self.subject.owned and not shown else ""
        told: Level = "note" if level == "info" and (detail or (is_own and kind != "copied")) else level
        if detail and level == "info":
            pattern = OTHER_MODEL
        if detail and level == "error" and self.given is not None:
            detail += ", and this optimizer has"
        self.tell(kind, told, operation_of(stops), dict.fromkeys(shown), place, detail=detail, pattern=pattern)

    def _describe_foreign(self, leaves: Iterable[Value]) -> str:
        foreign = find_foreign(self.flow, self.subject.aside, leaves)
        takers = (self.flowing.first_takers.get(leaf) for leaf in foreign)
        calls = ([*calls_from(self.flow.steps[taker].call)] for taker in takers if taker is not None)
        models = (around[-1].module for around in calls if around)
        named = few(self.subject.variables.get(id(model)) or type(model).__name__ for model in models)
        listed = f"{counted(len(foreign), 'parameter')}{f' of {named}' if named else ''}"
        return f"{listed} that the recorded model does not have" if foreign else ""

    @cached_property
    def _held(self) -> set[Value]:
        held = self.flow.held()
        return held | {self.flowing.root(value) for value in held}

    def _has_only(self, leaves: Collection[Value]) -> bool:
        """Whether the optimizer has some leaves alone and none that get a gradient, which no other optimizer has."""
        tensors = map(self.flow.tensor_of, leaves)
        if self.given is None or not self.given <= {id(tensor) for tensor in tensors}:
            return False
        others = {name: tensor for name, tensor in self.owned().items() if self.statuses[name] == "reached"}
        self.swapped = [*others] if others and not held_otherwise(others) else []
        return bool(self.swapped)

    def tell_exits(self) -> None:
        """Tell where values leave torch as numbers."""
        told: set[str] = set()
        for (operation, place), leaving in self.flowing.exits.items():
            behind = (leaf for leaf in self.flowing.members(leaving.leaves) if leaf not in self.stopped)
            lost = (name for name in self.words.names_of(behind) if self.statuses[name] == "cut")
            names = [name for name in lost if name not in told]
            if names:
                told.update(names)
                if leaving.is_sure:
                    self._tell_by_level("exit", operation, names, place)
                else:
                    detail = "it is handed to a call here, and may go no further"
                    self.tell("exit", "info", operation, names, place, detail=detail)

    def _tell_by_level(self, kind: str, op: str, names: Iterable[str], place: Place | None) -> None:
        """Tell of the names of each level: a line may cut a model that learns and one that another optimizer has."""
        levels: dict[Level, list[str]] = {}
        for name in names:
            levels.setdefault(self.level_of([name]), []).append(name)
        for level, alike in levels.items():
            self.tell(kind, level, op, alike, place, pattern="other optimizer" if level == "info" else "")

    def tell_exchanges(self) -> None:
        """Tell where other numbers were assigned through ``.data`` to what the loss was computed of before."""
        for exchange in self.flowing.exchanges():
            names = list(self.words.names_of([self.flowing.root(exchange.reads[0].value)]))
            if names:
                self.tell("exchanged", "info", "", names, exchange.place)

    def tell_puttings(self) -> None:
        """Tell where computed numbers were put into another tensor."""
        told = self.stopped | self.left
        for (called_as, place), leaves in self.flowing.puttings.items():
            behind = self.words.names_of(leaf for leaf in self.flowing.members(leaves) if leaf not in told)
            names = [name for name in behind if self.statuses[name] == "cut"]
            self._tell_by_level("put", called_as, names, place)

    def tell_what_is_no_leaf(self) -> None:
        """Tell of tensors that are computed from others."""
        for name, tensor in self.subject.tensors.items():
            if self.statuses[name] != "nonleaf" or name in self.subject.owned:
                continue
            step = self.flow.step_of(self.flow.value_of(tensor))
            level: Level = "info" if name in self.subject.parametrized else "error"
            self.tell("nonleaf", level, "", [name], None if step is None else step.place)

    def tell_cleared(self) -> None:
        """Tell of gradients that were wiped before a step used them."""
        clearings = Clearings(self.flow, map(self.flow.value_of, self.subject.captured))
        groups: dict[Clearing, list[str]] = {}
        for name, tensor in self.subject.tensors.items():
            found = clearings.of(tensor) if self.statuses[name] == "reached" and tensor.is_leaf else None
            if found is not None:
                self.statuses[name] = "cleared"
                groups.setdefault(found, []).append(name)
        self._tell_clipped(clearings)
        for found, names in groups.items():
            # Without the optimizer that is to use them, nobody knows whether they are wiped on purpose, as in a GAN.
            is_lost = self.given is not None and any(map(self.is_trained, names))
            line = self.words.line(found.step)
            detail = f"the step {line} finds none" if line else ""
            self.tell("cleared", "error" if is_lost else "info", "", names, found.place, detail=detail)

    def _tell_clipped(self, clearings: Clearings) -> None:
        groups: dict[Place | None, list[str]] = {}
        for name in self.names_that_are("reached"):
            tensor = self.subject.tensors[name]
            step = clearings.scaled(tensor) if tensor.is_leaf else None
            if step is not None:
                self.statuses[name] = "cleared"
                groups.setdefault(step.place, []).append(name)
        # Some may be kept from learning on purpose.
        level: Level = "info" if "reached" in self.statuses.values() else "error"
        for place, names in groups.items():
            self.tell("clipped", level, "", names, place)
