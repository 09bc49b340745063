"""Explain missing gradients from a recorded forward pass and, if requested, a backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.explanations.model import Examined, Explanation, Level, OfGraph
from gradir.explanations.uniting import united
from gradir.frontends.pytorch.explaining.arrivals import BROKEN, Finding, Judge, Recorded
from gradir.frontends.pytorch.explaining.failures import is_spent, of_backward, of_forward
from gradir.frontends.pytorch.explaining.gradients import Arrival, Gradients, gradients_of, held_gradients
from gradir.frontends.pytorch.explaining.learning import Learning
from gradir.frontends.pytorch.explaining.loss_traps import traps
from gradir.frontends.pytorch.explaining.overwritten import Overwrite, communicates, overwrites
from gradir.frontends.pytorch.explaining.parallel import left_waiting
from gradir.frontends.pytorch.explaining.recurrent import has_seen_one_step, taker
from gradir.frontends.pytorch.explaining.terms import numbers_of, told_terms
from gradir.frontends.pytorch.explaining.words import called, few
from gradir.frontends.pytorch.explaining.writes import writes_over_saved
from gradir.frontends.pytorch.private import ACCUMULATOR
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.steps import Value
from gradir.spec import own_error

__all__ = ["Search"]

_LEVELS: Final[Mapping[str, Level]] = {"empty": "info", "opaque": "info", "rounding": "note", "starting": "note"}
"""Of kinds that are no alarm, whatever they concern."""

_WITHOUT: Final = frozenset({"cut", "frozen", "unreached", "unused"})
"""The statuses of what no gradient comes to."""

_SPENT: Final = "the backward has already run"

_SMALL: Final = 20_000
"""The nodes of a graph through which a backward is run to explain it, if nobody says otherwise."""


class Search(Learning):
    """Explains what was recorded."""

    def explanation(self, *, values: bool | None) -> Explanation:
        """Explain a loss; with ``values``, also by a backward that adds nothing to ``.grad``."""
        live = self.subject.live
        gradients, failure, examined = self._backward(values)
        arrivals = {} if gradients is None or live is None else self._arrivals(live, gradients)
        self.tell_stops()
        self.tell_exits()
        self.tell_exchanges()
        self.tell_puttings()
        self.tell_what_is_no_leaf()
        for trap in traps(self.flow, self.flowing):
            self.tell(trap.kind, "error", called(trap.step), (), trap.step.place, detail=trap.detail)
        if failure and live is not None:
            self.statuses = dict.fromkeys(self.statuses, "error")
            self.causes.extend(of_backward(self.flowing, live, self.made, self.words, failure))
        elif gradients is not None and live is not None:
            self._tell_values(live, gradients, arrivals)
            examined = replace(examined, overwritten=self._tell_overwritten(live))
        elif self.flowing.is_whole:
            self.statuses.update(dict.fromkeys(self.joined(), "unused"))
        self.tell_cleared()
        examined = self._read_gradients(examined)
        self.tell_what_does_not_learn()
        self.tell_no_graph()
        self.tell_optimizer()
        self.tell_unregistered()
        for names in self.subject.untied:
            self.tell_of("untied", "error", names)
        numbers = numbers_of(self.flow, self.flowing.terms, self.subject.captured) if gradients else {}
        terms = tuple(told_terms(self.flow, self.flowing.terms, numbers, self._names_behind, self.words.lines))
        causes = united(self.causes, self.statuses)
        return Explanation(
            self.statuses,
            causes,
            terms,
            self.subject.tied(),
            self.gradients,
            self._of_graph(),
            examined=examined,
        )

    def _backward(self, values: bool | None) -> tuple[Gradients | None, str, Examined]:
        """Run a backward if one is to be run; returns what it brought, what it raised, and what was examined."""
        live, left_out = self.subject.live, self._left_out(values)
        if live is None:
            return None, "", left_out
        if left_out.reason:
            is_stale = left_out.reason != _SPENT and writes_over_saved(self.flow, live, self.made)
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
        live = self.subject.live
        if live is None:
            return Examined()
        if values is False:
            return Examined(reason="values=False", advice="leave out values=False (--no-values)")
        if values is None and is_spent(self.flow, live, self.made, self.subject.captured):
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
        names = [name for name in self.names_that_are("reached") if self.subject.tensors[name].is_leaf]
        held = held_gradients({name: self.subject.tensors[name] for name in names})
        if set(held.values()) == {"zero"}:
            # That is what zero_grad(set_to_none=False) leaves behind.
            return replace(examined, reason=f"{_SPENT}, and `.grad` is zero throughout, as zero_grad() leaves it")
        self.gradients.update(held)
        for status in ("nonfinite", "zero"):
            found = [name for name, gradient in held.items() if gradient == status]
            self.statuses.update(dict.fromkeys(found, status))
            self.tell_of(f"{status}_grad", "error" if status in BROKEN else "info", found)
        return replace(examined, values="grad") if held and len(held) == len(names) else examined

    def _of_graph(self) -> OfGraph | None:
        live = self.subject.live
        if live is None:
            return None
        nodes = live.graph.nodes.values()
        names = {node.id: name for node in nodes for name in node.names if name in self.statuses}
        return OfGraph(names, self.gradients_at)

    def _names_behind(self, term: Value) -> tuple[str, ...]:
        """The leaves that a term gives a gradient, as far as it is known."""
        names = self.words.names_of(self.flowing.leaves_behind(term))
        return tuple(
            name
            for name in names
            if self.statuses[name] == "reached" or self.values[name] not in self.flowing.known_inside
        )

    def explanation_of_failure(self, error: BaseException) -> Explanation:
        """Explain why an operation of the recorded forward raised an error."""
        statuses = dict.fromkeys(self.statuses, "error")
        owned = {name: tensor for name, tensor in self.subject.tensors.items() if name in self.subject.owned}
        left = left_waiting(error, owned)
        told = (
            [self.words.cause("ddp_unused", "error", "", left, None)]
            if left
            else of_forward(self.words, own_error(error))
        )
        causes = united(told, statuses)
        return Explanation(statuses, causes, tied=self.subject.tied())

    def _arrivals(self, live: LiveGraph, gradients: Gradients) -> dict[str, Arrival]:
        """What a backward gave each leaf that is reached."""
        accumulators = {id(fn.variable): fn for fn in live.grad_fns if type(fn).__name__ == ACCUMULATOR}
        found = {
            name: gradients.at(tensor, accumulators[id(tensor)])
            for name, tensor in self.subject.tensors.items()
            if self.statuses[name] == "reached" and id(tensor) in accumulators
        }
        lost = self.stopped | self.left
        for name, arrival in found.items():
            if arrival.kind == "none" and self.values[name] in lost:
                # A function that joins all outputs of a model has it in the graph all the same.
                self.statuses[name] = "cut"
        return found

    def _tell_values(self, live: LiveGraph, gradients: Gradients, arrivals: Mapping[str, Arrival]) -> None:
        self._note_gradients(live, gradients)
        recorded = Recorded(self.words, self.flowing, self.made, self.values, self.subject.hooks)
        tensors = self.subject.tensors
        judge, told = Judge(live, gradients, recorded, arrivals, tensors), dict[Finding, list[str]]()
        for name, arrival in arrivals.items():
            status, said = judge.verdict(arrival, tensors[name])
            if status in {"zero", "nonfinite"}:
                self.statuses[name] = status
                if status == "zero" and has_seen_one_step(name, arrivals):
                    step = taker(self.flow, self.flowing, self.values[name])
                    said = said if step is None else (Finding("one_step", said[-1].op, step.place),)
            elif status == "none" and self.statuses[name] != "cut":
                # Of what nothing is computed of, a function that joins all outputs of a model knows all the same.
                is_cut = self.values[name] in self.flowing.wanted or not self.flowing.is_whole
                is_inside = self.flowing.may_be_inside(self.values[name])
                self.statuses[name] = "unreached" if is_inside else "cut" if is_cut else "unused"
                said = said if is_cut and not is_inside else ()
            elif status == "none":
                said = ()
            for finding in said:
                told.setdefault(finding, []).append(name)
        for (kind, op, place, lasts, detail), names in told.items():
            is_alarm = lasts and (kind in BROKEN or any(map(self.is_trained, names)))
            self.tell(kind, _LEVELS.get(kind, "error" if is_alarm else "info"), op, names, place, detail=detail)
        lost = None if any(cause.level == "error" for cause in self.causes) else judge.of_loss()
        if lost is not None:
            self.tell(lost.kind, "error", lost.op, (), lost.place, detail=lost.detail)

    def _tell_overwritten(self, live: LiveGraph) -> bool:
        """Tell of saved tensors that were overwritten unseen; returns whether these could be looked for."""
        if self.flow.overwritten.held and communicates(live):
            return False
        found = list[Overwrite]()
        # One backward has run; what another one raises proves nothing.
        with suppress(CaptureError, RuntimeError):
            found = overwrites(self.flow, self.flowing, live, self.made)
        for write in found:
            names = [
                name
                for name, tensor in self.subject.tensors.items()
                if id(tensor) in write.leaves and self.statuses[name] in {"reached", "wrong", "zero"}
            ]
            self.statuses.update((name, "wrong") for name in names if self.statuses[name] == "reached")
            detail = "; ".join([few(map(self.words.called_at, write.savers)), *write.how])
            level: Level = "error" if any(map(self.is_trained, names)) else "info"
            self.tell("overwritten", level, write.op, names, write.place, detail=detail)
        return True

    def _note_gradients(self, live: LiveGraph, gradients: Gradients) -> None:
        tensors = self.subject.tensors
        self.gradients = {
            name: gradients.of_leaf(tensors[name]) if id(tensors[name]) in self.leaves else "none"
            for name, status in self.statuses.items()
            if id(tensors[name]) in self.leaves or status in _WITHOUT
        }
        self.gradients_at = gradients.by_node(live)
        self.unnamed.note(gradients)
