"""What is said of a cause, and what to do about it: one sentence each, by the kind of the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gradir.ir.text import printable

__all__ = ["WORDS", "Words", "worded"]

_MOST_NAMES: Final = 4


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
        "capture it again with the flow of the forward, or run `gradir explain` on the program",
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
    "nonleaf": Words(
        "{names} {is} computed of another tensor here, and only leaves keep a gradient in `.grad`",
        "call requires_grad_() on the result of this line instead of before it, or retain_grad() to look at its "
        "gradient",
    ),
    "not_in_optimizer": Words(
        "{names} {gets} a gradient, and no group of the optimizer has {it}",
        "give {it} to the optimizer, or take no notice if another one has {it}",
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
        "the gradient of {names} becomes zero in {op}",
        "see whether {op} is flat here: one entry to normalise, values outside a range, a factor that is zero",
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


def worded(kind: str, op: str, names: Sequence[str], shown: Callable[[str], str] = printable) -> Words:
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
        return "nothing that has a name"
    listed = ", ".join(map(shown, names[:_MOST_NAMES]))
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"
