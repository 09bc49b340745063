"""Find losses with wrong inputs, recurrent outputs of one step, and parameters that an optimizer lacks."""

from __future__ import annotations

import dis
import inspect
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.autograd.function import FunctionCtx

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.explaining.gradients import Arrival, Gradients
from gradir.frontends.pytorch.explaining.subject import Subject, is_master_copy
from gradir.frontends.pytorch.private import fields_of
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.members import iter_named_parameters
from gradir.frontends.pytorch.reading.reach import (
    class_of,
    find_instances,
    is_reentrant_checkpoint,
    is_torch_module,
)
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import SHOWING, Read, Step, Value, plain_name
from gradir.frontends.pytorch.recording.timelines import Frame, calls_from
from gradir.frontends.walks import follow
from gradir.ir import Node
from gradir.ir.memo import group_by_key

_COMPARING: Final = frozenset({"huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"})
_SOFTMAX: Final = frozenset({"safe_softmax", "softmax"})
# The results of these are scores, not logarithms of probabilities.
_OF_LOGITS: Final = frozenset({"addbmm", "addmm", "baddbmm", "bmm", "convolution", "mm", "native_layer_norm"})
_MOST_BACK: Final = 16


class LossFault(NamedTuple):
    """A fault of the loss at a step, with a detail."""

    kind: str
    step: Step
    detail: str = ""


def find_loss_faults(flow: Flow, flowing: Flowing) -> Iterable[LossFault]:
    """Return the faults of the operations that compute a loss, each place once."""
    found: dict[object, LossFault] = {}
    for index, step in enumerate(flow.steps):
        wanted = not flowing.wanted.isdisjoint(flow.values_of_step(index))
        if wanted and (fault := _find_loss_fault(flow, step, index)) is not None:
            found.setdefault((fault.kind, step.place), fault)
    return found.values()


def _find_loss_fault(flow: Flow, step: Step, index: int) -> LossFault | None:
    name = plain_name(step.func)
    if (step.called in _COMPARING and name in _COMPARING) or (name == "sub" and _is_measured(flow, index)):
        return _find_broadcast(flow, step)
    if step.called == "cross_entropy" and name == "log_softmax" and _name_maker(flow, step.inputs[0].value) in _SOFTMAX:
        return LossFault("softmax_twice", step)
    if name == "binary_cross_entropy_with_logits" and _name_maker(flow, step.inputs[0].value) == "sigmoid":
        return LossFault("sigmoid_twice", step)
    # kl_div multiplies its target by its input, which is in slot 1.
    slot = 0 if step.called == "nll_loss" else 1 if step.called == "kl_div" and name == "mul" else len(step.inputs)
    if slot < len(step.inputs) and step.inputs[slot].carries:
        maker = _name_maker(flow, step.inputs[slot].value)
        if maker in _SOFTMAX or (maker in _OF_LOGITS and step.called == "nll_loss"):
            return LossFault("not_log", step, f"they come from {maker}")
    return None


def _find_broadcast(flow: Flow, step: Step) -> LossFault | None:
    """Return the fault of a loss that broadcasts a column of results against a row of targets."""
    if len(step.inputs) != 2:
        return None
    left, right = (_undo_expansion(flow, read) for read in step.inputs)
    # A pairwise difference has its gradient on both sides.
    if left.carries == right.carries:
        return None
    first, second = (flow.meta_of(read.value).shape or () for read in (left, right))
    longer, shorter = (first, second) if len(first) > len(second) else (second, first)
    if len(longer) != len(shorter) + 1 or longer[-1] != 1 or longer[:-1] != shorter or shorter[-1:] in {(), (1,)}:
        return None
    shapes = " against ".join(str(tuple(shape)) for shape in (first, second))
    return LossFault("broadcast", step, f"{shapes} gives {(*shorter, shorter[-1])}")


def _undo_expansion(flow: Flow, read: Read) -> Read:
    """Return an argument of a loss before the loss expanded it."""
    maker = flow.step_of(read.value)
    if maker is None or plain_name(maker.func) != "expand" or maker.called not in _COMPARING | {"broadcast_tensors"}:
        return read
    return maker.inputs[0]


def _is_measured(flow: Flow, index: int) -> bool:
    """Return whether one of the next two steps measures a difference, as in ``((output - target) ** 2).mean()``."""
    made = set(flow.values_of_step(index))
    for after in flow.steps[index + 1 : index + 3]:
        takes = [read.value in made for read in after.inputs]
        if any(takes):
            name = plain_name(after.func)
            return name in {"abs", "pow", "square"} or (name == "mul" and all(takes))
    return False


def _name_maker(flow: Flow, value: Value) -> str:
    def skip_view(step: Step) -> Step | None:
        is_view = plain_name(step.func) in SHOWING and bool(step.inputs)
        return flow.step_of(step.inputs[0].value) if is_view else None

    names = [plain_name(step.func) for step in islice(follow(flow.step_of(value), skip_view), _MOST_BACK)]
    return "" if not names or names[-1] in SHOWING else names[-1]


_OF_STATE: Final = re.compile(r"(.*\.)?weight_hh_l(\d+)(_reverse)?", re.DOTALL)
_CHOOSING: Final = frozenset({"gather", "index", "index_select", "select", "slice", "split", "unbind"})
# Operations that keep the steps of a sequence apart.
_KEEPING: Final = frozenset(
    {"clone", "div", "mul", "native_dropout", "native_layer_norm", "permute", "relu", "tanh", "to_copy", "transpose"}
)


def has_seen_one_step(name: str, arrivals: Mapping[str, Arrival]) -> bool:
    """Return whether a recurrent weight has a zero gradient because the loss reads only one step of its direction."""
    found = _OF_STATE.fullmatch(name)
    if found is None:
        return False
    path, layer, reverse = found.groups(default="")
    other = f"{path}weight_hh_l{layer}" if reverse else f"{name}_reverse"
    # Then it multiplies the initial state, while the weights of the input and of the other direction learn.
    partners = (other, f"{path}weight_ih_l{layer}{reverse}")
    return all(each in arrivals and arrivals[each].kind == "some" for each in partners)


def find_selecting_step(flow: Flow, flowing: Flowing, leaf: Value) -> Step | None:
    """Return the first step that selects entries from the results of the modules that use a leaf."""
    inside = [step for step in flow.steps if any(flowing.root(read.value) == leaf for read in step.inputs)]
    calls = {id(step.call) for step in inside if step.call is not None}
    whole, passing = set[Value](), flowing.wanted & flowing.carrying
    for index, step in enumerate(flow.steps):
        made = flow.values_of_step(index)
        if id(step.call) in calls:
            whole.update(made)
        elif not whole.isdisjoint(read.value for read in step.inputs) and not passing.isdisjoint(made):
            if plain_name(step.func) in _CHOOSING:
                return step
            if plain_name(step.func) not in _KEEPING:
                return None
            whole.update(made)
    return None


_INDICES: Final = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


def find_parameters_of_failing_ddp(flow: Flow, reached: Set[int]) -> set[int]:
    """Return the ids of parameters whose DistributedDataParallel will raise an error, since some get no gradient."""
    calls = {id(step.call): step.call for step in flow.steps}
    around = (call for innermost in calls.values() for call in calls_from(innermost))
    found: set[int] = set()
    for module in {id(call.module): call.module for call in around if _is_parallel(call)}.values():
        is_allowed = fields_of(module).get("find_unused_parameters") or fields_of(module).get("static_graph")
        own = {id(parameter) for _, parameter in iter_named_parameters(module) if parameter.requires_grad}
        found |= set() if is_allowed or own.isdisjoint(reached) else own
    return found


def find_first_step_after_ddp(flow: Flow, wanted: Set[Value]) -> Step | None:
    """Return the first step of a loss after the last forward of a DistributedDataParallel."""
    inside = (index for index, step in enumerate(flow.steps) if any(map(_is_parallel, calls_from(step.call))))
    last = max(inside, default=len(flow.steps))
    later = enumerate(flow.steps[last + 1 :], last + 1)
    return next((step for index, step in later if not wanted.isdisjoint(flow.values_of_step(index))), None)


def _is_parallel(call: Frame) -> bool:
    return isinstance(call.module, nn.parallel.DistributedDataParallel)


def find_ddp_unused(error: BaseException, parameters: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the parameters without a gradient that an error of DistributedDataParallel lists by number."""
    found = _INDICES.search(str(error))
    names = [*{id(tensor): name for name, tensor in parameters.items() if tensor.requires_grad}.values()]
    indices = map(int, found[1].split()) if found else ()
    return [names[index] for index in indices if index < len(names)]


def find_ignoring_functions(live: LiveGraph, norms: Mapping[str, float | str]) -> Mapping[Any, Sequence[GradFn]]:
    """Return by class the custom Functions whose backward never reads its gradient, which has these norms."""
    nodes = live.graph.nodes
    scaled = (fn for fn, key in live.grad_fns.items() if not _is_of_loss(nodes[key], norms.get(key)))
    groups = group_by_key((class_of(fn), fn) for fn in scaled if isinstance(fn, FunctionCtx))
    return {kind: fns for kind, fns in groups.items() if not is_torch_module(kind.__module__) and _ignores(kind)}


def _is_of_loss(node: Node, norm: float | str | None) -> bool:
    """Return whether the gradient of a node is one number or may be ones, as a loss gives."""
    shapes = ([each for each in output.shape or () if isinstance(each, int)] for output in node.outputs)
    size = sum(map(math.prod, shapes))
    return size <= 1 or (isinstance(norm, float) and math.isclose(norm, math.sqrt(size), rel_tol=1e-4))


def _ignores(kind: Any) -> bool:
    code = getattr(inspect.unwrap(kind.backward), "__code__", None)
    if code is None or code.co_argcount < 2 or code.co_flags & inspect.CO_VARARGS:
        return False
    loaded = (each.argval for each in dis.get_instructions(code) if "LOAD_FAST" in each.opname)
    read = {name for names in loaded for name in (names if isinstance(names, tuple) else (names,))}
    return read.union(code.co_cellvars).isdisjoint(code.co_varnames[1 : code.co_argcount])


_SCALING: Final = frozenset({"div", "mean", "mul", "squeeze", "sum", "to_copy", "unsqueeze", "view"})
_ADDING: Final = frozenset({"add", "cat", "maximum", "minimum", "stack", "sub"})
# These give the unbounded score of a critic.
_SCORING: Final = frozenset({"addmm", "bmm", "convolution", "dot", "mm", "mv"})
_DECIDING: Final = frozenset({"log", "log_sigmoid_forward", "sigmoid", "softplus"})
_AGAINST_CONSTANTS: Final = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss"})
_MOST_SUMMANDS: Final = 64


class Unnamed:
    """The tensors of an optimizer without a name, such as those of another model."""

    def __init__(self, subject: Subject, *, is_open: bool) -> None:
        """With ``is_open``, compiled code may take further tensors."""
        named = set(map(id, subject.tensors.values()))
        self._tensors = {id(tensor): tensor for tensor in subject.trained or () if id(tensor) not in named}
        self._flow, self._live = subject.flow, subject.live
        self._leaves = {} if self._live is None else {id(leaf): leaf for leaf in self._live.leaves.values()}
        self._is_open = is_open
        self._gradients: dict[int, float | str] = {}

    def note(self, gradients: Gradients) -> None:
        """Record the gradients of a backward pass."""
        self._gradients = {key: gradients.measure_leaf(tensor) for key, tensor in self._tensors.items()}

    def lacks_any(self, leaves: Iterable[Value]) -> bool:
        """Return whether the optimizer has one of these leaves unnamed, and it gets no gradient."""
        tensors = map(self._flow.tensor_of, leaves)
        return any(id(tensor) in self._tensors and id(tensor) not in self._leaves for tensor in tensors)

    def may_move(self) -> bool:
        """Return whether one of them gets a gradient, or may get one unseen."""
        return any(map(self._may_move, self._tensors.values()))

    def _may_move(self, tensor: torch.Tensor) -> bool:
        if id(tensor) in self._leaves:
            return self._gradients.get(id(tensor)) not in {"none", "zero"}
        if self._live is None:
            return False
        # A distributed tensor gets its gradient through another tensor.
        is_plain = type(tensor) in {torch.Tensor, nn.Parameter} and not is_master_copy([tensor], self._leaves.values())
        return not is_plain or self._is_open or any(map(is_reentrant_checkpoint, self._live.grad_fns))


def find_in_living_optimizers(tensors: Mapping[str, torch.Tensor]) -> set[str]:
    """Return the names of the tensors that any living optimizer has, such as the second one of a GAN."""
    names = {id(tensor): name for name, tensor in tensors.items()}
    return {names[key] for keys in (_keys_of_optimizers() if names else ()) for key in keys if key in names}


def has_twin(tensors: Set[int]) -> bool:
    """Return whether two living optimizers have just these tensors, by id()."""
    return sum(keys == tensors for keys in _keys_of_optimizers()) > 1


def _keys_of_optimizers() -> Iterator[set[int]]:
    for optimizer in find_instances(torch.optim.Optimizer):
        groups = fields_of(optimizer).get("param_groups") or ()
        yield {id(tensor) for group in groups for tensor in group["params"]}


def find_forgotten(flow: Flow, flowing: Flowing, model: Mapping[str, Value], lacking: Collection[str]) -> Sequence[str]:
    """Return the ``lacking`` names that an optimizer should have, since it has other parameters of the ``model``."""
    trained = [name for name in model if name not in lacking]
    lacking_in, trained_in = ({f"{name.rpartition('.')[0]}." for name in names} for names in (lacking, trained))
    # A program may train only a prompt or scale of the whole model, in a module around all others.
    if lacking_in.isdisjoint(trained_in) and all(
        path == "." or each.startswith(path) for path in trained_in for each in lacking_in
    ):
        return ()
    first = flowing.first_takers
    calls = {leaf: flow.steps[index].call for leaf, index in first.items()}
    # The leaves that modules in evaluation mode use.
    evaluating = {leaf for leaf, call in calls.items() if call and fields_of(call.module).get("training") is False}
    start, last = min(first.get(model[name], 0) for name in trained), [*model].index(trained[-1])
    trains = any(model[name] not in evaluating for name in trained)
    # The leaves of the loss terms that raise a score or flip a decision.
    judged = (term for value, sign, term in _summands(flow, flowing) if _is_judgement(flow, value, sign))
    judging = {leaf for term in judged for leaf in flowing.leaves_behind(term)}
    # A loss term of these parameters alone would have no effect.
    terms = [set(flowing.leaves_behind(term)) for term in flowing.terms]
    vain = set[Value]().union(*(leaves for leaves in terms if leaves <= {model[name] for name in lacking}))
    # A program may leave out parameters on purpose if they are below all trained ones, as below a new head, or in
    # evaluation mode. It may also leave out a critic or discriminator, which judges the results of the others.
    return [
        name
        for number, (name, value) in enumerate(model.items())
        if name in lacking
        and (first.get(value, start) >= start or number > last or value in vain)
        and not (trains and value in evaluating)
        and value not in judging
    ]


def _summands(flow: Flow, flowing: Flowing) -> Iterator[tuple[Value, int, Value]]:
    """Yield the summands of the captured sums, with their signs and terms."""
    terms = frozenset(flowing.terms)
    waiting = [(end, 1, end) for end in sorted(flowing.ends)]
    for _ in range(_MOST_SUMMANDS):
        if not waiting:
            return
        value, sign, term = waiting.pop()
        term = value if value in terms else term
        step = flow.step_of(value)
        name = "" if step is None else plain_name(step.func)
        if step is not None and name == "neg":
            waiting.append((step.inputs[0].value, -sign, term))
        elif step is not None and name in _SCALING and len(step.inputs) == 1:
            is_negative = any(isinstance(number, (int, float)) and number < 0 for _, number in step.constants)
            waiting.append((step.inputs[0].value, -sign if name in {"div", "mul"} and is_negative else sign, term))
        elif step is not None and name in _ADDING and step.called not in _AGAINST_CONSTANTS:
            signs = [-sign if name == "sub" and slot else sign for slot in range(len(step.inputs))]
            waiting += [(read.value, each, term) for read, each in zip(step.inputs, signs, strict=True)]
        else:
            yield value, sign, term


def _is_judgement(flow: Flow, value: Value, sign: int) -> bool:
    step = flow.step_of(value)
    if step is None:
        return False
    if step.called in _AGAINST_CONSTANTS:
        makers = (flow.step_of(read.value) for read in step.inputs)
        constants = ("full", "ones", "zeros")
        return any(maker is not None and plain_name(maker.func).startswith(constants) for maker in makers)
    decides = plain_name(step.func) in _DECIDING
    while step is not None and (plain_name(step.func) in _DECIDING or plain_name(step.func) == "neg"):
        step = flow.step_of(step.inputs[0].value)
    return step is not None and plain_name(step.func) in _SCORING and (sign < 0 or decides)
