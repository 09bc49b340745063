"""Find the roles of values without a gradient beside values with one, and the sums that cancel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import torch

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.recording.steps import Step, Value, plain_name
from gradir.frontends.walks import find_reachable

_COMPARING: Final = frozenset[str]().union(
    ("binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity"),
    ("cross_entropy", "gaussian_nll_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss"),
    ("pairwise_distance", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss"),
)
# These measure the size of a difference.
_MEASURING: Final = frozenset({"abs", "linalg_vector_norm", "norm", "pow", "square"})
_CHOOSING: Final = frozenset({"argmax", "log_softmax", "one_hot", "scatter", "sigmoid", "softmax", "topk"})
_PRODUCTS: Final = frozenset({"bmm", "dot", "mm", "mul", "mv"})
_OF_A_PROBABILITY: Final = frozenset({"log", "log_softmax", "logsumexp", "nll_loss", "softplus"})
_PASSING: Final = frozenset[str]().union(
    ("add", "alias", "clamp", "div", "exp", "expand", "gather", "getitem", "index", "index_select", "mean"),
    ("minimum", "mul", "neg", "select", "slice", "split", "squeeze", "sub", "sum", "unsqueeze", "view"),
)
# A logarithm is searched among this many operations.
_MOST_BACK: Final = 24


class Roles:
    """The roles of values without a gradient, by the operations that take them; each step is visited once.

    A comparison with another value makes it a ``target``. A target is ``labels`` if a choice was made before, and a
    ``return`` if something was added before. Other roles are a part of a ``ratio`` or ``log ratio``, an
    ``advantage``, and another factor of a ``product``.
    """

    def __init__(self, flowing: Flowing) -> None:
        self._flow = flow = flowing.flow
        self._carrying = flowing.carrying
        self._after: dict[Value, set[str]] = {}
        self._roles: dict[Value, set[str]] = {}
        for index in range(len(flow.steps) - 1, -1, -1):
            made = flow.values_of_step(index)
            if not flowing.wanted.isdisjoint(made):
                self._add_roles(flow.steps[index], made)

    def of(self, value: Value) -> Collection[str]:
        """Return the known roles of a value."""
        return self._roles.get(value, ())

    def _add_roles(self, step: Step, made: Collection[Value]) -> None:
        name = plain_name(step.func)
        has_no_gradient = self._carrying.isdisjoint(made)
        found = set().union(*(self._roles.get(value, ()) for value in made)) if has_no_gradient else set[str]()
        if not found.isdisjoint(("advantage", "target")) and name.strip("_") in _CHOOSING:
            found = found - {"advantage", "target"} | {"labels"}
        elif "target" in found and name in {"add", "sub", "rsub"} and len(step.inputs) > 1:
            found = found - {"target"} | {"return"}
        is_square = name == "mul" and len({read.value for read in step.inputs}) < len(step.inputs)
        for slot, read in enumerate(step.inputs):
            self._after.setdefault(read.value, set()).add("square" if is_square else name)
            if read.carries and step.mode == "grad":
                continue
            if step.called in _COMPARING:
                roles = {"target"}
            else:
                roles = found if has_no_gradient else self._roles_at_meeting(step, slot, made)
            self._roles.setdefault(read.value, set()).update(roles)

    def _roles_at_meeting(self, step: Step, slot: int, made: Collection[Value]) -> set[str]:
        """Return the roles of the value in an input slot beside values with a gradient."""
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
        def list_inputs(value: Value) -> list[Value]:
            step = self._flow.step_of(value)
            passes = step is not None and plain_name(step.func) in _PASSING
            return [read.value for read in (step.inputs if step is not None and passes else ()) if read.carries]

        steps = (self._flow.step_of(each) for each in islice(find_reachable([value], list_inputs), _MOST_BACK))
        names = ({step.called, plain_name(step.func)} for step in steps if step is not None)
        return not all(map(_OF_A_PROBABILITY.isdisjoint, names))


STOP_GRADIENT: Final = "stop-gradient"

SAME_VALUES: Final = frozenset({"alias", "detach", "expand", "squeeze", "unsqueeze", "view"})
FLAT: Final = frozenset({"bernoulli", "ceil", "floor", "normal", "poisson", "round", "sgn", "sign", "trunc"})
"""Operations whose derivative is zero everywhere."""

_MOST_TERMS: Final = 24
# At most this many sums around one are visited.
_MOST_SUMS: Final = 4


class Use(NamedTuple):
    """The step that takes a value, and its input slot."""

    step: int
    slot: int


class Sums:
    """Recognises ``x + (q - x).detach()`` and ``x - x.detach()`` in every order of the terms."""

    def __init__(self, flowing: Flowing, uses: Mapping[Value, Sequence[Use]]) -> None:
        self._flow = flow = flowing.flow
        self._flowing, self._uses = flowing, uses
        self._originals: dict[Value, Value] = {}
        # Two equal operations on equal inputs give equal values.
        known: dict[object, Value] = {}
        for index, step in enumerate(flow.steps):
            if len(step.inputs) != 1:
                continue
            value, source = Value(index, 0), self.original(step.inputs[0].value)
            if plain_name(step.func) in SAME_VALUES:
                self._originals[value] = source
                continue
            is_drawn = torch.Tag.nondeterministic_seeded in getattr(step.func, "tags", ())
            if "inplace" not in step.kinds and not is_drawn:
                try:
                    first = known.setdefault((step.func, source, step.constants), value)
                except TypeError:
                    # Some constant has no hash.
                    continue
                if first != value:
                    self._originals[value] = first

    def original(self, value: Value) -> Value:
        """Return the first value that is equal to a value."""
        return self._originals.get(value, value)

    def pattern(self, value: Value) -> str:
        """Return the pattern of all sums of a value without gradient, empty if it has other uses."""
        waiting, seen, found = [value], {value}, set[str]()
        while waiting and len(seen) <= _MOST_TERMS:
            value = waiting.pop()
            uses = self._uses.get(value, ())
            if not uses or value in self._flowing.ends:
                return ""
            for use in uses:
                step, made = self._flow.steps[use.step], Value(use.step, 0)
                if made in self._flowing.carrying and is_plain(step):
                    found.add(self._pattern_of(made))
                elif is_plain(step) or (plain_name(step.func) in SAME_VALUES and len(step.inputs) == 1):
                    waiting += [made] * (made not in seen)
                    seen.add(made)
                else:
                    return ""
        return found.pop() if len(found) == 1 and not waiting else ""

    def _pattern_of(self, total: Value) -> str:
        found = ""
        for _ in range(_MOST_SUMS):
            with_gradient, without = self._terms(total)
            cancelled = [one for one, count in with_gradient.items() if count == 1 and without.get(one) == -1]
            # A further term that is subtracted is only compared, such as the value in an advantage.
            if cancelled and any(count > 0 for one, count in without.items() if one not in cancelled):
                return "straight-through"
            found = STOP_GRADIENT if cancelled else found
            uses = self._uses.get(total, ())
            if len(uses) != 1 or total in self._flowing.ends or not is_plain(self._flow.steps[uses[0].step]):
                break
            total = Value(uses[0].step, 0)
        return found

    def _terms(self, total: Value) -> tuple[dict[Value, int], dict[Value, int]]:
        """Return the count of each value in a sum, with and without its gradient."""
        counts: tuple[dict[Value, int], dict[Value, int]] = {}, {}
        waiting = [(total, 1, True)]
        for _ in range(_MOST_TERMS):
            if not waiting:
                return counts
            value, sign, carries = waiting.pop()
            carries = carries and value in self._flowing.carrying
            step = self._flow.step_of(value)
            if step is not None and is_plain(step):
                first, second = (read.value for read in step.inputs)
                is_less = plain_name(step.func).startswith("sub")
                waiting += [(first, sign, carries), (second, -sign if is_less else sign, carries)]
            elif step is not None and step.func.__name__.startswith("detach"):
                waiting.append((step.inputs[0].value, sign, False))
            else:
                original = self.original(value)
                # A gradient that is always zero counts as none.
                is_flat = step is not None and plain_name(step.func) in FLAT
                count = counts[not carries or is_flat]
                count[original] = count.get(original, 0) + sign
        return {}, {}


def is_plain(step: Step, names: Collection[str] = frozenset({"add", "sub"})) -> bool:
    """Return whether a step adds or subtracts two tensors without a factor."""
    has_name = plain_name(step.func) in names and len(step.inputs) == 2
    return has_name and dict(step.constants).get("alpha", 1) == 1
