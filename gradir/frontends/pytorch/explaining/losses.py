"""The status of each parameter in a recording, and the lines at which gradients are lost."""

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
from gradir.frontends.pytorch.explaining.misuse import Unnamed, find_in_living_optimizers, has_twin
from gradir.frontends.pytorch.explaining.naming import Namer, list_first
from gradir.frontends.pytorch.explaining.step_kinds import EXPLICIT, is_in_checkpoint
from gradir.frontends.pytorch.explaining.subject import Subject, find_foreign, find_left_over, find_replaced
from gradir.frontends.pytorch.reading.tensors import read_stored_values, storage_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value, plain_name
from gradir.frontends.pytorch.recording.timelines import calls_from
from gradir.ir.memo import group_by_key
from gradir.ir.text import pluralize
from gradir.vocabulary.patterns import EXCUSING, LOST, OTHER_MODEL

# Statuses of parameters without a gradient.
WITHOUT: Final = frozenset({"cut", "frozen", "unreached", "unused"})
# The profiler label of every torch optimizer's step starts so.
_STEP: Final = "Optimizer.step#"
_SCALING: Final = frozenset({"clamp", "clamp_max", "clamp_min", "div", "mul"})


class Clearing(NamedTuple):
    """The line that cleared a gradient, and the line of the optimizer step that came too late."""

    place: Place | None
    step: Place | None


class Clearings:
    """Finds in a recorded flow how the gradients of a backward pass were cleared."""

    def __init__(self, flow: Flow, captured: Iterable[Value]) -> None:
        self._flow, starts = flow, set(captured)
        self._backwards = [index for index, step in enumerate(flow.steps) if step.called == "backward"]
        own = (each for each in self._backwards if any(read.value in starts for read in flow.steps[each].inputs))
        self._start = next(own, len(flow.steps))
        constants = ((at, value) for at, step in enumerate(flow.steps) for _, value in step.constants)
        self._updates = sorted({at for at, value in constants if isinstance(value, str) and value.startswith(_STEP)})
        emptied = [clearing for clearing in flow.clearings if clearing.before > self._start]
        self._emptied = {clearing.reads[0].value: clearing for clearing in reversed(emptied)}

    def find(self, tensor: torch.Tensor) -> Clearing | None:
        """Return how the gradient of a leaf was cleared before an optimizer step used it, if it was."""
        if tensor.grad is None:
            emptied = self._emptied.get(self._flow.value_of(tensor))
            index, place = (None, None) if emptied is None else (emptied.before, emptied.place)
        else:
            index = self._find_zeroing_step(tensor.grad, {"zero"})
            place = None if index is None else self._flow.steps[index].place
        if index is None:
            return None
        # An optimizer step with a zero gradient still writes to the leaf.
        last = index if tensor.grad is not None else len(self._flow.steps)
        if self._start <= self._last_write(tensor) < last:
            return None
        later = bisect_left(self._updates, index)
        if later == len(self._updates) or later > bisect_left(self._updates, self._start):
            return None
        # A backward pass between the two brings a new gradient.
        if bisect_left(self._backwards, index) < bisect_left(self._backwards, self._updates[later]):
            return None
        return Clearing(place, self._flow.steps[self._updates[later]].place)

    def find_scaling(self, tensor: torch.Tensor) -> Step | None:
        """Return the step that multiplied or clamped the new gradient of a leaf to zero."""
        index = self._find_zeroing_step(tensor.grad, _SCALING)
        # An optimizer step may have used the gradient before.
        is_used = index is not None and self._start <= self._last_write(tensor) < index
        return None if index is None or is_used else self._flow.steps[index]

    def _find_zeroing_step(self, gradient: torch.Tensor | None, names: Collection[str]) -> int | None:
        """Return the last step that wrote to a gradient, if named so and it left zeros."""
        index = FROM_OUTSIDE if gradient is None else self._last_write(gradient)
        if gradient is None or index <= self._start or bool(read_stored_values(gradient).any()):
            return None
        return index if plain_name(self._flow.steps[index].func).removeprefix("foreach_") in names else None

    def _last_write(self, tensor: torch.Tensor) -> int:
        storage = storage_of(tensor)
        writes = () if storage is None else self._flow.writes(storage)
        return writes[-1] if writes else FROM_OUTSIDE


class Losses:
    """The parameters of a recording, each with a status, and the causes of lost gradients."""

    def __init__(self, subject: Subject, flowing: Flowing) -> None:
        self.subject, self.flow, self.flowing = subject, subject.flow, flowing
        self.leaves = set() if subject.live is None else {id(leaf) for leaf in subject.live.leaves.values()}
        self.values = {name: flowing.root(self.flow.value_of(tensor)) for name, tensor in subject.tensors.items()}
        self.words = Namer(subject.flow, self.values)
        self.stopped = set(flowing.leaves_cut_by(flowing.stops))
        self._hidden = self._find_hidden()
        self.left = set(flowing.members(*(leaving.leaves for leaving in flowing.exits.values())))
        self._put = set(flowing.members(*flowing.puttings.values()))
        # The loss does not use a weight that a program only copies into a larger one.
        read = (entry for at, entry in enumerate(self.flow.outside) if Value(FROM_OUTSIDE, at) in flowing.wanted)
        used = self.leaves | {id(entry.tensor()) for entry in read}
        self.stale = find_left_over(subject.trained or (), self.module_parameters(), used)
        self.replaced = find_replaced(subject.trained or (), self.module_parameters(), self.stale)
        new = [subject.tensors[name] for name in self.replaced]
        self.given = None if subject.trained is None else {id(tensor) for tensor in (*subject.trained, *new)}
        self.unnamed = Unnamed(subject, is_open=self.flowing.has_compiled)
        self.statuses = {name: self._status(name, tensor) for name, tensor in subject.tensors.items()}
        self.swapped: list[str] = []
        self._cut_by_program = set[Value]()
        self.causes: list[Cause] = []
        self.gradients: dict[str, float | str] = {}
        self.gradients_at: dict[str, float | str] = {}

    def _find_hidden(self) -> set[int]:
        """Return the id() of each tensor that a function in the graph may reach, under any of its names."""
        live, tensors = self.subject.live, self.subject.tensors
        cuts = () if live is None else live.graph.cuts
        names = (name for cut in cuts if cut.kind == "hidden" for name in cut.names)
        hidden = {id(tensors[name]) for name in names if name in tensors}
        # The graph lists no tensors without a module, but the recording shows the steps of a reentrant checkpoint.
        steps = filter(is_in_checkpoint, self.flow.steps)
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
        # A tensor that retains its gradient is in the graph itself.
        is_captured = any(tensor is captured for captured in self.subject.captured)
        if not tensor.is_leaf or id(tensor) in self.leaves or is_captured:
            return "reached"
        if value in self.stopped or value in self.left or value in self._put:
            return "cut"
        return "unused" if self.flowing.is_whole and not self.flowing.may_be_inside(value) else "unreached"

    def module_parameters(self) -> dict[str, torch.Tensor]:
        """Return the parameters of modules, by name."""
        return {name: tensor for name, tensor in self.subject.tensors.items() if name in self.subject.owned}

    def is_trained(self, name: str) -> bool:
        """Return whether the given optimizer has a parameter; without an optimizer, every parameter counts."""
        return self.given is None or id(self.subject.tensors[name]) in self.given

    def level_of(self, names: Iterable[str]) -> Level:
        """Return the level of a cut of these names."""
        # Without a graph, backward() raises an error, even if the optimizer has none of the parameters.
        is_any = self._lacks_graph and not self._lacks_trained
        lacking = (name for name in names if self.statuses[name] == "cut")
        return "error" if any(is_any or self.is_trained(name) for name in lacking) else "info"

    def moves_nothing(self) -> bool:
        """Return whether no parameter of the optimizer, or without one, of the model, gets a gradient."""
        if self.given is None:
            # A loss without a graph has another cause.
            statuses = [self.statuses[name] for name in self.statuses if name in self.subject.owned]
            return self.subject.live is not None and bool(statuses) and {"frozen", "unused"}.issuperset(statuses)
        trained = [name for name in self.statuses if self.is_trained(name)]
        inside = {name for name in self.names_that_are("unreached") if self.flowing.may_be_inside(self.values[name])}
        are_idle = all(self.statuses[name] in {*WITHOUT, "zero"} and name not in inside for name in trained)
        return bool(self.given) and are_idle and not self.unnamed.may_move()

    def names_that_are(self, status: str) -> list[str]:
        """Return the names of a status."""
        return [name for name, given in self.statuses.items() if given == status]

    def tell_of(self, kind: str, level: Level, names: Sequence[str], **extra: str) -> None:
        """Add a cause without a line, unless there are no names."""
        if names:
            self.tell(kind, level, "", names, None, **extra)

    def tell(self, kind: str, level: Level, op: str, names: Iterable[str], place: Place | None, **extra: str) -> None:
        """Add a cause; see `Words.cause` for further arguments."""
        self.causes.append(self.words.cause(kind, level, op, names, place, **extra))

    def tell_stops(self) -> None:
        """Add the lines at which values lose their gradient."""
        if not self.flowing.stops:
            return
        groups = self.flowing.stops_by_place()
        intended = IntendedCuts(self.flowing, self.leaves, lambda leaf: tuple(self.words.names_of([leaf])))
        patterns, targets = intended.patterns(groups)
        self._cut_by_program = cut_by_program(self.flowing, patterns)
        for key, stops in groups.items():
            self._tell_stops_at(stops, intended, patterns[key], is_target=key in targets)

    def _tell_stops_at(self, stops: Sequence[Stop], intended: IntendedCuts, pattern: str, *, is_target: bool) -> None:
        """Add the cause of a place; ``is_target`` says that it cuts the target of values that are lost elsewhere."""
        cut = self.flowing.leaves_cut_by(stops)
        is_own = all(map(is_own_of_torch, stops))
        names = list(self.words.names_of(cut))
        level = self.level_of(names)
        # The parameters in the optimizer should learn, no matter which pattern they match.
        is_intended = pattern in EXCUSING and (self.given is None or intended.are_moved(cut))
        if is_intended or self._has_only(cut, is_excused=pattern in EXCUSING):
            level = "info"
        lost = [name for name in names if self.statuses[name] == "cut"]
        # Copying a teacher takes no gradient from leaves that the program cuts elsewhere.
        is_lost_elsewhere = is_own and all(self.values[name] in self._cut_by_program for name in lost)
        kind = kind_of_cut(stops[0].kind, stops, is_lost=bool(lost) and not is_lost_elsewhere)
        if is_target or is_lost_elsewhere:
            level = "info"
        if level == "info" and self.unnamed.lacks_any(cut) and (not is_own or self.moves_nothing()):
            level, kind = "error", kind_of_cut(kind, stops, is_lost=True)
        if not pattern and level == "info" and lost:
            pattern = "other optimizer"
        is_other = bool(names) and not any(map(self.is_trained, names))
        if self._lacks_graph and cut and not is_own and not (is_other and self._lacks_trained):
            # The captured tensors have no graph, whether or not the lost tensor has a name.
            level, pattern = "error", "" if pattern in EXCUSING else pattern
        if level == "info" and not names and self._living.isdisjoint(cut):
            # Nobody trains a tensor that is gone, such as one that DistributedDataParallel or fully_shard replaced.
            return
        if level == "error" or kind in EXPLICIT or (lost and any(stop.is_read for stop in stops)):
            self._tell_cut(kind, level, stops, pattern)

    @cached_property
    def _lacks_trained(self) -> bool:
        return any(map(self.is_trained, self.names_that_are("cut")))

    def _tell_cut(self, kind: str, level: Level, stops: Sequence[Stop], pattern: str) -> None:
        cut = self.flowing.leaves_cut_by(stops)
        names = list(self.words.names_of(cut))
        if level == "error" and pattern in LOST:
            names = [name for name in names if self.statuses[name] == "cut"]
        shown = names or self._variables_of(cut)
        detail = self._describe_foreign(cut) if self.subject.owned and not shown else ""
        if level == "info":
            pattern = OTHER_MODEL if detail else pattern
            level = "note" if detail or (kind != "copied" and all(map(is_own_of_torch, stops))) else level
        elif detail and level == "error" and self.given is not None:
            detail += ", and this optimizer has"
        op, place = operation_of(stops), stops[0].place
        self.tell(kind, level, op, dict.fromkeys(shown), place, detail=detail, pattern=pattern)

    def _variables_of(self, leaves: Iterable[Value]) -> list[str]:
        return [self.flow.variables[leaf] for leaf in leaves if leaf in self.flow.variables]

    def _describe_foreign(self, leaves: Iterable[Value]) -> str:
        foreign = find_foreign(self.flow, self.subject.aside, leaves)
        takers = (self.flowing.first_takers.get(leaf) for leaf in foreign)
        calls = ([*calls_from(self.flow.steps[taker].call)] for taker in takers if taker is not None)
        models = (around[-1].module for around in calls if around)
        named = list_first(self.subject.variables.get(id(model)) or type(model).__name__ for model in models)
        listed = f"{pluralize(len(foreign), 'parameter')}{f' of {named}' if named else ''}"
        return f"{listed} that the recorded model does not have" if foreign else ""

    @cached_property
    def _living(self) -> set[Value]:
        living = self.flow.living_values()
        return living | {self.flowing.root(value) for value in living}

    @cached_property
    def _lacks_graph(self) -> bool:
        """Whether backward() raises an error because of cuts."""
        frozen = (name for name in self.names_that_are("frozen") if self.values[name] in self.flowing.wanted)
        return self.subject.live is None and (self.given is None or not any(map(self.is_trained, frozen)))

    def _has_only(self, leaves: Collection[Value], *, is_excused: bool) -> bool:
        """Return whether the optimizer has only these leaves, and no optimizer has the parameters with a gradient."""
        tensors = map(self.flow.tensor_of, leaves)
        if self.given is None or not self.given <= {id(tensor) for tensor in tensors}:
            return False
        # A program that made two optimizers of one model forgot the other model.
        if not is_excused and not has_twin(self.given):
            return False
        others = {name: tensor for name, tensor in self.module_parameters().items() if self.statuses[name] == "reached"}
        self.swapped = [*others] if others and not find_in_living_optimizers(others) else []
        return bool(self.swapped)

    def tell_exits(self) -> None:
        """Add the lines at which values leave torch, such as by ``item()``."""
        reported: set[str] = set()
        for (operation, place), leaving in self.flowing.exits.items():
            leaves = (leaf for leaf in self.flowing.members(leaving.leaves) if leaf not in self.stopped)
            lost = (name for name in self.words.names_of(leaves) if self.statuses[name] == "cut")
            names = [name for name in lost if name not in reported]
            if names:
                reported.update(names)
                if leaving.is_sure:
                    self._tell_by_level("exit", operation, names, place)
                else:
                    detail = "a call gets it here, which may not use it"
                    self.tell("exit", "info", operation, names, place, detail=detail)

    def _tell_by_level(self, kind: str, op: str, names: Iterable[str], place: Place | None) -> None:
        """Add a cause for each level, since a line may cut the models of two optimizers."""
        for level, group in group_by_key((self.level_of([name]), name) for name in names).items():
            self.tell(kind, level, op, group, place, pattern="other optimizer" if level == "info" else "")

    def tell_exchanges(self) -> None:
        """Add the assignments to the ``.data`` of tensors that the loss was already computed from."""
        for exchange in self.flowing.exchanges():
            names = list(self.words.names_of([self.flowing.root(exchange.reads[0].value)]))
            if names:
                self.tell("exchanged", "info", "", names, exchange.place)

    def tell_puttings(self) -> None:
        """Add the lines that write computed values into another tensor."""
        reported = self.stopped | self.left
        for (called_as, place), leaves in self.flowing.puttings.items():
            found = self.words.names_of(leaf for leaf in self.flowing.members(leaves) if leaf not in reported)
            names = [name for name in found if self.statuses[name] == "cut"]
            self._tell_by_level("put", called_as, names, place)
            if not names and self.unnamed.lacks_any(members := self.flowing.members(leaves)) and self.moves_nothing():
                self.tell("put", "error", called_as, self._variables_of(members), place)

    def tell_what_is_no_leaf(self) -> None:
        """Add the named tensors that are computed from others."""
        for name, tensor in self.subject.tensors.items():
            if self.statuses[name] != "nonleaf" or name in self.subject.owned:
                continue
            step = self.flow.step_of(self.flow.value_of(tensor))
            level: Level = "info" if name in self.subject.parametrized else "error"
            self.tell("nonleaf", level, "", [name], None if step is None else step.place)

    def tell_cleared(self) -> None:
        """Add the gradients that were cleared before an optimizer step used them."""
        clearings = Clearings(self.flow, map(self.flow.value_of, self.subject.captured))
        cleared, clipped = dict[Clearing, list[str]](), dict[Place | None, list[str]]()
        for name in self.names_that_are("reached"):
            tensor = self.subject.tensors[name]
            if tensor.is_leaf and (found := clearings.find(tensor)) is not None:
                cleared.setdefault(found, []).append(name)
            elif tensor.is_leaf and (step := clearings.find_scaling(tensor)) is not None:
                clipped.setdefault(step.place, []).append(name)
            else:
                continue
            self.statuses[name] = "cleared"
        # A program may freeze some parameters on purpose by clipping.
        level: Level = "info" if "reached" in self.statuses.values() else "error"
        for place, names in clipped.items():
            self.tell("clipped", level, "", names, place)
        for found, names in cleared.items():
            # A GAN clears gradients on purpose, so only a given optimizer shows that they are lost.
            is_lost = self.given is not None and any(map(self.is_trained, names))
            line = self.words.line(found.step)
            detail = f"the step {line} finds none" if line else ""
            self.tell("cleared", "error" if is_lost else "info", "", names, found.place, detail=detail)
