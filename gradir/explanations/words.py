"""What is said of a cause, and what to do about it: one sentence each, by the kind of the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gradir.ir.text import printable

__all__ = ["WORDS", "Words", "worded"]

_MOST_NAMES: Final = 4


class Words(NamedTuple):
    """The sentence of a kind and its advice; ``{op}`` stands for the operation, ``{names}`` for what is concerned."""

    text: str
    advice: str


WORDS: Final[Mapping[str, Words]] = {
    "detach": Words(
        "detach() cuts {names}",
        "leave detach() out where {names} should learn from what comes behind it",
    ),
    "data": Words(
        "`.data` is the tensor without its past, which cuts {names}",
        "use the tensor itself where {names} should learn",
    ),
    "no_grad": Words(
        "{op} ran under no_grad, which cuts {names}",
        "end torch.no_grad() before this line where {names} should learn; it may be a decorator of the function",
    ),
    "inference_mode": Words(
        "{op} ran in inference mode, which cuts {names}",
        "run this line outside torch.inference_mode(), or under no_grad if its result is to be used in training",
    ),
    "nondifferentiable": Words(
        "{op} has no derivative: its result carries no gradient, which cuts {names}",
        "put something with a derivative in its place, such as a softmax for an argmax or a sigmoid for a comparison",
    ),
    "sample": Words(
        "{op} draws a sample, which carries no gradient back to {names}",
        "use rsample(), or a loss of log_prob() of the sample, which reaches {names} another way",
    ),
    "rebuilt": Words(
        "{op}() copies the numbers of tensors into a new one, which cuts {names}",
        "join tensors with torch.stack or torch.cat, which keep their past",
    ),
    "new_leaf": Words(
        "a new leaf takes the place of a value that was computed of {names}",
        "use the computed tensor itself, with torch.func.functional_call where a module is to run on it",
    ),
    "no_create_graph": Words(
        "a derivative without create_graph=True is a constant, which cuts {names}",
        "call torch.autograd.grad with create_graph=True",
    ),
    "exit": Words(
        "{op}() turns a tensor into Python numbers, where the past of {names} ends",
        "compute with the tensor itself; what becomes a number, a list or a numpy array has no gradient",
    ),
    "exchanged": Words(
        "other numbers are put into {names} through `.data`, which autograd does not see",
        "see that the gradient is meant for the numbers that are there in the backward",
    ),
    "unused": Words(
        "what was captured is not computed of {names}",
        "add what {names} give to the loss, or leave them out of the optimizer",
    ),
    "frozen": Words(
        "{names} have requires_grad=False",
        "call requires_grad_() on what should learn",
    ),
    "nonleaf": Words(
        "{names} is computed of another tensor here, and only leaves keep a gradient",
        "call requires_grad_() on the result of this line, or retain_grad() to look at its gradient",
    ),
    "not_in_optimizer": Words(
        "{names} get a gradient, and no group of the optimizer has them",
        "give them to the optimizer",
    ),
    "not_registered": Words(
        "{names} get a gradient and are no parameters of the model, which model.parameters() lacks",
        "make them nn.Parameter attributes, or put them into nn.ParameterDict, nn.ParameterList or nn.ModuleList",
    ),
    "untied": Words(
        "{names} hold equal numbers in two tensors, and each gets its own gradient",
        "tie them again: assign the one parameter to both modules after loading",
    ),
    "zero": Words(
        "the gradient of {names} becomes zero in {op}",
        "see whether {op} is flat here: one entry to normalise, values outside a range, a factor that is zero",
    ),
    "rounding": Words(
        "the gradients of {names} cancel in {op} but for rounding: a number that is added to all is taken out again",
        "leave the bias out before a normalisation, or take no notice",
    ),
    "nonfinite": Words(
        "the gradient of {names} becomes infinite or NaN in {op}",
        "keep the input of {op} away from where its derivative is infinite: torch.where hides values, not derivatives",
    ),
    "raised": Words("{op} raised here", "see the message of the error"),
    "inplace": Words(
        "{op} writes to a tensor that an earlier operation saved for its derivative",
        "write out of place here, or clone the tensor before",
    ),
}


def worded(kind: str, op: str, names: Sequence[str], shown: Callable[[str], str] = printable) -> Words:
    """The sentence of a cause and its advice; ``shown`` writes a name as the format needs it.

    >>> worded("exit", "item", ["a", "b", "c", "d", "e", "f"]).text
    'item() turns a tensor into Python numbers, where the past of a, b, c, d and 2 more ends'
    """
    words = WORDS.get(kind)
    listed = _listed(names, shown)
    if words is None:
        return Words(f"{shown(kind)}: {listed}", "")
    return Words(words.text.format(op=shown(op), names=listed), words.advice.format(op=shown(op), names=listed))


def _listed(names: Sequence[str], shown: Callable[[str], str]) -> str:
    if not names:
        return "nothing that has a name"
    listed = ", ".join(map(shown, names[:_MOST_NAMES]))
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"
