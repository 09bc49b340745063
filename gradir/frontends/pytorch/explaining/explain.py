"""From a recorded forward, and a backward if asked for, to an explanation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Final

import torch
from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.explanations.model import Cause, Examined, Explanation, Level, OfGraph
from gradir.explanations.uniting import united
from gradir.frontends.pytorch.explaining.arrivals import BROKEN, Finding, Judge, Recorded
from gradir.frontends.pytorch.explaining.branches import not_taken
from gradir.frontends.pytorch.explaining.clearing import Clearing, Clearings
from gradir.frontends.pytorch.explaining.cuts import Flowing, Stop
from gradir.frontends.pytorch.explaining.failures import is_spent, of_backward, of_forward
from gradir.frontends.pytorch.explaining.gradients import Arrival, Gradients, gradients_of, held_gradients
from gradir.frontends.pytorch.explaining.graph_cuts import leavings
from gradir.frontends.pytorch.explaining.kinds import EXPLICIT, kind_of
from gradir.frontends.pytorch.explaining.meant import Meant, is_own_of_torch
from gradir.frontends.pytorch.explaining.optimizers import Unnamed, forgotten, held_otherwise
from gradir.frontends.pytorch.explaining.overwritten import Overwrite, communicates, overwrites
from gradir.frontends.pytorch.explaining.parallel import first_after_forward, left_waiting, waits_for
from gradir.frontends.pytorch.explaining.registered import foreign, left_over, replaced
from gradir.frontends.pytorch.explaining.subject import Subject
from gradir.frontends.pytorch.explaining.sums import STOP_GRADIENT, STRAIGHT_THROUGH
from gradir.frontends.pytorch.explaining.terms import numbers_of, of_unused, told_terms
from gradir.frontends.pytorch.explaining.words import Words, called, few
from gradir.frontends.pytorch.explaining.writes import writes_over_saved
from gradir.frontends.pytorch.private import ACCUMULATOR, DDP_SINK
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Value
from gradir.spec import own_error
from gradir.vocabulary.patterns import EXCUSING, LOST

__all__ = ["Search"]

_LEVELS: Final[Mapping[str, Level]] = {"empty": "info", "opaque": "info", "rounding": "note", "starting": "note"}
"""Of kinds that are no alarm, whatever they concern."""

_WITHOUT: Final = frozenset({"cut", "frozen", "unreached", "unused"})
"""The statuses of what no gradient comes to."""

_SPENT: Final = "the backward has already run"

_SMALL: Final = 20_000
"""The nodes of a graph through which a backward is run to explain it, if nobody says otherwise."""


class Search:
    """Explains what was recorded."""

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

    def explanation(self, *, values: bool | None) -> Explanation:
        """Explain a loss; with ``values``, also by a backward that adds nothing to ``.grad``."""
        live = self._subject.live
        gradients, failure, examined = self._backward(values)
        arrivals = {} if gradients is None or live is None else self._arrivals(live, gradients)
        self._tell_stops()
        self._tell_exits()
        self._tell_exchanges()
        self._tell_puttings()
        self._tell_what_is_no_leaf()
        if failure and live is not None:
            self._statuses = dict.fromkeys(self._statuses, "error")
            self._causes.extend(of_backward(self._flowing, live, self._made, self._words, failure))
        elif gradients is not None and live is not None:
            self._tell_values(live, gradients, arrivals)
            examined = replace(examined, overwritten=self._tell_overwritten(live))
        elif self._is_whole:
            self._statuses.update(dict.fromkeys(self._joined(), "unused"))
        self._tell_cleared()
        examined = self._read_gradients(examined)
        self._tell_what_does_not_learn()
        self._tell_no_graph()
        self._tell_optimizer()
        self._tell_unregistered()
        for names in self._subject.untied:
            self._tell_of("untied", "error", names)
        numbers = numbers_of(self._flow, self._flowing.terms, self._subject.captured) if gradients else {}
        terms = tuple(told_terms(self._flow, self._flowing.terms, numbers, self._names_behind, self._words.lines))
        causes = united(self._causes, self._statuses)
        return Explanation(
            self._statuses,
            causes,
            terms,
            self._subject.tied(),
            self._gradients,
            self._of_graph(),
            examined=examined,
        )

    def _backward(self, values: bool | None) -> tuple[Gradients | None, str, Examined]:
        """Run a backward if one is to be run; returns what it brought, what it raised, and what was examined."""
        live, left_out = self._subject.live, self._left_out(values)
        if live is None:
            return None, "", left_out
        if left_out.reason:
            is_stale = left_out.reason != _SPENT and writes_over_saved(self._flow, live, self._made)
            return None, "a saved tensor was changed in place" if is_stale else "", left_out
        try:
            return gradients_of(live), "", Examined("backward")
        except CaptureError as error:
            # What a backward of gradir's would change for the program's own is worth more than the values.
            return None, "", Examined(reason=str(error))
        except RuntimeError as error:
            return None, own_error(error), left_out

    def _left_out(self, values: bool | None) -> Examined:
        """Return why no backward is to be run, if it is not."""
        live = self._subject.live
        if live is None:
            return Examined()
        if values is False:
            return Examined(reason="values=False", advice="leave out values=False (--no-values)")
        if values is None and is_spent(self._flow, live, self._made, self._subject.captured):
            return Examined(reason=_SPENT, advice="explain before backward(), or call backward(retain_graph=True)")
        if values is None and len(live.graph.nodes) > _SMALL:
            return Examined(
                reason=f"the graph has {len(live.graph.nodes):,} nodes, which is more than {_SMALL:,}",
                advice="pass values=True (--values)",
            )
        return Examined()

    def _read_gradients(self, examined: Examined) -> Examined:
        """Tell of gradients in `.grad` that are zero or not finite, where the program's own backward brought them."""
        if examined.reason != _SPENT:
            return examined
        names = [name for name in self._names_that_are("reached") if self._subject.tensors[name].is_leaf]
        held = held_gradients({name: self._subject.tensors[name] for name in names})
        self._gradients.update(held)
        for status in ("nonfinite", "zero"):
            found = [name for name, gradient in held.items() if gradient == status]
            self._statuses.update(dict.fromkeys(found, status))
            self._tell_of(f"{status}_grad", "error" if status in BROKEN else "info", found)
        return replace(examined, values="grad") if held and len(held) == len(names) else examined

    def _of_graph(self) -> OfGraph | None:
        live = self._subject.live
        if live is None:
            return None
        nodes = live.graph.nodes.values()
        names = {node.id: name for node in nodes for name in node.names if name in self._statuses}
        return OfGraph(names, self._gradients_at)

    def _names_behind(self, term: Value) -> tuple[str, ...]:
        """The leaves that a term gives a gradient, as far as it is known."""
        names = self._words.names_of(self._flowing.leaves_behind(term))
        return tuple(
            name for name in names if self._statuses[name] == "reached" or self._values[name] not in self._compiled
        )

    def explanation_of_failure(self, error: BaseException) -> Explanation:
        """Explain why an operation of the recorded forward raised an error."""
        statuses = dict.fromkeys(self._statuses, "error")
        owned = {name: tensor for name, tensor in self._subject.tensors.items() if name in self._subject.owned}
        left = left_waiting(error, owned)
        told = (
            [self._words.cause("ddp_unused", "error", "", left, None)]
            if left
            else of_forward(self._words, own_error(error))
        )
        causes = united(told, statuses)
        return Explanation(statuses, causes, tied=self._subject.tied())

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

    # Why.

    def _tell_stops(self) -> None:
        groups: dict[tuple[str, Place | None], list[Stop]] = {}
        for stop in self._flowing.stops:
            groups.setdefault((stop.kind, stop.place), []).append(stop)
        if not groups:
            return
        meant = Meant(self._flow, self._flowing, self._leaves, lambda leaf: self._words.names_of([leaf]))
        patterns = {key: meant.pattern(stops) for key, stops in groups.items()}
        # Where both sides of a comparison carry no gradient, the target is not the one that lacks it.
        plain = [key for key in groups if not patterns[key]]
        targets = {key for key in plain if self._subject.live is not None and meant.are_targets(groups[key])}
        lost = {name for key in plain if key not in targets for name in self._names_lost_at(groups[key])}
        names = {key: self._names_lost_at(groups[key]) for key in targets}
        targets = {key for key in targets if names[key] and lost.issuperset(names[key])}
        patterns.update(dict.fromkeys(targets, STOP_GRADIENT))
        for key, stops in groups.items():
            self._tell_stops_at(*key, stops, meant, patterns[key], is_target=key in targets)
        # An estimator that passes by what should learn is mended itself, and not what it replaces.
        self._causes.sort(key=lambda cause: (cause.level, cause.pattern) != ("error", STRAIGHT_THROUGH))

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
        behind = self._flowing.members(reduce(or_, (stop.leaves for stop in stops)))
        is_own = all(map(is_own_of_torch, stops))
        names = list(self._words.names_of(behind))
        level = self._level_of(names)
        # What the optimizer has is to learn, whatever it looks like.
        if pattern in EXCUSING and (self._given is None or meant.are_moved(behind) or self._has_only(behind)):
            level = "info"
        if is_target:
            level = "info"
        if level == "info" and not is_own and self._unnamed.lacks_any(map(self._flow.tensor_of, behind)):
            level = "error"
        if not pattern and level == "info" and any(self._statuses[name] == "cut" for name in names):
            pattern = "other optimizer"
        if self._subject.live is None and behind and not is_own:
            # No backward starts from what was captured, whether the tensor that is lost has a name or not.
            level, pattern = "error", "" if pattern in EXCUSING else pattern
        if level == "error" or kind in EXPLICIT:
            self._tell_cut(kind, level, place, stops, behind, pattern=pattern, is_own=is_own)

    def _names_lost_at(self, stops: Iterable[Stop]) -> list[str]:
        names = self._words.names_of(self._flowing.members(reduce(or_, (stop.leaves for stop in stops))))
        return [name for name in names if self._statuses[name] == "cut"]

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
        names = list(self._words.names_of(behind))
        if level == "error" and pattern in LOST:
            names = [name for name in names if self._statuses[name] == "cut"]
        shown = names or [self._flow.variables[leaf] for leaf in behind if leaf in self._flow.variables]
        is_nameless = bool(self._subject.owned) and not shown
        detail = foreign(self._flow, self._subject.aside, behind) if is_nameless else ""
        told: Level = "note" if level == "info" and (is_own or detail) else level
        if detail and level == "error" and self._given is not None:
            detail += ", and this optimizer has"
        # What draws is told, and not what is computed for it.
        op = called(next((stop.step for stop in stops if kind_of(stop.step) == kind), stops[0].step))
        self._tell(kind, told, op, dict.fromkeys(shown), place, detail=detail, pattern=pattern)

    def _has_only(self, leaves: Collection[Value]) -> bool:
        """Whether the optimizer has some leaves alone and none that get a gradient, which no other optimizer has."""
        tensors = map(self._flow.tensor_of, leaves)
        if self._given is None or not self._given <= {id(tensor) for tensor in tensors}:
            return False
        others = {name: tensor for name, tensor in self._owned().items() if self._statuses[name] == "reached"}
        self._swapped = [*others] if others and not held_otherwise(others) else []
        return bool(self._swapped)

    def _tell_exits(self) -> None:
        told: set[str] = set()
        for (operation, place), leaving in leavings(self._flowing).items():
            names = [
                name
                for name in self._words.names_of(self._flowing.members(leaving.leaves))
                if self._statuses[name] == "cut" and self._values[name] not in self._stopped and name not in told
            ]
            if names:
                told.update(names)
                detail = "" if leaving.is_sure else "it is handed to a call here, and may go no further"
                self._tell(
                    "exit", self._level_of(names) if leaving.is_sure else "info", operation, names, place, detail=detail
                )

    def _tell_exchanges(self) -> None:
        for exchange in self._flow.exchanges:
            assigned, _ = exchange.reads
            names = list(self._words.names_of([self._flowing.root(assigned.value)]))
            if names:
                self._tell("exchanged", "info", "", names, exchange.place)

    def _tell_puttings(self) -> None:
        told = self._stopped | self._left
        groups: dict[tuple[str, Place | None], int] = {}
        for called_as, place, leaves in self._flowing.puttings:
            groups[called_as, place] = groups.get((called_as, place), 0) | leaves
        for (called_as, place), leaves in groups.items():
            behind = self._words.names_of(leaf for leaf in self._flowing.members(leaves) if leaf not in told)
            names = [name for name in behind if self._statuses[name] == "cut"]
            if names:
                self._tell("put", self._level_of(names), called_as, names, place)

    def _tell_what_is_no_leaf(self) -> None:
        for name, tensor in self._subject.tensors.items():
            if self._statuses[name] != "nonleaf" or name in self._subject.owned:
                continue
            step = self._flow.step_of(self._flow.value_of(tensor))
            level: Level = "info" if name in self._subject.parametrized else "error"
            self._tell("nonleaf", level, "", [name], None if step is None else step.place)

    def _tell_cleared(self) -> None:
        clearings = Clearings(self._flow, map(self._flow.value_of, self._subject.captured))
        groups: dict[Clearing, list[str]] = {}
        for name, tensor in self._subject.tensors.items():
            found = clearings.of(tensor) if self._statuses[name] == "reached" and tensor.is_leaf else None
            if found is not None:
                self._statuses[name] = "cleared"
                groups.setdefault(found, []).append(name)
        self._tell_clipped(clearings)
        for found, names in groups.items():
            # Without the optimizer that is to use them, nobody knows whether they are wiped on purpose, as in a GAN.
            is_lost = self._given is not None and any(map(self._is_trained, names))
            line = self._words.line(found.step)
            detail = f"the step {line} finds none" if line else ""
            self._tell("cleared", "error" if is_lost else "info", "", names, found.place, detail=detail)

    def _tell_clipped(self, clearings: Clearings) -> None:
        reached = {name: self._subject.tensors[name] for name in self._names_that_are("reached")}
        scaled = {name: clearings.scaled(tensor) for name, tensor in reached.items() if tensor.is_leaf}
        groups: dict[Place | None, list[str]] = {}
        for name, step in scaled.items():
            if step is not None:
                self._statuses[name] = "cleared"
                groups.setdefault(step.place, []).append(name)
        # Some may be kept from learning on purpose.
        level: Level = "info" if "reached" in self._statuses.values() else "error"
        for place, names in groups.items():
            self._tell("clipped", level, "", names, place)

    def _tell_what_does_not_learn(self) -> None:
        moves_nothing = self._moves_nothing()
        unused = [name for name in self._names_that_are("unused") if self._is_trained(name)]
        never_taken = [name for name in unused if self._values[name] not in self._taken]
        skipped = not_taken(self._flow, self._subject.paths, never_taken)
        frozen = self._names_that_are("frozen")
        # A LoRA that was merged is skipped, and the frozen weight that is used instead is not in the optimizer.
        is_elsewhere = bool(skipped) and self._given is not None and not any(map(self._is_trained, frozen))
        # Where only what is frozen leads to the loss, that is why the others are not in it.
        is_first = self._subject.live is None and not is_elsewhere
        if is_first:
            self._tell_frozen(is_alarm=moves_nothing, may_lack=True)
        self._tell_unused("error" if moves_nothing else "info", unused, skipped)
        if not is_first:
            self._tell_frozen(is_alarm=moves_nothing, may_lack=False)

    def _tell_unused(self, level: Level, names: Sequence[str], skipped: Mapping[str, Place]) -> None:
        # DistributedDataParallel waits for all; another function may take what is left out.
        live = self._subject.live
        waits = live is not None and any(type(fn).__name__ == DDP_SINK for fn in live.grad_fns)
        joined = [name for name in names if waits and id(self._subject.tensors[name]) in self._leaves]
        if joined:
            step = first_after_forward(self._flow, self._flowing.wanted)
            detail = "the loss is made of other outputs here" if step else ""
            self._tell("unused", "error", "", joined, None if step is None else step.place, detail=detail)
        waiting = waits_for(self._flow, self._leaves)
        left = [name for name in names if id(self._subject.tensors[name]) in waiting]
        self._tell_of("ddp_unused", "error", left)
        others = [name for name in names if name not in {*joined, *left}]
        skipped = {name: place for name, place in skipped.items() if name in others}
        for name, place in skipped.items():
            self._tell("skipped", level, "", [name], place)
        alone = {name: self._values[name] for name in others if name not in skipped}
        self._causes.extend(of_unused(self._words, self._flowing, level, alone))
        unknown = [name for name in self._names_that_are("unreached") if self._is_trained(name)]
        for kind in ("opaque", "unrecorded"):
            is_opaque = kind == "opaque"
            self._tell_of(
                kind, "info", [name for name in unknown if self._may_be_inside(self._values[name]) == is_opaque]
            )

    def _moves_nothing(self) -> bool:
        """Whether no gradient comes to anything that is to learn: to all that the optimizer has, or to the model."""
        if self._given is None:
            # Without a graph of the loss itself there is another cause.
            statuses = [self._statuses[name] for name in self._statuses if name in self._subject.owned]
            return self._subject.live is not None and bool(statuses) and {"frozen", "unused"}.issuperset(statuses)
        return (
            bool(self._given)
            and all(map(self._is_idle, filter(self._is_trained, self._statuses)))
            and not self._unnamed.may_move()
        )

    def _is_idle(self, name: str) -> bool:
        status = self._statuses[name]
        return status in {*_WITHOUT, "zero"} and not (status == "unreached" and self._may_be_inside(self._values[name]))

    def _joined(self) -> Iterator[str]:
        """What only a function that joins all outputs of a model has in the graph: nothing is computed of it."""
        for name, value in self._values.items():
            if self._statuses[name] == "reached" and value in self._taken and value not in self._flowing.wanted:
                yield name

    def _tell_frozen(self, *, is_alarm: bool, may_lack: bool) -> None:
        """Tell what is frozen; ``may_lack`` is whether it may be all that keeps the loss from a graph."""
        own = (name for name in self._names_that_are("frozen") if name in self._subject.owned)
        nothing_learns = may_lack and "cut" not in self._statuses.values()
        is_alarm = nothing_learns or (is_alarm and self._given is not None)
        detail = "the loss depends on nothing that requires grad" if nothing_learns else ""
        names = [name for name in own if self._values[name] in self._flowing.wanted]
        trained = [name for name in names if is_alarm and (nothing_learns or self._is_trained(name))]
        self._tell_of("frozen", "error", trained, detail=detail)
        self._tell_of("frozen", "info", [name for name in names if name not in trained])

    def _tell_no_graph(self) -> None:
        """Tell where something that no backward starts from was made, if nothing else has told why."""
        is_told = any(cause.level == "error" for cause in self._causes)
        if self._subject.live is None and not is_told:
            maker = self._flow.step_of(self._flow.value_of(self._subject.captured[0]))
            self._tell("no_graph", "error", "", [], None if maker is None else maker.place)

    def _tell_optimizer(self) -> None:
        stale = [name for name in self._replaced if self._statuses[name] in {"reached", "zero", "nonfinite"}]
        self._tell_replaced(stale)
        own = {name: self._values[name] for name in self._names_that_are("reached") if name in self._subject.owned}
        lacking = {name: self._subject.tensors[name] for name in own if not self._is_trained(name)}
        lost = set(forgotten(self._flow, self._flowing, own, lacking)) if lacking else set[str]()
        # A step of a GAN or of an actor moves a part of what it reaches, and means to.
        lost -= held_otherwise({name: lacking[name] for name in lost})
        # The optimizer has only the target of what should learn.
        lost.update(self._swapped)
        forgot = [name for name in lacking if name in lost]
        if self._stale and not stale:
            self._tell_replaced(forgot)
        else:
            held = few(filter(self._is_trained, self._statuses)) if self._swapped else ""
            detail = f"it has only {held}, which no gradient comes to" if held else ""
            self._tell_of("not_in_optimizer", "error", forgot, detail=detail)
        self._tell_of("not_in_optimizer", "note", [name for name in lacking if name not in lost])
        self._tell_idle()
        self._tell_of("lent", "error", [name for name in self._names_that_are("reached") if name in self._subject.lent])

    def _tell_idle(self) -> None:
        """Tell that a step of the optimizer moves nothing, if nothing else that is an error has told why."""
        is_told = any(cause.level == "error" for cause in self._causes)
        if self._given is None or is_told or not self._moves_nothing():
            return
        zeros = {name for name in self._names_that_are("zero") if self._is_trained(name)}
        causes = [
            replace(cause, level="error")
            if cause.level in {"info", "note"} and zeros.intersection(cause.names)
            else cause
            for cause in self._causes
        ]
        if any(cause.kind == "equal" for cause in causes if zeros.intersection(cause.names)):
            # The loss is at its minimum, as where a student starts as a copy of its teacher.
            return
        self._causes = causes
        if not any(cause.level == "error" for cause in causes):
            count = len(self._given)
            detail = f"it has {count} tensor{'s' if count > 1 else ''}"
            self._tell("moves_nothing", "error", "", filter(self._is_trained, self._statuses), None, detail=detail)

    def _owned(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in self._subject.tensors.items() if name in self._subject.owned}

    def _all_stale(self) -> list[torch.Tensor]:
        used = self._leaves | {id(outside.tensor()) for outside in self._flow.outside}
        return left_over(self._subject.trained or (), self._owned(), used)

    def _tell_replaced(self, names: Sequence[str]) -> None:
        shapes = few(str(tuple(tensor.shape)) for tensor in self._stale)
        self._tell_of("replaced", "error", names, detail=f"of shape {shapes}")

    def _tell_unregistered(self) -> None:
        own = {id(tensor) for name, tensor in self._subject.tensors.items() if name in self._subject.owned}
        names = [name for name, tensor in self._subject.aside.items() if id(tensor) in self._leaves - own]
        self._tell_of("not_registered", "error", names)

    # What a backward gives.

    def _arrivals(self, live: LiveGraph, gradients: Gradients) -> dict[str, Arrival]:
        """What a backward gave each leaf that is reached."""
        accumulators = {id(fn.variable): fn for fn in live.grad_fns if type(fn).__name__ == ACCUMULATOR}
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

    def _tell_values(self, live: LiveGraph, gradients: Gradients, arrivals: Mapping[str, Arrival]) -> None:
        self._note_gradients(live, gradients)
        recorded = Recorded(self._words, self._flowing, self._made, self._values, self._subject.hooks)
        tensors = self._subject.tensors
        judge, told = Judge(live, gradients, recorded, arrivals, tensors), dict[Finding, list[str]]()
        for name, arrival in arrivals.items():
            status, said = judge.verdict(arrival, tensors[name])
            if status in {"zero", "nonfinite"}:
                self._statuses[name] = status
            elif status == "none" and self._statuses[name] != "cut":
                # Of what nothing is computed of, a function that joins all outputs of a model knows all the same.
                is_cut = self._values[name] in self._flowing.wanted or not self._is_whole
                is_inside = self._may_be_inside(self._values[name])
                self._statuses[name] = "unreached" if is_inside else "cut" if is_cut else "unused"
                said = said if is_cut and not is_inside else ()
            elif status == "none":
                said = ()
            for finding in said:
                told.setdefault(finding, []).append(name)
        for (kind, op, place, lasts, detail), names in told.items():
            is_alarm = lasts and (kind in BROKEN or any(map(self._is_trained, names)))
            self._tell(kind, _LEVELS.get(kind, "error" if is_alarm else "info"), op, names, place, detail=detail)

    def _tell_overwritten(self, live: LiveGraph) -> bool:
        """Tell of saved tensors that were overwritten unseen; returns whether these could be looked for."""
        if self._flow.overwritten.held and communicates(live):
            return False
        found = list[Overwrite]()
        # One backward has run; what another one raises proves nothing.
        with suppress(CaptureError, RuntimeError):
            found = overwrites(self._flow, self._flowing, live, self._made)
        for write in found:
            names = [
                name
                for name, tensor in self._subject.tensors.items()
                if id(tensor) in write.leaves and self._statuses[name] in {"reached", "wrong", "zero"}
            ]
            self._statuses.update((name, "wrong") for name in names if self._statuses[name] == "reached")
            detail = "; ".join([few(map(self._words.called_at, write.savers)), *write.how])
            level: Level = "error" if any(map(self._is_trained, names)) else "info"
            self._tell("overwritten", level, write.op, names, write.place, detail=detail)
        return True

    def _note_gradients(self, live: LiveGraph, gradients: Gradients) -> None:
        tensors = self._subject.tensors
        self._gradients = {
            name: gradients.of_leaf(tensors[name]) if id(tensors[name]) in self._leaves else "none"
            for name, status in self._statuses.items()
            if id(tensors[name]) in self._leaves or status in _WITHOUT
        }
        self._gradients_at = gradients.by_node(live)
        self._unnamed.note(gradients)

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
