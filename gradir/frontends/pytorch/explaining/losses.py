"""Where a recorded forward and what ran after it lose gradients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import or_

from gradir.explanations.model import Level
from gradir.frontends.pytorch.explaining.clearing import Clearing, Clearings
from gradir.frontends.pytorch.explaining.cuts import Stop
from gradir.frontends.pytorch.explaining.graph_cuts import kind_of_cut, leavings, operation_of, puttings
from gradir.frontends.pytorch.explaining.kinds import EXPLICIT
from gradir.frontends.pytorch.explaining.meant import Meant, is_own_of_torch
from gradir.frontends.pytorch.explaining.optimizers import held_otherwise
from gradir.frontends.pytorch.explaining.registered import foreign
from gradir.frontends.pytorch.explaining.statuses import Statuses
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import Value
from gradir.vocabulary.patterns import EXCUSING, LOST, OTHER_MODEL

__all__ = ["Losses"]


class Losses(Statuses):
    """Finds the lines at which gradients are lost."""

    def tell_stops(self) -> None:
        """Tell where values go on without their gradient."""
        groups: dict[tuple[str, Place | None], list[Stop]] = {}
        for stop in self.flowing.stops:
            groups.setdefault((stop.kind, stop.place), []).append(stop)
        if not groups:
            return
        meant = Meant(self.flow, self.flowing, self.leaves, lambda leaf: self.words.names_of([leaf]))
        patterns, targets = meant.patterns(groups)
        for key, stops in groups.items():
            self._tell_stops_at(*key, stops, meant, patterns[key], is_target=key in targets)

    def _tell_stops_at(
        self,
        kind: str,
        place: Place | None,
        stops: Sequence[Stop],
        meant: Meant,
        pattern: str,
        *,
        is_target: bool,
    ) -> None:
        """Tell of the stops of a place; ``is_target`` is whether they cut a target of what is lost elsewhere."""
        behind = self.flowing.members(reduce(or_, (stop.leaves for stop in stops)))
        is_own = all(map(is_own_of_torch, stops))
        names = list(self.words.names_of(behind))
        level = self.level_of(names)
        # What the optimizer has is to learn, whatever it looks like.
        if pattern in EXCUSING and (self.given is None or meant.are_moved(behind) or self._has_only(behind)):
            level = "info"
        lost = [name for name in names if self.statuses[name] == "cut"]
        kind = kind_of_cut(kind, stops, is_lost=bool(lost))
        if is_target:
            level = "info"
        if level == "info" and not is_own and self.unnamed.lacks_any(map(self.flow.tensor_of, behind)):
            level = "error"
        if not pattern and level == "info" and lost:
            pattern = "other optimizer"
        if self.subject.live is None and behind and not is_own:
            # No backward starts from what was captured, whether the tensor that is lost has a name or not.
            level, pattern = "error", "" if pattern in EXCUSING else pattern
        if level == "error" or kind in EXPLICIT:
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
        detail = foreign(self.flow, self.subject.aside, behind) if self.subject.owned and not shown else ""
        told: Level = "note" if level == "info" and (detail or (is_own and kind != "copied")) else level
        if detail and level == "info":
            pattern = OTHER_MODEL
        if detail and level == "error" and self.given is not None:
            detail += ", and this optimizer has"
        self.tell(kind, told, operation_of(stops), dict.fromkeys(shown), place, detail=detail, pattern=pattern)

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
        for (operation, place), leaving in leavings(self.flowing).items():
            names = [
                name
                for name in self.words.names_of(self.flowing.members(leaving.leaves))
                if self.statuses[name] == "cut" and self.values[name] not in self.stopped and name not in told
            ]
            if names:
                told.update(names)
                detail = "" if leaving.is_sure else "it is handed to a call here, and may go no further"
                self.tell(
                    "exit", self.level_of(names) if leaving.is_sure else "info", operation, names, place, detail=detail
                )

    def tell_exchanges(self) -> None:
        """Tell where other numbers were assigned through ``.data`` to what the loss was computed of before."""
        for exchange in self.flowing.exchanges():
            names = list(self.words.names_of([self.flowing.root(exchange.reads[0].value)]))
            if names:
                self.tell("exchanged", "info", "", names, exchange.place)

    def tell_puttings(self) -> None:
        """Tell where computed numbers were put into another tensor."""
        told = self.stopped | self.left
        for (called_as, place), leaves in puttings(self.flowing).items():
            behind = self.words.names_of(leaf for leaf in self.flowing.members(leaves) if leaf not in told)
            names = [name for name in behind if self.statuses[name] == "cut"]
            if names:
                self.tell("put", self.level_of(names), called_as, names, place)

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
        reached = {name: self.subject.tensors[name] for name in self.names_that_are("reached")}
        scaled = {name: clearings.scaled(tensor) for name, tensor in reached.items() if tensor.is_leaf}
        groups: dict[Place | None, list[str]] = {}
        for name, step in scaled.items():
            if step is not None:
                self.statuses[name] = "cleared"
                groups.setdefault(step.place, []).append(name)
        # Some may be kept from learning on purpose.
        level: Level = "info" if "reached" in self.statuses.values() else "error"
        for place, names in groups.items():
            self.tell("clipped", level, "", names, place)
