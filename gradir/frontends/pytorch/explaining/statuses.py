"""What each parameter of a recording gets, and what is known beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

import torch

from gradir.explanations.model import Cause, Level
from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.explaining.optimizers import Unnamed
from gradir.frontends.pytorch.explaining.registered import left_over, replaced
from gradir.frontends.pytorch.explaining.subject import Subject
from gradir.frontends.pytorch.explaining.words import Words
from gradir.frontends.pytorch.private import CHECKPOINT
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import Value

__all__ = ["Statuses"]


class Statuses:
    """Knows the parameters of what was recorded, each with a status, and the causes found so far."""

    def __init__(self, subject: Subject, flowing: Flowing) -> None:
        self.subject = subject
        self.flow = subject.flow
        self.flowing = flowing
        self.made = subject.flow.makers()
        self.leaves = set() if subject.live is None else {id(leaf) for leaf in subject.live.leaves.values()}
        self.values = {
            name: self.flowing.root(subject.flow.value_of(tensor)) for name, tensor in subject.tensors.items()
        }
        self.words = Words(subject.flow, self.values)
        self.stopped = self._all_leaves(stop.leaves for stop in self.flowing.stops)
        self._hidden = self._all_hidden()
        self.left = self._all_leaves(leaving.leaves for leaving in self.flowing.exits)
        self._put = self._all_leaves(putting.leaves for putting in self.flowing.puttings)
        self.stale = self._all_stale()
        self.replaced = replaced(subject.trained or (), self.owned(), self.stale)
        new = [subject.tensors[name] for name in self.replaced]
        self.given = None if subject.trained is None else {id(tensor) for tensor in (*subject.trained, *new)}
        self.unnamed = Unnamed(subject, is_open=self.flowing.has_compiled)
        self.statuses = {name: self._status(name, tensor) for name, tensor in subject.tensors.items()}
        self.swapped: list[str] = []
        self.causes: list[Cause] = []
        self.gradients: dict[str, float | str] = {}
        self.gradients_at: dict[str, float | str] = {}

    def _all_leaves(self, sets: Iterable[int]) -> set[Value]:
        return set(self.flowing.members(reduce(or_, sets, 0)))

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
        if self._gets_gradient(tensor):
            return "reached"
        if value in self.stopped or value in self.left or value in self._put:
            return "cut"
        return "unused" if self.flowing.is_whole and not self.flowing.may_be_inside(value) else "unreached"

    def _gets_gradient(self, tensor: torch.Tensor) -> bool:
        """Whether autograd has a tensor in the graph; one that keeps its gradient on the way is there by itself."""
        if not tensor.is_leaf or id(tensor) in self.leaves:
            return True
        return any(tensor is captured for captured in self.subject.captured)

    def owned(self) -> dict[str, torch.Tensor]:
        """The parameters that a module gives, by name."""
        return {name: tensor for name, tensor in self.subject.tensors.items() if name in self.subject.owned}

    def _all_stale(self) -> list[torch.Tensor]:
        used = self.leaves | {id(outside.tensor()) for outside in self.flow.outside}
        return left_over(self.subject.trained or (), self.owned(), used)

    def is_trained(self, name: str) -> bool:
        """Whether a parameter is to learn, as far as an optimizer was given."""
        return self.given is None or id(self.subject.tensors[name]) in self.given

    def level_of(self, names: Iterable[str]) -> Level:
        """The level of a cut of these names."""
        # Where nothing has a graph, a backward raises whatever the optimizer has.
        lacking = (name for name in names if self.statuses[name] == "cut")
        return "error" if any(self.subject.live is None or self.is_trained(name) for name in lacking) else "info"

    def names_that_are(self, status: str) -> list[str]:
        """The names of a status."""
        return [name for name, given in self.statuses.items() if given == status]

    def tell_of(self, kind: str, level: Level, names: Sequence[str], *, detail: str = "") -> None:
        """Tell what no line of the program shows, if it is so of any tensor."""
        if names:
            self.tell(kind, level, "", names, None, detail=detail)

    def tell(
        self,
        kind: str,
        level: Level,
        op: str,
        names: Iterable[str],
        place: Place | None,
        *,
        detail: str = "",
        pattern: str = "",
    ) -> None:
        """Note a cause."""
        self.causes.append(self.words.cause(kind, level, op, names, place, detail=detail, pattern=pattern))
