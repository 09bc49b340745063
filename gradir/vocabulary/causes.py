"""The sentence and the advice of each kind of cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gradir.ir.name_ranges import ranges
from gradir.ir.text import escape_unprintable, shorten
from gradir.vocabulary.jax import JAX_ADVICE
from gradir.vocabulary.operations import DISPLAY_NAMES, advice_on_error, find_operation_text
from gradir.vocabulary.patterns import LOST, PATTERNS
from gradir.vocabulary.training import TRAINING
from gradir.vocabulary.values import VALUES

_ERRORS: Final = frozenset({"backward", "raised"})
FEW_NAMES: Final = 4
LONGEST_NAME: Final = 120
# A dotted path without characters of the notation of ranges.
_PLAIN: Final = re.compile(r"\w+(\.\w+)+")


class CauseText(NamedTuple):
    """The sentence and the advice of a kind of cause.

    ``{op}`` is the operation, ``{names}`` the parameters, and ``{is}``, ``{has}``, ``{gets}`` and ``{it}`` agree with
    their number.
    """

    text: str
    advice: str


CAUSE_TEXTS: Final[Mapping[str, CauseText]] = {
    "detach": CauseText(
        "detach() cuts {names}",
        "take detach() out of this line if {names} should learn from what is computed with its result",
    ),
    "data": CauseText(
        "`.data` returns the tensor without its graph, which cuts {names}",
        "use the tensor itself instead of its `.data` if {names} should learn",
    ),
    "no_grad": CauseText(
        "{op} ran under no_grad, which cuts {names}",
        "run this line with gradients if {names} should learn: look for torch.no_grad() or set_grad_enabled(False) "
        "around it or its callers, as a `with` or a decorator",
    ),
    "inference_mode": CauseText(
        "{op} ran in inference mode, which cuts {names}",
        "move this line out of torch.inference_mode(); if its result is only an input of training, torch.no_grad() is "
        "enough",
    ),
    "nondifferentiable": CauseText(
        "{op} gives a result that has no derivative, which cuts {names}",
        "use something with a derivative instead, such as a softmax for an argmax or a sigmoid for a comparison",
    ),
    "compiled": CauseText(
        "compiled code runs here, and its result carries no gradient, which cuts {names}",
        'explain it once uncompiled, inside torch.compiler.set_stance("force_eager"), to find the line',
    ),
    "graph_break": CauseText(
        "torch.compile breaks the graph here, and gradients continue in the next one: {op}",
        "move this line out of the compiled code, or rewrite it as torch's reason says, to get one graph",
    ),
    "recompile": CauseText(
        "torch.compile recompiles this call: {op}",
        "pass equal values in each call, or pass dynamic=True to torch.compile if a size changed",
    ),
    "opaque": CauseText(
        "compiled code gives {names} no gradient, or only zeros, and its operations are not recorded",
        'explain it once uncompiled, inside torch.compiler.set_stance("force_eager"), if {names} should learn',
    ),
    "sample": CauseText(
        "{op} draws a sample, which passes no gradient back to {names}",
        "use rsample(), gumbel_softmax for categories, or a loss of log_prob() of the sample, which reaches {names} "
        "another way",
    ),
    "rebuilt": CauseText(
        "{op} copies values out of tensors into a new one, which cuts {names}",
        "join tensors with torch.stack or torch.cat instead of torch.tensor: these keep the graph",
    ),
    "new_leaf": CauseText(
        "a new leaf without a graph replaces a value that was computed from {names}",
        "use the computed tensor itself; to run a module on it, use torch.func.functional_call",
    ),
    "checkpoint": CauseText(
        "a reentrant checkpoint got no input that requires grad, so {names} {gets} no gradient through it",
        "call checkpoint with use_reentrant=False, or give it an input that requires grad",
    ),
    "no_create_graph": CauseText(
        "a derivative taken without create_graph=True is a constant, which cuts {names}",
        "take the derivative with create_graph=True",
    ),
    "exit": CauseText(
        "{op} turns a tensor into plain numbers, which cuts {names}",
        "compute the loss with the tensor itself, and call {op} only for what is printed or stored",
    ),
    "exchanged": CauseText(
        "new values are assigned to {names} through `.data`, which autograd does not see",
        "check that backward should use the values at the time when it runs",
    ),
    "put": CauseText(
        "{op} copies values computed from {names} into another tensor, unseen by autograd, which cuts {names}",
        "use the computed tensor itself; to run a module with it, use torch.func.functional_call",
    ),
    "stop_gradient": CauseText(
        "stop_gradient cuts {names}",
        "take stop_gradient out of this line if {names} should learn from what is computed with its result",
    ),
    "custom_rule": CauseText(
        "the custom gradient rule of {op} returns zero for {names}",
        "return a gradient for every input that needs one in its rule, if {names} should learn through it",
    ),
    "integer": CauseText(
        "{names} {is} of integers or booleans, which have no gradient",
        "do not differentiate by {it}, or store floats if {they} should learn",
    ),
    "unused": CauseText(
        "the loss does not depend on {names}", "let the loss depend on {names}, or leave {it} out of the optimizer"
    ),
    "copied": CauseText(
        "the loss does not depend on {names}, but on as many other parameters of the same shapes, such as those of a "
        "copy",
        "compute the loss with {names}, by torch.func.functional_call(module, updated, x) instead of a deepcopy, or "
        "carry the gradients of the copy over",
    ),
    "skipped": CauseText(
        "Python did not take the branch in which {names} {is} used, so the loss does not depend on {it}",
        "ignore this if other inputs or another mode take it; else check the condition",
    ),
    "unreached": CauseText(
        "no gradient arrives at {names}, and the file does not say why",
        "capture it again with --flow, in Python with gradir.record(model, flow=True), or run `gradir explain` on the "
        "program, if its front-end supports it",
    ),
    "withheld": CauseText(
        "the backward of the custom Function {op} returns no gradient for {names}",
        "return a gradient for every input that needs one in its backward, and look for a detach inside it",
    ),
    "no_derivative": CauseText(
        "{op} gives {names} no gradient, since torch defines none for these arguments",
        "use something with a derivative instead, such as a norm with p=1 for one with p=0",
    ),
    "unrecorded": CauseText(
        "no gradient arrives at {names}, and the reason is not known: the loss, or a part of it, was computed outside "
        "the recording",
        "compute the loss inside `with gradir.record(model, flow=True)`",
    ),
    "frozen": CauseText(
        "{names} {has} requires_grad=False", "call requires_grad_() before the forward if {they} should learn"
    ),
    "no_graph": CauseText(
        "the loss depends on nothing that requires grad, so its backward raises",
        "compute it from the output of the model or from another tensor that requires grad",
    ),
    "nonleaf": CauseText(
        "{names} {is} computed from another tensor here, and only leaves keep a gradient in `.grad`",
        "make it a leaf by requires_grad_() or nn.Parameter as the last step, as in nn.Parameter(x.to(dtype)) for "
        "nn.Parameter(x).to(dtype), or call retain_grad() to look at its gradient",
    ),
    "not_in_optimizer": CauseText(
        "{names} {gets} a gradient, and no group of the optimizer has {it}",
        "add {it} to the optimizer, or ignore this if another one has {it}",
    ),
    "moves_nothing": CauseText(
        "no parameter of this optimizer gets a gradient, so its step changes nothing",
        "create the optimizer with the parameters that the loss depends on: it may have those of a copy or of another "
        "model",
    ),
    "raw_update": CauseText(
        "no optimizer works on the gradient of {names}: it is added to {it} as it is, which leads to a higher loss",
        "freeze {it} or give {it} an optimizer: optax.masked returns the gradient itself as the update of each leaf "
        "outside of its mask, so use optax.partition with optax.set_to_zero for a leaf that should stay",
    ),
    "replaced": CauseText(
        "{names} {gets} a gradient, but the optimizer has other tensors: those of a copy, or those that the model had "
        "before it was changed",
        "create the optimizer with the parameters of the trained model, after its last change",
    ),
    "not_registered": CauseText(
        "{names} {gets} a gradient, but model.parameters() does not have {it}, so an optimizer made from that lacks "
        "{it}",
        "make {it} nn.Parameter attributes, or put modules and parameters into nn.ModuleList, nn.ModuleDict, "
        "nn.ParameterList or nn.ParameterDict instead of a list or a dict",
    ),
    "lent": CauseText(
        "{names} {gets} a gradient in a temporary tensor of its module, as with offloading, and loses it",
        "train without offloading, or keep the tensors with data in the model",
    ),
    "untied": CauseText(
        "two tensors have the values of {names}, and each gets its own gradient",
        "assign one parameter to both modules again, after loading and moving",
    ),
    "captured": CauseText(
        "{op} reads {names} from an enclosing scope and not from its arguments, so it passes no gradient back",
        "pass {it} in an argument that is differentiated, if {names} should learn",
    ),
    "while_loop": CauseText(
        "{op} has no reverse mode, so a gradient for {names} raises",
        "use jax.lax.scan, or jax.lax.fori_loop with Python integers as its bounds: both have one",
    ),
    "inner_gradient": CauseText(
        "{op} takes a gradient itself",
        "name a loss, and not the step, to have another function explained",
    ),
    "cleared": CauseText(
        "the gradient of {names} is cleared here, after the backward that computed it and before a step used it",
        TRAINING["wiped"][1],
    ),
    "clipped": CauseText(
        "the gradient of {names} is multiplied or clamped to zero here, after the backward that computed it",
        TRAINING["clipped_to_zero"][1],
    ),
    "ddp_unused": CauseText(
        "DistributedDataParallel waits for a gradient of {names} in every iteration, and the loss gives {it} none: the "
        "next forward raises",
        "let the loss depend on {names}, take the module out, or pass find_unused_parameters=True to "
        "DistributedDataParallel",
    ),
    "raised": CauseText("{op} raised", "change the arguments of {op}, as the error says"),
    "graphless": CauseText(
        "{op} ran under no_grad, so its result has no graph to take a derivative of",
        "run it and the derivative inside `with torch.enable_grad():`, or look for torch.no_grad() or "
        "set_grad_enabled(False) around its callers",
    ),
    "backward": CauseText(
        "the error comes from no operation that was recorded",
        "explain the loss instead of the error of its backward: `rec.explain(loss)`",
    ),
    "freed": CauseText(
        "an earlier backward has freed the tensors that {op} saved, and a second one cannot run through it",
        "compute this again in each step, detach() values from the last step, or keep the graph with "
        "backward(retain_graph=True)",
    ),
    "updated": CauseText(
        "{op} changes {names}, which an earlier operation saved for its derivative",
        "compute the loss again after an optimizer's step, or run each backward of it before the step",
    ),
    "overwritten": CauseText(
        "{op} changes a tensor that an earlier operation saved for its derivative, unseen by torch, and the gradient "
        "of {names} is wrong",
        "write to a clone() or after the backward, and under torch.no_grad() instead of through `.data` or an array, "
        "so that torch detects it",
    ),
    "inplace": CauseText(
        "{op} writes to {names}, which an earlier operation saved for its derivative",
        "write out of place here (x = x + 1 for x += 1), or clone() the tensor before",
    ),
    **{kind: CauseText(*words) for kind, words in {**VALUES, **TRAINING}.items()},
}

# The advice for other frameworks than PyTorch if it differs.
ADVICE: Final[Mapping[str, Mapping[str, str]]] = {"jax": JAX_ADVICE}
# The subject of a cause without an operation, by kind.
_UNNAMED: Final = {"raised": "the program", "withheld": "in the graph"}

_NUMBER: Final = {
    "is": ("is", "are"),
    "has": ("has", "have"),
    "does": ("does", "do"),
    "gets": ("gets", "get"),
    "holds": ("holds", "hold"),
    "it": ("it", "them"),
    "they": ("it", "they"),
}


def printable_short(text: str) -> str:
    """Return a name on one line, without its middle if it is too long."""
    return escape_unprintable(shorten(text, LONGEST_NAME))


def describe_cause(
    kind: str,
    op: str,
    names: Sequence[str],
    shown: Callable[[str], str] = printable_short,
    *,
    named: str = "",
    pattern: str = "",
    is_lost: bool = False,
    detail: str = "",
    framework: str = "",
) -> CauseText:
    """Return the sentence and the advice of a cause; ``shown`` formats a name.

    ``named`` is a phrase for the names and ``pattern`` the cause's pattern. ``is_lost`` means that a parameter gets no
    gradient despite the pattern. ``detail`` is the error, if the cause is one.
    """
    known = LOST.get(pattern) if is_lost else PATTERNS.get(pattern)
    listed = named or format_names(names, shown)
    if known is None and kind not in CAUSE_TEXTS:
        return CauseText(f"{shown(kind)}: {listed}", "")
    text, advice = CAUSE_TEXTS.get(kind, CauseText("", ""))
    if kind in CAUSE_TEXTS:
        own_text, own_advice = find_operation_text(kind, op)
        text = own_text or text
        advice = (advice_on_error(detail) if kind in _ERRORS else own_advice) or advice
    if known is not None:
        text, advice = known[0].replace("{cause}", text), known[1].replace("{advice}", advice)
    by_framework = ADVICE.get(framework, {})
    advice = by_framework.get(f"{kind} {op}", by_framework.get(kind, advice))
    forms = {verb: both[len(names) > 1] for verb, both in _NUMBER.items()}
    operation = shown(DISPLAY_NAMES.get(op, op)) if op else _UNNAMED.get(kind, "an operation")
    return CauseText(*(part.format(op=operation, names=listed, **forms) for part in (text, advice)))


def format_names(names: Sequence[str], shown: Callable[[str], str] = printable_short) -> str:
    """Return names in one phrase: as ranges if that is shorter, or else the first few."""
    if not names:
        return "a tensor that has no name"
    folded = _fold_names(tuple(names))
    if folded:
        return shown(folded)
    listed = ", ".join(map(shown, names[:FEW_NAMES]))
    return listed if len(names) <= FEW_NAMES else f"{listed} and {len(names) - FEW_NAMES:,} more"


@lru_cache(maxsize=64)
def _fold_names(names: tuple[str, ...]) -> str:
    if len(names) == 1 or not all(map(_PLAIN.fullmatch, names)):
        return ""
    folded = ranges(names)
    return folded if len(folded) <= min(LONGEST_NAME, len(", ".join(names)) - 1) else ""
