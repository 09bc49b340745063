"""What becomes of values that carry no gradient where they meet values that do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.operands import plain_name
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value

__all__ = ["Roles"]

_COMPARING: Final = frozenset(
    {
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity"),
        *("cross_entropy", "gaussian_nll_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss"),
        *("pairwise_distance", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss"),
    }
)
_MEASURING: Final = frozenset({"abs", "linalg_vector_norm", "norm", "pow", "square"})
"""What is done with a difference to know how large it is."""

_CHOOSING: Final = frozenset({"argmax", "log_softmax", "one_hot", "scatter", "sigmoid", "softmax", "topk"})
_PRODUCTS: Final = frozenset({"bmm", "dot", "mm", "mul", "mv"})
_OF_A_PROBABILITY: Final = frozenset({"log", "log_softmax", "logsumexp", "nll_loss", "softplus"})
_PASSING: Final = frozenset(
    {
        *(
            "add",
            "alias",
            "clamp",
            "div",
            "exp",
            "expand",
            "gather",
            "getitem",
            "index",
            "index_select",
            "mean",
            "minimum",
        ),
        *("mul", "neg", "select", "slice", "split", "squeeze", "sub", "sum", "unsqueeze", "view"),
    }
)
_MOST_BACK: Final = 24
"""How many operations are looked at to know whether a value is a log-probability."""


class Roles:
    """Knows what values are for that carry no gradient, by what takes them; each step is looked at once.

    A value is a ``target`` that another is compared with, ``labels`` if it is one that was chosen, a ``return`` if
    something was added to it before, a part of a ``ratio`` or a ``log ratio``, an ``advantage``, or some other factor
    of a ``product``.
    """

    def __init__(self, flow: Flow, flowing: Flowing) -> None:
        self._flow = flow
        self._carrying = flowing.carrying
        self._after: dict[Value, set[str]] = {}
        self._roles: dict[Value, set[str]] = {}
        for index in range(len(flow.steps) - 1, -1, -1):
            made = flow.made_by(index)
            if not flowing.wanted.isdisjoint(made):
                self._look_at(flow.steps[index], made)

    def of(self, value: Value) -> Collection[str]:
        """All that a value is for, as far as it is known."""
        return self._roles.get(value, ())

    def _look_at(self, step: Step, made: Collection[Value]) -> None:
        name = plain_name(step.func)
        goes_on = self._carrying.isdisjoint(made)
        found = set().union(*(self._roles.get(value, ()) for value in made)) if goes_on else set[str]()
        if not found.isdisjoint(("advantage", "target")) and name.strip("_") in _CHOOSING:
            found = found - {"advantage", "target"} | {"labels"}
        elif "target" in found and name in {"add", "sub", "rsub"} and len(step.inputs) > 1:
            found = found - {"target"} | {"return"}
        is_square = name == "mul" and len({read.value for read in step.inputs}) < len(step.inputs)
        for slot, read in enumerate(step.inputs):
            self._after.setdefault(read.value, set()).add("square" if is_square else name)
            if read.carries and step.mode == "grad":
                continue
            roles = {"target"} if step.called in _COMPARING else found if goes_on else self._met(step, slot, made)
            self._roles.setdefault(read.value, set()).update(roles)

    def _met(self, step: Step, slot: int, made: Collection[Value]) -> set[str]:
        """What a value is for that meets one with a gradient here."""
        name = plain_name(step.func)
        after = set().union(*(self._after.get(value, ()) for value in made))
        others = [read for other, read in enumerate(step.inputs) if other != slot and read.carries]
        if name in {"sub", "rsub", "add"}:
            if "exp" in after:
                return {"ratio"}
            if after & _MEASURING:
                return {"target"}
            is_ratio = name != "add" and bool(others) and self._is_log_probability(others[0].value)
            return {"log ratio"} if is_ratio else set()
        if name not in _PRODUCTS or not others or others[0].is_leaf:
            return set()
        if name == "mul" and self._is_log_probability(others[0].value):
            return {"advantage", "product"}
        other = self._flow.step_of(others[0].value)
        # A sum of products of unit vectors is a cosine.
        is_cosine = "sum" in after and other is not None and other.called == "normalize"
        return {"product", "target"} if is_cosine else {"product"}

    def _is_log_probability(self, value: Value) -> bool:
        """Whether a value is a log-probability, or a ratio of probabilities."""
        waiting, seen = [value], {value}
        while waiting and len(seen) <= _MOST_BACK:
            value = waiting.pop()
            step = None if value.maker == FROM_OUTSIDE else self._flow.steps[value.maker]
            if step is None:
                continue
            if step.called in _OF_A_PROBABILITY or plain_name(step.func) in _OF_A_PROBABILITY:
                return True
            if plain_name(step.func) in _PASSING:
                new = [read.value for read in step.inputs if read.carries and read.value not in seen]
                waiting += new
                seen.update(new)
        return False
