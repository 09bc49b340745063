"""Explain missing gradients from a recorded forward pass and, if requested, a backward pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.explanations.from_cuts import unite_causes
from gradir.explanations.model import ByNode, Examined, Explanation, Level
from gradir.frontends.pytorch.explaining import failures, misuse, overwrites
from gradir.frontends.pytorch.explaining.arrivals import BROKEN, Finding, Judge
from gradir.frontends.pytorch.explaining.bytecode import find_leaf_made, find_skipping_conditions
from gradir.frontends.pytorch.explaining.gradients import Arrival, Gradients, measure_gradients
from gradir.frontends.pytorch.explaining.intended_cuts import Followers
from gradir.frontends.pytorch.explaining.losses import WITHOUT, Losses
from gradir.frontends.pytorch.explaining.magnitudes import measure_grad_fields
from gradir.frontends.pytorch.explaining.naming import describe_terms, explain_unused, list_first, operation_name
from gradir.frontends.pytorch.private import ACCUMULATOR, DDP_SINK
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.recording.places import Place, Places
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Value, plain_name
from gradir.frontends.walks import find_reachable
from gradir.ir.memo import group_by_key
from gradir.spec import describe_error

# Kinds that are never errors.
_LEVELS: Final[Mapping[str, Level]] = {"empty": "info", "opaque": "info", "rounding": "note", "starting": "note"}
_SPENT: Final = "the backward has already run"

# gradir runs no backward of larger graphs unless the user asks for values.
_SMALL: Final = 20_000


class Search(Losses):
    """Explains a recorded forward, and compares the parameters that get a gradient with those that are trained."""

    # The line of the program's own code at which the backward raised.
    _failed_at: Place | None = None

    def tell_idle(self) -> None:
        """Report unused and frozen parameters."""
        moves_nothing = self.moves_nothing()
        unused = [name for name in self.names_that_are("unused") if self.is_trained(name)]
        never_taken = [name for name in unused if self.values[name] not in self.flowing.taken]
        skipped = find_skipping_conditions(self.flow, self.subject.paths, never_taken)
        frozen = self.names_that_are("frozen")
        # A merged LoRA is skipped, and the frozen weight that replaces it is not in the optimizer.
        is_elsewhere = bool(skipped) and self.given is not None and not any(map(self.is_trained, frozen))
        # If only frozen parameters lead to the loss, they explain why it lacks the others.
        is_first = self.subject.live is None and not is_elsewhere
        if is_first:
            self._tell_frozen(is_alarm=moves_nothing, may_lack=True)
        self._tell_unused("error" if moves_nothing else "info", unused, skipped)
        if not is_first:
            self._tell_frozen(is_alarm=moves_nothing, may_lack=False)

    def _tell_unused(self, level: Level, names: Sequence[str], skipped: Mapping[str, Place]) -> None:
        # DistributedDataParallel waits for all parameters, even if the loss uses only some outputs.
        live = self.subject.live
        waits = live is not None and any(type(fn).__name__ == DDP_SINK for fn in live.grad_fns)
        joined = [name for name in names if waits and id(self.subject.tensors[name]) in self.leaves]
        if joined:
            step = misuse.find_first_step_after_ddp(self.flow, self.flowing.wanted)
            detail = "the loss is made of other outputs here" if step else ""
            self.tell("unused", "error", "", joined, None if step is None else step.place, detail=detail)
        waiting = misuse.find_parameters_of_failing_ddp(self.flow, self.leaves)
        awaited = [name for name in names if id(self.subject.tensors[name]) in waiting]
        self.tell_of("ddp_unused", "error", awaited)
        others = {name: self.values[name] for name in names}
        for name in (*joined, *awaited):
            others.pop(name, None)
        for name in filter(others.__contains__, skipped):
            self.tell("skipped", level, "", [name], skipped[name])
        alone = {name: value for name, value in others.items() if name not in skipped}
        self.causes.extend(explain_unused(self.words, self.flowing, level, alone))
        unknown = [name for name in self.names_that_are("unreached") if self.is_trained(name)]
        opaque = [name for name in unknown if self.flowing.may_be_inside(self.values[name])]
        self.tell_of("opaque", "info", opaque)
        unrecorded = [name for name in unknown if name not in opaque]
        if unrecorded:
            unseen = self.flowing.unseen
            takers = (step.place for step in self.flow.steps if any(read.value in unseen for read in step.inputs))
            self.tell("unrecorded", "info", "", unrecorded, next(takers, None))

    def _tell_frozen(self, *, is_alarm: bool, may_lack: bool) -> None:
        """Report frozen parameters. With ``may_lack``, they may be the only reason why the loss has no graph."""
        own = (name for name in self.names_that_are("frozen") if name in self.subject.owned)
        nothing_learns = may_lack and "cut" not in self.statuses.values()
        is_alarm = nothing_learns or (is_alarm and self.given is not None)
        detail = "the loss depends on nothing that requires grad" if nothing_learns else ""
        names = [name for name in own if self.values[name] in self.flowing.wanted]
        trained = [name for name in names if is_alarm and (nothing_learns or self.is_trained(name))]
        order = [*trained, *(name for name in names if name not in trained)]
        for (is_error, place), group in group_by_key(
            ((name in trained, self._freezing_place(name)), name) for name in order
        ).items():
            self.tell("frozen", "error" if is_error else "info", "", group, place, detail=detail if is_error else "")

    def _freezing_place(self, name: str) -> Place | None:
        tensor = self.subject.tensors[name]
        frozen, place = self.flow.freezings.get(id(tensor), (None, None))
        return place if frozen is not None and frozen() is tensor else None

    def tell_no_graph(self) -> None:
        """Report the line that made a loss without a graph, if no other error explains it."""
        has_error = any(cause.level == "error" for cause in self.causes)
        if self.subject.live is None and not has_error:
            maker = self.flow.step_of(self.flow.value_of(self.subject.captured[0]))
            self.tell("no_graph", "error", "", [], None if maker is None else maker.place)

    def tell_optimizer(self) -> None:
        """Report parameters with a gradient that the optimizer lacks, and an optimizer that moves nothing."""
        stale = [name for name in self.replaced if self.statuses[name] in {"reached", "zero", "nonfinite"}]
        self._tell_replaced(stale)
        # A frozen parameter in the optimizer counts too: nobody would choose it and leave out one that learns.
        known = [
            name
            for name, status in self.statuses.items()
            if status == "reached" or (status == "frozen" and self.given and self.is_trained(name))
        ]
        own = {name: self.values[name] for name in known if name in self.subject.owned}
        lacking = {name: self.subject.tensors[name] for name in own if not self.is_trained(name)}
        lost = set(misuse.find_forgotten(self.flow, self.flowing, own, lacking)) if lacking else set[str]()
        # A step of a GAN or of an actor moves only some of the parameters with a gradient, on purpose.
        lost -= misuse.find_in_living_optimizers({name: lacking[name] for name in lost})
        lost -= self._following(lost)
        # The optimizer has the target network instead of the trained one.
        lost.update(self.swapped)
        forgotten = [name for name in lacking if name in lost]
        if self.stale and not stale:
            self._tell_replaced(forgotten)
        else:
            trained = list_first(filter(self.is_trained, self.statuses)) if self.swapped else ""
            detail = f"it has only {trained}, which gets no gradient" if trained else ""
            late = {name: place for name in forgotten if (place := self._find_place_in_forward(name)) is not None}
            for name, place in late.items():
                self.tell(
                    "not_in_optimizer",
                    "error",
                    "",
                    [name],
                    place,
                    detail="made here, in a forward, and not before the optimizer",
                )
            forgotten = [name for name in forgotten if name not in late]
            self.tell_of("not_in_optimizer", "error", forgotten, detail=detail)
        self.tell_of("not_in_optimizer", "note", [name for name in lacking if name not in lost])
        self._tell_moves_nothing()
        self.tell_of("lent", "error", [name for name in self.names_that_are("reached") if name in self.subject.lent])

    def _find_place_in_forward(self, name: str) -> Place | None:
        value = self.values[name]
        shared = self.flow.outside[value.number].shared if value.maker == FROM_OUTSIDE else None
        maker = None if shared is None else self.flow.step_of(shared)
        return None if maker is None or maker.call is None else find_leaf_made(maker.place, maker.place, ())

    def _following(self, lost: Collection[str]) -> set[str]:
        # A target network may run with gradients.
        followers = Followers(
            self.flowing, self.leaves & (self.given or set()), lambda leaf: tuple(self.words.names_of([leaf]))
        )
        networks = group_by_key((name.partition(".")[0], name) for name in lost).values()
        of_each = {tuple(names): [self.values[name] for name in names] for names in networks}
        return {name for names, leaves in of_each.items() if followers.pattern(leaves, {"return"}) for name in names}

    def _tell_moves_nothing(self) -> None:
        """Report that a step of the optimizer moves nothing, if no other error explains it."""
        has_error = any(cause.level == "error" for cause in self.causes)
        if self.given is None or has_error or not self.moves_nothing():
            return
        zeros = {name for name in self.names_that_are("zero") if self.is_trained(name)}
        concerned = [cause for cause in self.causes if zeros.intersection(cause.names)]
        # At its minimum, as of a copied student or a hinge, a loss gives zero gradients.
        is_zero = not any(bool(tensor.any()) for tensor in self.subject.captured)
        if any(cause.kind == "equal" or (cause.kind == "dead" and is_zero) for cause in concerned):
            return
        self.causes = [replace(cause, level="error") if cause in concerned else cause for cause in self.causes]
        if not concerned:
            count = len(self.given)
            detail = f"it has {count:,} tensor{'s' if count > 1 else ''}"
            self.tell("moves_nothing", "error", "", filter(self.is_trained, self.statuses), None, detail=detail)

    def _tell_replaced(self, names: Sequence[str]) -> None:
        shapes = list_first(str(tuple(tensor.shape)) for tensor in self.stale)
        self.tell_of("replaced", "error", names, detail=f"of shape {shapes}")

    def tell_unregistered(self) -> None:
        """Report tensors with a gradient that are no parameters of the model."""
        unowned = self.leaves.difference(map(id, self.module_parameters().values()))
        # A tensor may have several names, for example if a module computes others from it.
        first = {id(tensor): name for name, tensor in reversed([*self.subject.aside.items()])}
        names = [name for key, name in reversed([*first.items()]) if key in unowned]
        lacking = {name: self.subject.aside[name] for name in names if self.statuses.get(name) != "nonleaf"}
        optimized = misuse.find_in_living_optimizers(lacking)
        self.tell_of("not_registered", "note", [name for name in lacking if name in optimized])
        others = {name: self.flow.value_of(tensor) for name, tensor in lacking.items() if name not in optimized}
        taken = {name: self.flowing.first_takers.get(self.flowing.root(leaf)) for name, leaf in others.items()}
        steps = {name: None if index is None else self.flow.steps[index] for name, index in taken.items()}
        # A step outside of a forward builds a module, which keeps a tensor computed from the parameter.
        built = {name: step for name, step in steps.items() if step is None or step.call is None}
        self.tell_of("not_registered", "error", [name for name in others if name not in built])
        for name, step in built.items():
            self.tell("nonleaf", "error", "", [name], None if step is None else step.place)

    def explanation(self, *, values: bool | None) -> Explanation:
        """Explain a loss. With ``values``, also run a backward that adds nothing to ``.grad``."""
        live = self.subject.live
        gradients, failure, examined = self._backward(values)
        arrivals = {} if gradients is None or live is None else self._arrivals(live, gradients)
        self.tell_stops()
        self.tell_exits()
        self.tell_exchanges()
        self.tell_puttings()
        self.tell_what_is_no_leaf()
        for trap in misuse.find_loss_faults(self.flow, self.flowing):
            self.tell(trap.kind, "error", operation_name(trap.step), (), trap.step.place, detail=trap.detail)
        if failure and live is not None:
            self.statuses = dict.fromkeys(self.statuses, "error")
            self.causes.extend(failures.explain_backward(self.flowing, live, self.words, failure, self._failed_at))
        elif gradients is not None and live is not None:
            self._tell_values(live, gradients, arrivals)
            self._tell_ignoring_functions(live)
            examined = replace(examined, overwritten=self._tell_overwritten(live))
        elif self.flowing.is_whole:
            # A function that joins all outputs of a model keeps unused leaves in the graph.
            joined = self.flowing.taken - self.flowing.wanted
            idle = [name for name in self.names_that_are("reached") if self.values[name] in joined]
            self.statuses.update(dict.fromkeys(idle, "unused"))
        self.tell_cleared()
        examined = self._read_gradients(examined)
        self.tell_idle()
        self.tell_no_graph()
        self.tell_optimizer()
        self.tell_unregistered()
        for names in self.subject.untied:
            self.tell("untied", "error", "", names, self._find_copying_place(names))
        numbered = self.subject.captured if gradients else None
        terms = tuple(describe_terms(self.words, self.flowing, numbered, self._names_of_term))
        tied, causes = self.subject.find_tied_names(), unite_causes(self.causes, self.statuses)
        nodes = () if live is None else live.graph.nodes.values()
        named = {node.id: name for node in nodes for name in node.names if name in self.statuses}
        by_node = None if live is None else ByNode(named, self.gradients_at)
        return Explanation(self.statuses, causes, terms, tied, self.gradients, by_node, examined=examined)

    def _backward(self, values: bool | None) -> tuple[Gradients | None, str, Examined]:
        """Run a backward if allowed, and return its gradients, error, and a record."""
        live = self.subject.live
        if live is None:
            return None, "", Examined()
        skipped = self._choose_examination(live, values)
        if skipped.reason:
            is_stale = skipped.reason != _SPENT and failures.find_stale_writes(self.flow, live)
            return None, "a saved tensor was changed in place" if is_stale else "", skipped
        try:
            return measure_gradients(live), "", Examined("backward")
        except CaptureError as error:
            # gradir's backward would change the program's own, which matters more than the values.
            return None, "", Examined(reason=str(error))
        except Exception as error:
            self._failed_at = Places().locate_error(error.__traceback__)
            # Another error, without a line of the program, is gradir's own.
            if self._failed_at is None and not isinstance(error, RuntimeError):
                raise
            return None, describe_error(error), skipped

    def _choose_examination(self, live: LiveGraph, values: bool | None) -> Examined:
        if values is False:
            return Examined(reason="values=False", advice="leave out values=False (--no-values)")
        if values is None and failures.is_spent(self.flow, live, self.subject.captured):
            return Examined(reason=_SPENT, advice="explain before backward(), or call backward(retain_graph=True)")
        if values is None and len(live.graph.nodes) > _SMALL:
            reason = f"the graph has {len(live.graph.nodes):,} nodes, which is more than {_SMALL:,}"
            return Examined(reason=reason, advice="pass values=True (--values)")
        return Examined()

    def _read_gradients(self, examined: Examined) -> Examined:
        """Report gradients in `.grad` that are zero or not finite, if the program has run its own backward."""
        if examined.reason != _SPENT:
            return examined
        names = [name for name in self.names_that_are("reached") if self.subject.tensors[name].is_leaf]
        gradients = measure_grad_fields({name: self.subject.tensors[name] for name in names})
        if set(gradients.values()) == {"zero"}:
            # zero_grad(set_to_none=False) sets all gradients to zero.
            return replace(examined, reason=f"{_SPENT}, and `.grad` is zero throughout, as zero_grad() leaves it")
        self.gradients.update(gradients)
        for status in ("nonfinite", "zero"):
            found = [name for name, gradient in gradients.items() if gradient == status]
            self.statuses.update(dict.fromkeys(found, status))
            self.tell_of(f"{status}_grad", "error" if status in BROKEN else "info", found)
        return replace(examined, values="grad") if gradients and len(gradients) == len(names) else examined

    def _find_copying_place(self, names: Sequence[str]) -> Place | None:
        """Return the line that made one of these tensors a copy, if it was recorded."""
        values, steps = {self.values[name] for name in names}, self.flow.steps
        storages = filter(None, (storage_of(self.subject.tensors[name]) for name in names))
        writes = {at for storage in storages for at in self.flow.writes(storage)}
        copies = {at for at in writes if plain_name(steps[at].func) == "copy"}
        shared = (self.flow.outside[each.number].shared for each in values if each.maker == FROM_OUTSIDE)
        # A copied parameter has the storage of a clone, and a new one that of an empty tensor.
        copies.update(each.maker for each in shared if each and (maker := self.flow.step_of(each)) and maker.inputs)
        made = [stop.place for stop in self.flowing.stops if stop.value in values]
        return [*(steps[at].place for at in sorted(copies)), *made][-1] if copies or made else None

    def _names_of_term(self, term: Value) -> tuple[str, ...]:
        names, inside = self.words.names_of(self.flowing.leaves_behind(term)), self.flowing.known_inside
        return tuple(name for name in names if self.statuses[name] == "reached" or self.values[name] not in inside)

    def explanation_of_failure(self, error: BaseException) -> Explanation:
        """Explain why an operation of the recorded forward raised an error."""
        statuses = dict.fromkeys(self.statuses, "error")
        awaited = misuse.find_ddp_unused(error, self.module_parameters())
        found = failures.explain_forward(self.words, describe_error(error))
        causes = [self.words.cause("ddp_unused", "error", "", awaited, None)] if awaited else found
        return Explanation(statuses, unite_causes(causes, statuses), tied=self.subject.find_tied_names())

    def _arrivals(self, live: LiveGraph, gradients: Gradients) -> dict[str, Arrival]:
        accumulators = {id(fn.variable): fn for fn in live.grad_fns if type(fn).__name__ == ACCUMULATOR}
        reached = ((name, self.subject.tensors[name]) for name in self.names_that_are("reached"))
        known = ((name, tensor, accumulators.get(id(tensor))) for name, tensor in reached)
        found = {name: gradients.arrival_at(tensor, fn) for name, tensor, fn in known if fn is not None}
        lost = self.stopped | self.left
        for name, arrival in found.items():
            if arrival.kind == "none" and self.values[name] in lost:
                # The graph has the leaf only because a function joins all outputs of a model.
                self.statuses[name] = "cut"
        return found

    def _tell_values(self, live: LiveGraph, gradients: Gradients, arrivals: Mapping[str, Arrival]) -> None:
        self._record_gradients(live, gradients)
        tensors = self.subject.tensors
        judge, names_of = Judge(live, gradients, self, arrivals), dict[Finding, list[str]]()
        for name, arrival in arrivals.items():
            status, findings = judge.verdict(arrival, tensors[name])
            if status in {"zero", "nonfinite"}:
                self.statuses[name] = status
                if status == "zero" and misuse.has_seen_one_step(name, arrivals):
                    step = misuse.find_selecting_step(self.flow, self.flowing, self.values[name])
                    findings = findings if step is None else [Finding("one_step", findings[-1].op, step.place)]
            elif status == "none" and self.statuses[name] != "cut":
                # The graph may have an unused leaf, if a function joins all outputs of a model.
                is_cut = self.values[name] in self.flowing.wanted or not self.flowing.is_whole
                is_inside = self.flowing.may_be_inside(self.values[name])
                self.statuses[name] = "unreached" if is_inside else "cut" if is_cut else "unused"
                findings = findings if is_cut and not is_inside else ()
            elif status == "none":
                findings = ()
            for finding in findings:
                names_of.setdefault(finding, []).append(name)
        for (kind, op, place, lasts, detail), names in names_of.items():
            is_alarm = lasts and (kind in BROKEN or any(map(self.is_trained, names)))
            self.tell(kind, _LEVELS.get(kind, "error" if is_alarm else "info"), op, names, place, detail=detail)
        kinds = {cause.kind for cause in self.causes if cause.level == "error"}
        lost = judge.explain_loss() if kinds <= {"lost"} else None
        if lost is not None and (lost.op or not kinds):
            self.tell(lost.kind, "error", lost.op, (), lost.place, detail=lost.detail)

    def _tell_ignoring_functions(self, live: LiveGraph) -> None:
        for kind, fns in misuse.find_ignoring_functions(live, self.gradients_at).items():
            reached = find_reachable(fns, lambda fn: [below for below, _ in fn.next_functions if below])
            leaves = {id(fn.variable) for fn in reached if type(fn).__name__ == ACCUMULATOR}
            names = [name for name in self.names_that_are("reached") if id(self.subject.tensors[name]) in leaves]
            step = failures.find_function_call(self.flow.steps, kind.__name__)
            self.statuses.update(dict.fromkeys(names, "wrong"))
            level: Level = "error" if any(map(self.is_trained, names)) else "info"
            if names:
                self.tell("ignores_gradient", level, kind.__name__, names, None if step is None else step.place)

    def _tell_overwritten(self, live: LiveGraph) -> bool:
        """Report saved tensors that were overwritten unnoticed, and return whether gradir could look for them."""
        if self.flow.overwritten.held and overwrites.may_communicate(live):
            return False
        found = list[overwrites.Overwrite]()
        # A backward has run already, so an error of another one proves nothing.
        with suppress(CaptureError, RuntimeError):
            found = overwrites.find_overwrites(self.flow, self.flowing, live)
        for write in found:
            affected = (name for name, tensor in self.subject.tensors.items() if id(tensor) in write.leaves)
            names = [name for name in affected if self.statuses[name] in {"reached", "wrong", "zero"}]
            self.statuses.update((name, "wrong") for name in names if self.statuses[name] == "reached")
            detail = "; ".join([list_first(map(self.words.describe_step, write.savers)), *write.how])
            level: Level = "error" if any(map(self.is_trained, names)) else "info"
            self.tell("overwritten", level, write.op, names, write.place, detail=detail)
        return True

    def _record_gradients(self, live: LiveGraph, gradients: Gradients) -> None:
        for name, status in self.statuses.items():
            tensor = self.subject.tensors[name]
            if id(tensor) in self.leaves:
                self.gradients[name] = gradients.measure_leaf(tensor)
            elif status in WITHOUT:
                self.gradients[name] = "none"
        self.gradients_at = gradients.norms_by_node(live)
        self.unnamed.note(gradients)
