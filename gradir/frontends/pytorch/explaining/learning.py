"""What does not learn although it may: unused, frozen, or not in the optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from gradir.explanations.model import Level
from gradir.frontends.pytorch.explaining.branches import not_taken
from gradir.frontends.pytorch.explaining.losses import Losses
from gradir.frontends.pytorch.explaining.optimizers import forgotten, held_otherwise
from gradir.frontends.pytorch.explaining.parallel import first_after_forward, waits_for
from gradir.frontends.pytorch.explaining.terms import of_unused
from gradir.frontends.pytorch.explaining.words import few
from gradir.frontends.pytorch.private import DDP_SINK
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import Step

__all__ = ["Learning"]

_WITHOUT: Final = frozenset({"cut", "frozen", "unreached", "unused"})
"""The statuses of what no gradient comes to."""


class Learning(Losses):
    """Holds what gets a gradient against what is to learn."""

    def tell_what_does_not_learn(self) -> None:
        """Tell of what is unused or frozen."""
        moves_nothing = self._moves_nothing()
        unused = [name for name in self.names_that_are("unused") if self.is_trained(name)]
        never_taken = [name for name in unused if self.values[name] not in self.flowing.taken]
        skipped = not_taken(self.flow, self.subject.paths, never_taken)
        frozen = self.names_that_are("frozen")
        # A LoRA that was merged is skipped, and the frozen weight that is used instead is not in the optimizer.
        is_elsewhere = bool(skipped) and self.given is not None and not any(map(self.is_trained, frozen))
        # Where only what is frozen leads to the loss, that is why the others are not in it.
        is_first = self.subject.live is None and not is_elsewhere
        if is_first:
            self._tell_frozen(is_alarm=moves_nothing, may_lack=True)
        self._tell_unused("error" if moves_nothing else "info", unused, skipped)
        if not is_first:
            self._tell_frozen(is_alarm=moves_nothing, may_lack=False)

    def _tell_unused(self, level: Level, names: Sequence[str], skipped: Mapping[str, Place]) -> None:
        # DistributedDataParallel waits for all; another function may take what is left out.
        live = self.subject.live
        waits = live is not None and any(type(fn).__name__ == DDP_SINK for fn in live.grad_fns)
        joined = [name for name in names if waits and id(self.subject.tensors[name]) in self.leaves]
        if joined:
            step = first_after_forward(self.flow, self.flowing.wanted)
            detail = "the loss is made of other outputs here" if step else ""
            self.tell("unused", "error", "", joined, None if step is None else step.place, detail=detail)
        waiting = waits_for(self.flow, self.leaves)
        left = [name for name in names if id(self.subject.tensors[name]) in waiting]
        self.tell_of("ddp_unused", "error", left)
        others = [name for name in names if name not in {*joined, *left}]
        skipped = {name: place for name, place in skipped.items() if name in others}
        for name, place in skipped.items():
            self.tell("skipped", level, "", [name], place)
        alone = {name: self.values[name] for name in others if name not in skipped}
        self.causes.extend(of_unused(self.words, self.flowing, level, alone))
        unknown = [name for name in self.names_that_are("unreached") if self.is_trained(name)]
        opaque = [name for name in unknown if self.flowing.may_be_inside(self.values[name])]
        self.tell_of("opaque", "info", opaque)
        unrecorded = [name for name in unknown if name not in opaque]
        if unrecorded:
            entry = next((step for step in self.flow.steps if self._takes_unseen(step)), None)
            self.tell("unrecorded", "info", "", unrecorded, None if entry is None else entry.place)

    def _takes_unseen(self, step: Step) -> bool:
        return any(read.value in self.flowing.unseen for read in step.inputs)

    def _moves_nothing(self) -> bool:
        """Whether no gradient comes to anything that is to learn: to all that the optimizer has, or to the model."""
        if self.given is None:
            # Without a graph of the loss itself there is another cause.
            statuses = [self.statuses[name] for name in self.statuses if name in self.subject.owned]
            return self.subject.live is not None and bool(statuses) and {"frozen", "unused"}.issuperset(statuses)
        return (
            bool(self.given)
            and all(map(self._is_idle, filter(self.is_trained, self.statuses)))
            and not self.unnamed.may_move()
        )

    def _is_idle(self, name: str) -> bool:
        status = self.statuses[name]
        return status in {*_WITHOUT, "zero"} and not (
            status == "unreached" and self.flowing.may_be_inside(self.values[name])
        )

    def joined(self) -> Iterator[str]:
        """What only a function that joins all outputs of a model has in the graph: nothing is computed of it."""
        for name, value in self.values.items():
            if self.statuses[name] == "reached" and value in self.flowing.taken and value not in self.flowing.wanted:
                yield name

    def _tell_frozen(self, *, is_alarm: bool, may_lack: bool) -> None:
        """Tell what is frozen; ``may_lack`` is whether it may be all that keeps the loss from a graph."""
        own = (name for name in self.names_that_are("frozen") if name in self.subject.owned)
        nothing_learns = may_lack and "cut" not in self.statuses.values()
        is_alarm = nothing_learns or (is_alarm and self.given is not None)
        detail = "the loss depends on nothing that requires grad" if nothing_learns else ""
        names = [name for name in own if self.values[name] in self.flowing.wanted]
        trained = [name for name in names if is_alarm and (nothing_learns or self.is_trained(name))]
        self.tell_of("frozen", "error", trained, detail=detail)
        self.tell_of("frozen", "info", [name for name in names if name not in trained])

    def tell_no_graph(self) -> None:
        """Tell where something that no backward starts from was made, if nothing else has told why."""
        is_told = any(cause.level == "error" for cause in self.causes)
        if self.subject.live is None and not is_told:
            maker = self.flow.step_of(self.flow.value_of(self.subject.captured[0]))
            self.tell("no_graph", "error", "", [], None if maker is None else maker.place)

    def tell_optimizer(self) -> None:
        """Tell of what gets a gradient and is not in the optimizer, and of what the optimizer has in vain."""
        stale = [name for name in self.replaced if self.statuses[name] in {"reached", "zero", "nonfinite"}]
        self._tell_replaced(stale)
        own = {name: self.values[name] for name in self.names_that_are("reached") if name in self.subject.owned}
        lacking = {name: self.subject.tensors[name] for name in own if not self.is_trained(name)}
        lost = set(forgotten(self.flow, self.flowing, own, lacking)) if lacking else set[str]()
        # A step of a GAN or of an actor moves a part of what it reaches, and means to.
        lost -= held_otherwise({name: lacking[name] for name in lost})
        # The optimizer has only the target of what should learn.
        lost.update(self.swapped)
        forgot = [name for name in lacking if name in lost]
        if self.stale and not stale:
            self._tell_replaced(forgot)
        else:
            held = few(filter(self.is_trained, self.statuses)) if self.swapped else ""
            detail = f"it has only {held}, which no gradient comes to" if held else ""
            self.tell_of("not_in_optimizer", "error", forgot, detail=detail)
        self.tell_of("not_in_optimizer", "note", [name for name in lacking if name not in lost])
        self._tell_idle()
        self.tell_of("lent", "error", [name for name in self.names_that_are("reached") if name in self.subject.lent])

    def _tell_idle(self) -> None:
        """Tell that a step of the optimizer moves nothing, if nothing else that is an error has told why."""
        is_told = any(cause.level == "error" for cause in self.causes)
        if self.given is None or is_told or not self._moves_nothing():
            return
        zeros = {name for name in self.names_that_are("zero") if self.is_trained(name)}
        causes = [
            replace(cause, level="error")
            if cause.level in {"info", "note"} and zeros.intersection(cause.names)
            else cause
            for cause in self.causes
        ]
        if any(cause.kind == "equal" for cause in causes if zeros.intersection(cause.names)):
            # The loss is at its minimum, as where a student starts as a copy of its teacher.
            return
        self.causes = causes
        if not any(cause.level == "error" for cause in causes):
            count = len(self.given)
            detail = f"it has {count:,} tensor{'s' if count > 1 else ''}"
            self.tell("moves_nothing", "error", "", filter(self.is_trained, self.statuses), None, detail=detail)

    def _tell_replaced(self, names: Sequence[str]) -> None:
        shapes = few(str(tuple(tensor.shape)) for tensor in self.stale)
        self.tell_of("replaced", "error", names, detail=f"of shape {shapes}")

    def tell_unregistered(self) -> None:
        """Tell of what gets a gradient and is no parameter of the model."""
        own = {id(tensor) for name, tensor in self.subject.tensors.items() if name in self.subject.owned}
        names = [name for name, tensor in self.subject.aside.items() if id(tensor) in self.leaves - own]
        self.tell_of("not_registered", "error", names)
