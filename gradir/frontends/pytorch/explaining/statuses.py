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
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Value

__all__ = ["Statuses"]


class Statuses:
    """Knows the parameters of what was recorded, each with a status, and the causes found so far."""

    def __init__(self, subject: Subject, flowing: Flowing) -> None:
        self._subject = subject
        self._flow = subject.flow
        ends = map(subject.flow.value_of, subject.captured)
        # What was made of the recording's tensors outside it has a past that is not known here.
        self._is_whole = all(value.maker != FROM_OUTSIDE for value in ends)
        self._flowing = flowing
        self._made = subject.flow.makers()
        self._leaves = set() if subject.live is None else {id(leaf) for leaf in subject.live.leaves.values()}
        self._hidden = self._hidden_names()
        self._values = {
            name: self._flowing.root(subject.flow.value_of(tensor)) for name, tensor in subject.tensors.items()
        }
        self._words = Words(subject.flow, self._values)
        self._stopped = self._all_leaves(stop.leaves for stop in self._flowing.stops)
        self._compiled = set(self._flowing.members(self._flowing.compiled))
        self._taken = {read.value for step in subject.flow.steps for read in step.inputs}
        self._left = self._all_leaves(leaving.leaves for leaving in self._flowing.exits)
        self._put = self._all_leaves(putting.leaves for putting in self._flowing.puttings)
        self._stale = self._all_stale()
        self._replaced = replaced(subject.trained or (), self._owned(), self._stale)
        new = [subject.tensors[name] for name in self._replaced]
        self._given = None if subject.trained is None else {id(tensor) for tensor in (*subject.trained, *new)}
        self._unnamed = Unnamed(subject, is_open=self._flowing.has_compiled)
        self._statuses = {name: self._status(name, tensor) for name, tensor in subject.tensors.items()}
        self._swapped: list[str] = []
        self._causes: list[Cause] = []
        self._gradients: dict[str, float | str] = {}
        self._gradients_at: dict[str, float | str] = {}

    def _all_leaves(self, sets: Iterable[int]) -> set[Value]:
        return set(self._flowing.members(reduce(or_, sets, 0)))

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
        if value in self._stopped or value in self._left or value in self._put:
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

    def _owned(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in self._subject.tensors.items() if name in self._subject.owned}

    def _all_stale(self) -> list[torch.Tensor]:
        used = self._leaves | {id(outside.tensor()) for outside in self._flow.outside}
        return left_over(self._subject.trained or (), self._owned(), used)

    def _is_trained(self, name: str) -> bool:
        return self._given is None or id(self._subject.tensors[name]) in self._given

    def _level_of(self, names: Iterable[str]) -> Level:
        # Where nothing has a graph, a backward raises whatever the optimizer has.
        lacking = (name for name in names if self._statuses[name] == "cut")
        return "error" if any(self._subject.live is None or self._is_trained(name) for name in lacking) else "info"

    def _names_that_are(self, status: str) -> list[str]:
        return [name for name, given in self._statuses.items() if given == status]

    def _tell_of(self, kind: str, level: Level, names: Sequence[str], *, detail: str = "") -> None:
        """Tell what no line of the program shows, if it is so of any tensor."""
        if names:
            self._tell(kind, level, "", names, None, detail=detail)

    def _tell(
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
        self._causes.append(self._words.cause(kind, level, op, names, place, detail=detail, pattern=pattern))
