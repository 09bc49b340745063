"""What is said of a cause, and what to do about it: one sentence each, by the kind of the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gradir.ir.excerpt import shortened
from gradir.ir.text import printable

__all__ = ["WORDS", "Words", "worded"]

_MOST_NAMES: Final = 4
_LONGEST_NAME: Final = 120


class Words(NamedTuple):
    """The sentence of a kind and its advice.

    ``{op}`` stands for the operation, ``{names}`` for what is concerned, and ``{is}``, ``{has}``, ``{gets}``,
    ``{gives}`` and ``{it}`` for what fits one name or several.
    """

    text: str
    advice: str


WORDS: Final[Mapping[str, Words]] = {
    "detach": Words(
        "detach() cuts {names}",
        "take detach() out of this line if {names} should learn from what is computed with its result",
    ),
    "data": Words(
        "`.data` gives the numbers of a tensor without its graph, which cuts {names}",
        "use the tensor itself instead of its `.data` if {names} should learn",
    ),
    "no_grad": Words(
        "{op} ran with gradients switched off (no_grad, or set_grad_enabled(False)), which cuts {names}",
        "switch them on for this line if {names} should learn: look for `with torch.no_grad()` around the line or a "
        "call, and for the decorator of a function",
    ),
    "inference_mode": Words(
        "{op} ran in inference mode, which cuts {names}",
        "move this line out of torch.inference_mode(); if its result is only an input of training, torch.no_grad() is "
        "enough",
    ),
    "nondifferentiable": Words(
        "{op} has no derivative: its result carries no gradient, which cuts {names}",
        "put something with a derivative in its place, such as a softmax for an argmax or a sigmoid for a comparison",
    ),
    "compiled": Words(
        "compiled code runs here, and its result carries no gradient, which cuts {names}",
        'explain it once uncompiled, inside torch.compiler.set_stance("force_eager"): then the line in it is told',
    ),
    "opaque": Words(
        "compiled code gives {names} no gradient, or zeros alone, and what it does inside is not recorded",
        'explain it once uncompiled, inside torch.compiler.set_stance("force_eager"), if {names} should learn',
    ),
    "sample": Words(
        "{op} draws a sample, and no gradient goes from a sample back to {names}",
        "use rsample(), gumbel_softmax for categories, or a loss of log_prob() of the sample, which reaches {names} "
        "another way",
    ),
    "rebuilt": Words(
        "{op} copies numbers out of tensors into a new one, which cuts {names}",
        "join tensors with torch.stack or torch.cat instead of torch.tensor: these keep the graph",
    ),
    "new_leaf": Words(
        "a new leaf without a graph takes the place of a value that was computed of {names}",
        "go on with the computed tensor itself; to run a module on it, use torch.func.functional_call",
    ),
    "checkpoint": Words(
        "a reentrant checkpoint got no input that requires grad, so that {names} {gets} no gradient from it",
        "call checkpoint with use_reentrant=False, or give it an input that requires grad",
    ),
    "no_create_graph": Words(
        "a derivative taken without create_graph=True is a constant, which cuts {names}",
        "take the derivative with create_graph=True",
    ),
    "exit": Words(
        "{op} turns a tensor into plain numbers, where the graph behind {names} ends",
        "compute the loss with the tensor itself, and call {op} only for what is printed or stored",
    ),
    "exchanged": Words(
        "other numbers are put into {names} through `.data`, which autograd does not see",
        "see that the gradient is meant for the numbers that are there when backward runs",
    ),
    "unused": Words(
        "what was captured is not computed of {names}",
        "add what {names} {gives} to the loss; what should not learn now is better left out of the optimizer",
    ),
    "unreached": Words(
        "no gradient arrives at {names}, and the file does not say why",
        "capture it again with --flow, in Python with gradir.record(model, flow=True), or run `gradir explain` on the "
        "program",
    ),
    "withheld": Words(
        "a custom Function of the graph gives back no gradient for {names}",
        "return a gradient for every input that needs one in its backward, and look for a detach inside it",
    ),
    "unrecorded": Words(
        "no gradient comes to {names}, and what was captured was made outside the recording, which would tell why",
        "compute the loss inside `with gradir.record(model, flow=True)`",
    ),
    "frozen": Words(
        "{names} {has} requires_grad=False",
        "call requires_grad_() before the forward on what should learn",
    ),
    "no_graph": Words(
        "what was captured is computed of nothing that requires grad, so that a backward from it raises",
        "compute it of what the model gives, or of another tensor that requires grad",
    ),
    "nonleaf": Words(
        "{names} {is} computed of another tensor here, and only leaves keep a gradient in `.grad`",
        "call requires_grad_() on the result of this line instead of before it, or retain_grad() to look at its "
        "gradient",
    ),
    "not_in_optimizer": Words(
        "{names} {gets} a gradient, and no group of the optimizer has {it}",
        "give {it} to the optimizer, or take no notice if another one has {it}",
    ),
    "replaced": Words(
        "{names} {gets} a gradient, and the optimizer has other tensors in the place: the model was changed after the "
        "optimizer was made",
        "make the optimizer after the last change of the model, or give {it} to optimizer.add_param_group",
    ),
    "not_registered": Words(
        "{names} {gets} a gradient, but model.parameters() does not have {it}, so an optimizer made of that does not "
        "either",
        "make {it} nn.Parameter attributes, or put modules and parameters into nn.ModuleList, nn.ModuleDict, "
        "nn.ParameterList or nn.ParameterDict instead of a list or a dict",
    ),
    "untied": Words(
        "{names} hold equal numbers in two tensors, and each gets its own gradient",
        "assign the one parameter to both modules again, after loading and moving",
    ),
    "zero": Words(
        "the gradient of {names} becomes zero in {op}, with the numbers of this step",
        "look at what {op} gets here, and take no notice if other inputs give it a gradient",
    ),
    "lost": Words(
        "what was captured is infinite or NaN, and the gradient of {names} becomes zero in {op}",
        "find what makes it so first: the mean over targets is NaN where every one of them is ignored",
    ),
    "flat": Words(
        "{op} is flat: its derivative is zero everywhere, so that the gradient of {names} always is",
        "put something with a slope in its place, or let the gradient pass it by: x + ({op}(x) - x).detach()",
    ),
    "saturated": Words(
        "all that {op} gives lies at its ends, where it is flat, so that the gradient of {names} is zero",
        "bring its input nearer to zero, by a smaller start, a normalisation or a smaller step; of a loss, use the "
        "form that takes logits",
    ),
    "one_entry": Words(
        "{op} normalises one entry at a time and gives the same whatever comes in, so that the gradient of {names} is "
        "zero",
        "normalise over a dimension with several entries, or use a sigmoid for a single one",
    ),
    "out_of_range": Words(
        "all that {op} gets lies at or beyond its bounds, where it is flat, so that the gradient of {names} is zero",
        "start inside the range, or use something with a slope outside it, such as softplus",
    ),
    "stuck": Words(
        "{op} multiplies zeros, each of which waits for the other to change: the gradient of {names} stays zero",
        "start one of the two factors with numbers other than zero",
    ),
    "dead": Words(
        "all that {op} gets in this step lies where it is flat, so that the gradient of {names} is zero",
        "take no notice if other inputs are inside; else start with a smaller bias or step, or use one with a slope "
        "there, such as leaky_relu",
    ),
    "equal": Words(
        "{op} has nothing to make smaller in this step: what it measures is zero, and so is the gradient of {names}",
        "take no notice where both sides start equal, as a student and its teacher do",
    ),
    "not_chosen": Words(
        "{op} chooses other entries in this step than those that {names} {gives}",
        "take no notice if other inputs choose these; a soft choice, such as logsumexp, gives all of them a gradient",
    ),
    "factor": Words(
        "{op} multiplies by a factor that is zero in this step, so that the gradient of {names} is",
        "look at the other factor: a mask, a weight of the loss or an input that is zero throughout",
    ),
    "masked": Words(
        "{op} hides all that {names} {gives} in this step",
        "look at the mask, and take no notice if other inputs leave some",
    ),
    "padding": Words(
        "all that {op} looks up of {names} in this step is padding_idx, which learns nothing",
        "look at the indices, and take no notice if other inputs have others",
    ),
    "ignored": Words(
        "every target of {op} is ignored in this step or has a weight of zero, so that the gradient of {names} is zero",
        "look at the targets and at ignore_index, and take no notice if other steps have some",
    ),
    "hooked": Words(
        "a hook makes the gradient of {names} zero: {op}",
        "look at what the hook returns, or take it away with the handle that register_hook gave",
    ),
    "empty": Words(
        "no row of this step went through {names}: what {op} takes of it is empty",
        "take no notice if other inputs send some, as in a mixture of experts; else look at how rows are chosen",
    ),
    "starting": Words(
        "the gradient of {names} is zero in {op} because the other factor starts at zero, which it does not remain",
        "take no notice where the zero is meant, as in LoRA or a residual branch that starts closed",
    ),
    "rounding": Words(
        "the gradient of {names} is zero but for rounding in {op}: what is added to all is taken out again",
        "leave the bias out before a normalisation, or take no notice",
    ),
    "nonfinite": Words(
        "the gradient of {names} becomes infinite or NaN in {op}",
        "keep the input of {op} away from where its derivative is infinite, by a clamp or a small number before {op}: "
        "torch.where behind it hides the value and not the derivative",
    ),
    "where_trap": Words(
        "the gradient of {names} becomes NaN in {op}, to which 0 comes back because its result is not taken there, and "
        "0 times infinity is NaN",
        "give {op} a safe input where its result is not taken, by a torch.where before it as well: "
        "torch.where(mask, {op}(torch.where(mask, x, 1.0)), other)",
    ),
    "cleared": Words(
        "the gradient of {names} is wiped here, after the backward that brought it and before a step used it",
        "call zero_grad() before the backward or after the step, and not between them",
    ),
    "raised": Words("{op} raised", "change what {op} is given, as the error says"),
    "backward": Words(
        "the error is of no operation that was recorded",
        "explain the loss instead of the error of its backward: `rec.explain(loss)`",
    ),
    "freed": Words(
        "an earlier backward has used up what {op} saved, and a second one cannot run through it",
        "compute this anew in each step, detach() what is carried over from the last one, or keep the graph with "
        "backward(retain_graph=True)",
    ),
    "updated": Words(
        "{op} changes {names}, which an earlier operation saved for its derivative",
        "compute the loss anew after an optimizer's step, or run each backward of it before the step",
    ),
    "inplace": Words(
        "{op} writes to a tensor that an earlier operation saved for its derivative",
        "write out of place here (x = x + 1 for x += 1), or clone() the tensor before",
    ),
}

_NUMBER: Final = {
    "is": ("is", "are"),
    "has": ("has", "have"),
    "gets": ("gets", "get"),
    "gives": ("gives", "give"),
    "it": ("it", "them"),
}


def _short(text: str) -> str:
    return printable(shortened(text, _LONGEST_NAME))


def worded(kind: str, op: str, names: Sequence[str], shown: Callable[[str], str] = _short) -> Words:
    """The sentence of a cause and its advice; ``shown`` writes a name as the format needs it.

    >>> worded("exit", "item", ["a", "b", "c", "d", "e", "f"]).text
    'item turns a tensor into plain numbers, where the graph behind a, b, c, d and 2 more ends'
    >>> worded("frozen", "", ["a"]).text, worded("frozen", "", ["a", "b"]).text
    ('a has requires_grad=False', 'a, b have requires_grad=False')
    """
    words = WORDS.get(kind)
    listed = _listed(names, shown)
    if words is None:
        return Words(f"{shown(kind)}: {listed}", "")
    fitting = {word: forms[len(names) > 1] for word, forms in _NUMBER.items()}
    operation = shown(op) if op else "an operation"
    return Words(*(part.format(op=operation, names=listed, **fitting) for part in words))


def _listed(names: Sequence[str], shown: Callable[[str], str]) -> str:
    if not names:
        return "a tensor that has no name"
    listed = ", ".join(map(shown, names[:_MOST_NAMES]))
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"
