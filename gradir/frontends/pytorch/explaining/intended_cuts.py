"""Recognise cuts that a program makes on purpose, such as those of target networks."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias, TypeVar

import torch
from torch import nn

from gradir.frontends.pytorch.explaining.cuts import At, Flowing, Stop
from gradir.frontends.pytorch.explaining.roles import SAME_VALUES, STOP_GRADIENT, Roles, Sums, Use, is_plain
from gradir.frontends.pytorch.private import SPECTRAL_NORM
from gradir.frontends.pytorch.reading.members import is_training
from gradir.frontends.pytorch.reading.tensors import read_stored_values, unwrap_tensor
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, SHOWING, Read, Step, Value, plain_name
from gradir.frontends.walks import find_reachable
from gradir.ir.memo import group_by_key

_Fingerprint: TypeAlias = "tuple[object, ...]"
NamesOf: TypeAlias = "Callable[[Value], tuple[str, ...]]"
"""Returns the names of a leaf."""

# The role of a module with this word in its path, if its results are compared with others.
_WORDS: Final = {
    **dict.fromkeys(("ema", "momentum", "shadow", "slow"), "target network"),
    **dict.fromkeys(("behavior", "old", "ref", "reference"), "reference model"),
    "teacher": "teacher",
}

# Beside one of these words "target" means a network, and not the target of a translation.
_OF_TARGETS: Final = frozenset(
    {"actor", "critic", "encoder", "model", "net", "network", "policy", "q", "qf", "qnet", "value"}
)

# This many entries of a tensor are compared before all of them.
_FIRST: Final = 8


class Followers:
    """Recognises the parameters of target networks, teachers and reference models, which get no gradient.

    A loss compares other results with theirs. They are copies, in evaluation mode, or named after their role.
    """

    def __init__(self, flowing: Flowing, reached: Collection[int], names_of: NamesOf) -> None:
        self._flow, self._flowing = flowing.flow, flowing
        self._reached, self._names_of = reached, names_of

    def pattern(self, lacking: Sequence[Value], roles: Collection[str]) -> str:
        """Return the pattern of leaves without a gradient, by the roles of their results; empty if there is none."""
        if not roles:
            # Members of an ensemble are copies, too.
            return ""
        is_compared = not {"labels", "return", "target"}.isdisjoint(roles)
        is_bootstrapped = "return" in roles
        found = {self._role_in_path(leaf, is_compared=is_compared, is_bootstrapped=is_bootstrapped) for leaf in lacking}
        if len(found) == 1 and (role := found.pop()):
            return role
        if self._are_copies(lacking):
            return "target network" if {"log ratio", "ratio"}.isdisjoint(roles) else "reference model"
        return "teacher" if self._only_evaluate(lacking) else ""

    def _role_in_path(self, leaf: Value, *, is_compared: bool, is_bootstrapped: bool) -> str:
        name = next(iter(self._names_of(leaf)), "")
        parts = re.split(r"[^a-z]+", name.rpartition(".")[0].lower())
        is_target = is_bootstrapped or (is_compared and not _OF_TARGETS.isdisjoint(parts))
        if is_target and not {"targ", "target"}.isdisjoint(parts):
            return "target network"
        return next((_WORDS[part] for part in parts if part in _WORDS), "")

    def _are_copies(self, lacking: Sequence[Value]) -> bool:
        """Return whether each leaf has the values of one that gets a gradient, and not all are constants."""
        tensors = [self._flow.tensor_of(leaf) for leaf in lacking]
        originals = [None if tensor is None else self._find_original(tensor) for tensor in tensors]
        values = [_read_values(one) for one in originals if one is not None]
        # Two layers may both be initialized with a constant.
        varies = any(each.numel() > 1 and bool(each.min() != each.max()) for each in values)
        return len(values) == len(originals) and varies

    def _find_original(self, tensor: torch.Tensor) -> torch.Tensor | None:
        candidates = self._by_fingerprint.get(_fingerprint(tensor), ())
        return next((other for other in candidates if torch.equal(_read_values(other), _read_values(tensor))), None)

    @cached_property
    def _by_fingerprint(self) -> dict[_Fingerprint, list[torch.Tensor]]:
        found: dict[_Fingerprint, list[torch.Tensor]] = {}
        for number, outside in enumerate(self._flow.outside):
            tensor = outside.tensor()
            # A follower cannot be the original of another one.
            is_follower = self._role_in_path(Value(FROM_OUTSIDE, number), is_compared=True, is_bootstrapped=True) != ""
            if outside.role == "parameter" and tensor is not None and id(tensor) in self._reached and not is_follower:
                found.setdefault(_fingerprint(tensor), []).append(tensor)
        # Many tensors may begin with equal entries; only the first of them are compared.
        return {key: tensors[:_FIRST] for key, tensors in found.items()}

    def _only_evaluate(self, lacking: Sequence[Value]) -> bool:
        learning = (each for leaf, each in self._modules.items() if id(self._flow.tensor_of(leaf)) in self._reached)
        modules = [self._modules.get(leaf) for leaf in lacking]
        has_training = any(each is not None and is_training(each) for each in learning)
        return has_training and all(each is not None and not is_training(each) for each in modules)

    @cached_property
    def _modules(self) -> dict[Value, nn.Module | None]:
        calls = {leaf: self._flow.steps[index].call for leaf, index in self._flowing.first_takers.items()}
        return {leaf: None if call is None else call.module for leaf, call in calls.items()}


def _read_values(tensor: torch.Tensor) -> torch.Tensor:
    return read_stored_values(unwrap_tensor(tensor.detach()))


def _fingerprint(tensor: torch.Tensor) -> _Fingerprint:
    local = unwrap_tensor(tensor.detach())
    if local.is_meta or local.layout is not torch.strided or not local.untyped_storage().nbytes():
        return (id(tensor),)
    return (local.shape, local.dtype, local.device, *local.reshape(-1)[:_FIRST].tolist())


_Key = TypeVar("_Key", bound=Hashable)

_DETACHING: Final = frozenset({"embedding", "embedding_bag", "gumbel_softmax"})
# A moving average is at most this many operations in a row.
_MOST_NEAR: Final = 4

# The pattern of each role, the most specific role first.
_OF_ROLES: Final = (
    ("ratio", "policy ratio"),
    ("advantage", "advantage"),
    ("labels", "pseudo labels"),
    ("return", "bootstrapped target"),
    ("target", STOP_GRADIENT),
)

# The arithmetic alone shows these patterns, no matter which leaves get a gradient.
_BY_THEMSELVES: Final = frozenset({"straight-through", "subtracted maximum"})


class IntendedCuts:
    """Recognises patterns by the operations that take a value, and by their other inputs."""

    def __init__(self, flowing: Flowing, reached: Collection[int], names_of: NamesOf) -> None:
        """Take the id() of each leaf that gets a gradient, and a function that returns the names of a leaf."""
        self._flow = flow = flowing.flow
        self._flowing, self._reached = flowing, reached
        wanted = (at for at in range(len(flow.steps)) if not flowing.wanted.isdisjoint(flow.values_of_step(at)))
        slots = ((at, slot, read.value) for at in wanted for slot, read in enumerate(flow.steps[at].inputs))
        self._uses = group_by_key((value, Use(at, slot)) for at, slot, value in slots)
        self._averages = set(self._find_moved_leaves())
        self._sums, self._roles = Sums(flowing, self._uses), Roles(flowing)
        self._followers = Followers(flowing, reached, names_of)
        # A program that looks for nearest entries has a codebook.
        self._has_nearest = any(plain_name(step.func) == "argmin" for step in flow.steps)

    def patterns(self, groups: Mapping[_Key, Sequence[Stop]]) -> tuple[dict[_Key, str], set[_Key]]:
        """Return the pattern of each place, and the places at targets of values that lose their gradient elsewhere."""
        found = {key: self._pattern_of_all(stops) for key, stops in groups.items()}
        lost = {key: self._find_lost_leaves(stops) for key, stops in groups.items() if not found[key]}
        # Without a graph no leaf gets a gradient.
        losing = [key for key, leaves in lost.items() if leaves and self._reached]
        # At these places every cut value is only a target.
        targets = {key for key in losing if all(set(self._roles.of(stop.value)) == {"target"} for stop in groups[key])}
        # The program takes the log_prob() of these samples, whose gradient ends elsewhere.
        scored = {key for key in losing if self._are_scored(groups[key], lost[key])}
        # If neither side of a comparison carries a gradient, the other side is at fault.
        elsewhere = {leaf for key, leaves in lost.items() if key not in targets | scored for leaf in leaves}
        targets, scored = ({key for key in keys if elsewhere.issuperset(lost[key])} for keys in (targets, scored))
        return found | dict.fromkeys(targets, STOP_GRADIENT) | dict.fromkeys(scored, "scored"), targets | scored

    def _are_scored(self, stops: Sequence[Stop], lost: Iterable[Value]) -> bool:
        """Return whether samples meet, with a gradient, what they are drawn from."""

        def list_uses(value: Value) -> Iterator[Value]:
            uses = (use.step for use in self._uses.get(value, ()))
            return (Value(use, 0) for use in uses if plain_name(self._flow.steps[use].func) in {*SHOWING, "to_copy"})

        def list_inputs(value: Value) -> Iterator[Value]:
            return (self._flowing.root(read.value) for read in self._flowing.sources(value) if read.carries)

        drawn = [stop.value for stop in stops if stop.kind == "sample"]
        users = (use.step for value in find_reachable(drawn, list_uses) for use in self._uses.get(value, ()))
        reads = (read for user in users for read in self._flow.steps[user].inputs)
        behind = find_reachable((read.value for read in reads if read.carries and not read.is_leaf), list_inputs)
        return len(drawn) == len(stops) and set(behind).issuperset(lost)

    def _find_lost_leaves(self, stops: Sequence[Stop]) -> list[Value]:
        owners = dict.fromkeys(map(self._flowing.owner_of, self._flowing.leaves_cut_by(stops)))
        makers = ((leaf, self._flow.step_of(leaf)) for leaf in owners)
        # A view that sampling takes under no_grad counts as a leaf too.
        leaves = [leaf for leaf, maker in makers if maker is None or not maker.has_graph]
        return [leaf for leaf in leaves if id(self._flow.tensor_of(leaf)) not in self._reached]

    def _pattern_of_all(self, stops: Sequence[Stop]) -> str:
        values, kinds = {stop.value for stop in stops}, {stop.kind for stop in stops}
        is_made = all(value.maker != FROM_OUTSIDE for value in values)
        if not (kinds <= {"data", "detach", "no_grad"} and is_made and values.isdisjoint(self._flowing.ends)):
            return ""
        if self.are_moved(self._flowing.leaves_cut_by(stops)):
            return "target network"
        found = {self._pattern(stop) for stop in stops}
        # One layer may look like any other, so all layers that a line runs are judged together.
        lacking = self._find_lost_leaves(stops)
        if lacking and found.isdisjoint(_BY_THEMSELVES):
            return self._followers.pattern(lacking, {role for stop in stops for role in self._roles.of(stop.value)})
        return found.pop() if len(found) == 1 else ""

    def are_moved(self, leaves: Iterable[Value]) -> bool:
        """Return whether the program moves all these leaves towards others without a gradient."""
        return self._averages.issuperset(map(self._flowing.owner_of, leaves))

    def _pattern(self, stop: Stop) -> str:
        if self._is_largest(stop):
            return "subtracted maximum"
        found, roles = self._sums.pattern(stop.value), self._roles.of(stop.value)
        if found and not (found == STOP_GRADIENT and "return" in roles):
            return "policy ratio" if found == STOP_GRADIENT and "ratio" in roles else found
        found = next((pattern for role, pattern in _OF_ROLES if role in roles), "")
        source = self._flow.step_of(self._flowing.sources(stop.value)[0].value) if found == "advantage" else None
        if source is not None and plain_name(source.func) == "softmax":
            # A log-probability times a probability is a cross-entropy.
            return "pseudo labels"
        return "codebook" if found == STOP_GRADIENT and self._has_nearest else found

    def _is_largest(self, stop: Stop) -> bool:
        """Return whether a cut is the maximum of ``x - x.amax().detach()``, detached or under no_grad."""
        original = self._sums.original(stop.value)
        maker = self._flow.step_of(original)
        if maker is not None and _is_maximum(maker) and original.number == 0:
            return self._is_subtracted(stop.value, self._sums.original(maker.inputs[0].value))
        users = [use.step for use in self._uses.get(stop.value, ())]
        are_maxima = bool(users) and all(_is_maximum(self._flow.steps[user]) for user in users)
        return are_maxima and all(self._is_subtracted(Value(user, 0), original) for user in users)

    def _is_subtracted(self, value: Value, source: Value) -> bool:
        waiting, found = [value], False
        while waiting:
            value = waiting.pop()
            for use in self._uses.get(value, ()):
                step = self._flow.steps[use.step]
                if plain_name(step.func) in SAME_VALUES and len(step.inputs) == 1:
                    waiting.append(Value(use.step, 0))
                    continue
                is_difference = use.slot == 1 and is_plain(step, {"sub"}) and step.mode == "grad"
                minuend = step.inputs[0]
                if not is_difference or not minuend.carries or self._sums.original(minuend.value) != source:
                    return False
                found = True
        return found

    def _find_moved_leaves(self) -> Iterator[Value]:
        """Yield the leaves that the program moves towards others, and that get no gradient."""
        moved: dict[Value, None] = {}
        trained: set[Value] = set()
        for index, step in enumerate(self._flow.steps):
            if step.mode == "grad" and not self._flowing.wanted.isdisjoint(self._flow.values_of_step(index)):
                trained.update(self._flowing.root(read.value) for read in step.inputs if read.is_leaf)
            if "inplace" in step.kinds and step.called != "step":
                target = self._flowing.leaf_of(step.inputs_of_kind("inplace")[0])
                if target is not None and any(not self._leaves_near(read) <= {target} for read in step.inputs):
                    moved[target] = None
        for exchange in self._flow.exchanges:
            assigned, given = exchange.reads
            target = self._flowing.root(assigned.value)
            if not self._leaves_near(given) <= {target}:
                moved[target] = None
        return (leaf for leaf in moved if leaf not in trained)

    def _leaves_near(self, read: Read) -> set[Value]:
        found, waiting = set[Value](), [(read, 0)]
        while waiting:
            read, depth = waiting.pop()
            leaf, step = self._flowing.leaf_of(read), self._flow.step_of(read.value)
            if leaf is not None:
                found.add(leaf)
            elif step is not None and depth < _MOST_NEAR:
                waiting += [(source, depth + 1) for source in step.inputs]
        return found


def is_own_of_torch(stop: Stop) -> bool:
    """Return whether torch cuts in a function whose gradient flows another way, or in a copy of a parameter."""
    if stop.kind == "data":
        return stop.step.place is not None and stop.step.place.code is copy.deepcopy.__code__
    if stop.kind == "detach":
        # A call by the program has the name "detach".
        return stop.step.called in _DETACHING
    call = stop.step.call
    return stop.kind == "no_grad" and call is not None and type(call.module).__name__ == SPECTRAL_NORM


def cut_by_program(flowing: Flowing, patterns: Mapping[At, str]) -> set[Value]:
    """Return the leaves that the program, and not torch, cuts without a pattern."""
    unexplained = (stop for stop in flowing.stops if not (patterns[stop.kind, stop.place] or is_own_of_torch(stop)))
    return set(flowing.leaves_cut_by(unexplained))


def _is_maximum(step: Step) -> bool:
    return plain_name(step.func) in {"amax", "max"} and len(step.inputs) == 1
