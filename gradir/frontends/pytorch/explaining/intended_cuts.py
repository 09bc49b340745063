"""Recognise cuts that a program means, such as those of networks that follow others."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias, TypeVar

import torch
from torch import nn

from gradir.frontends.pytorch.explaining.cuts import At, Flowing, Stop
from gradir.frontends.pytorch.explaining.roles import (
    SAME_NUMBERS,
    STOP_GRADIENT,
    STRAIGHT_THROUGH,
    Roles,
    Sums,
    Use,
    is_plain,
)
from gradir.frontends.pytorch.private import SPECTRAL_NORM, fields_of
from gradir.frontends.pytorch.reading.tensors import held_by, numbers_in
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Read, Step, Value, plain_name

_Print: TypeAlias = "tuple[object, ...]"
NamesOf: TypeAlias = "Callable[[Value], tuple[str, ...]]"
"""What gives the names of a leaf."""

# The role of a module with this word in its path, if its results are compared with others.
_WORDS: Final = {
    **dict.fromkeys(("ema", "momentum", "shadow", "slow"), "target network"),
    **dict.fromkeys(("behavior", "old", "ref", "reference"), "reference model"),
    "teacher": "teacher",
}

_TARGETS: Final = frozenset({"targ", "target"})
_RATIOS: Final = frozenset({"log ratio", "ratio"})
_OF_TARGET_ROLES: Final = frozenset({"labels", "return", "target"})
# Beside one of these words "target" means a network, and not the target of a translation.
_OF_TARGETS: Final = frozenset(
    {"actor", "critic", "encoder", "model", "net", "network", "policy", "q", "qf", "qnet", "value"}
)

# How many numbers to compare before a tensor is compared as a whole.
_FIRST: Final = 8


class Followers:
    """Recognises the parameters of networks that follow others or stay as they are, and get no gradient."""

    # Others are compared with their results, and they are copies, in evaluation mode, or have a telling name.

    def __init__(self, flowing: Flowing, reached: Collection[int], names_of: NamesOf) -> None:
        self._flow, self._flowing = flowing.flow, flowing
        self._reached, self._names_of = reached, names_of

    def pattern(self, lacking: Sequence[Value], roles: Collection[str]) -> str:
        """Return the pattern of leaves without a gradient, by the roles of their results; empty if there is none."""
        is_compared = not _OF_TARGET_ROLES.isdisjoint(roles)
        if not roles:
            # Members of an ensemble are copies, too.
            return ""
        words = {self._word(leaf, is_compared=is_compared, is_bootstrapped="return" in roles) for leaf in lacking}
        word = words.pop() if len(words) == 1 else ""
        if word:
            return word
        if self._are_copies(lacking):
            return "target network" if _RATIOS.isdisjoint(roles) else "reference model"
        return "teacher" if self._only_evaluate(lacking) else ""

    def _word(self, leaf: Value, *, is_compared: bool, is_bootstrapped: bool) -> str:
        """Return the role that the path of a leaf's module tells."""
        name = next(iter(self._names_of(leaf)), "")
        parts = re.split(r"[^a-z]+", name.rpartition(".")[0].lower())
        is_target = is_bootstrapped or (is_compared and not _OF_TARGETS.isdisjoint(parts))
        if is_target and not _TARGETS.isdisjoint(parts):
            return "target network"
        return next((_WORDS[part] for part in parts if part in _WORDS), "")

    def _are_copies(self, lacking: Sequence[Value]) -> bool:
        """Whether each of some leaves has the numbers of one that gets a gradient, and not all those of one kind."""
        tensors = [self._flow.tensor_of(leaf) for leaf in lacking]
        found = [None if tensor is None else self._original(tensor) for tensor in tensors]
        values = [_held(one) for one in found if one is not None]
        # Where all are of one kind, they may be initialised with a constant each.
        varies = any(each.numel() > 1 and bool(each.min() != each.max()) for each in values)
        return len(values) == len(found) and varies

    def _original(self, tensor: torch.Tensor) -> torch.Tensor | None:
        same = self._prints.get(_print_of(tensor), ())
        return next((other for other in same if torch.equal(_held(other), _held(tensor))), None)

    @cached_property
    def _prints(self) -> dict[_Print, list[torch.Tensor]]:
        found: dict[_Print, list[torch.Tensor]] = {}
        for number, outside in enumerate(self._flow.outside):
            tensor = outside.tensor()
            # What a target is a copy of follows none: it lost its gradient to the target.
            is_follower = self._word(Value(FROM_OUTSIDE, number), is_compared=True, is_bootstrapped=True) != ""
            if outside.role == "parameter" and tensor is not None and id(tensor) in self._reached and not is_follower:
                found.setdefault(_print_of(tensor), []).append(tensor)
        # Of many that begin alike only the first are compared.
        return {key: tensors[:_FIRST] for key, tensors in found.items()}

    def _only_evaluate(self, lacking: Sequence[Value]) -> bool:
        modules = [self._modules.get(leaf) for leaf in lacking]
        learning = (each for leaf, each in self._modules.items() if id(self._flow.tensor_of(leaf)) in self._reached)
        trains = any(module is not None and _is_training(module) for module in learning)
        return trains and all(module is not None and not _is_training(module) for module in modules)

    @cached_property
    def _modules(self) -> dict[Value, nn.Module | None]:
        calls = {leaf: self._flow.steps[index].call for leaf, index in self._flowing.first_takers.items()}
        return {leaf: None if call is None else call.module for leaf, call in calls.items()}


def _is_training(module: nn.Module) -> bool:
    return fields_of(module).get("training") is True


def _held(tensor: torch.Tensor) -> torch.Tensor:
    return numbers_in(held_by(tensor.detach()))


def _print_of(tensor: torch.Tensor) -> _Print:
    held = held_by(tensor.detach())
    if held.is_meta or held.layout is not torch.strided or not held.untyped_storage().nbytes():
        return (id(tensor),)
    return (held.shape, held.dtype, held.device, *held.reshape(-1)[:_FIRST].tolist())


_Key = TypeVar("_Key", bound=Hashable)

_ASKED_FOR: Final = frozenset({"data", "detach", "no_grad"})
_LARGEST: Final = frozenset({"amax", "max"})
_DETACHING: Final = frozenset({"embedding", "embedding_bag", "gumbel_softmax"})
_OPTIMIZER: Final = "step"
# How many operations in a row make a moving average.
_MOST_NEAR: Final = 4

# The pattern of each role, the most telling role first.
_OF_ROLES: Final = (
    ("ratio", "policy ratio"),
    ("advantage", "advantage"),
    ("labels", "pseudo labels"),
    ("return", "bootstrapped target"),
    ("target", STOP_GRADIENT),
)

# The arithmetic alone shows these patterns, whatever gets a gradient.
_BY_THEMSELVES: Final = frozenset({STRAIGHT_THROUGH, "subtracted maximum"})


class IntendedCuts:
    """Recognises patterns by the operations that take a value, and the other inputs of these."""

    def __init__(self, flowing: Flowing, reached: Collection[int], names_of: NamesOf) -> None:
        """``reached`` are the leaves that get a gradient, by id(); ``names_of`` gives the names of a leaf."""
        self._flow = flow = flowing.flow
        self._flowing, self._reached = flowing, reached
        self._uses: dict[Value, list[Use]] = {}
        for index, step in enumerate(flow.steps):
            if not flowing.wanted.isdisjoint(flow.made_by(index)):
                for slot, read in enumerate(step.inputs):
                    self._uses.setdefault(read.value, []).append(Use(index, slot))
        self._averages = set(self._moved_averages())
        self._sums, self._roles = Sums(flowing, self._uses), Roles(flowing)
        self._followers = Followers(flowing, reached, names_of)
        # Entries that are nearest to something are those of a codebook.
        self._has_nearest = any(_name(step) == "argmin" for step in flow.steps)

    def patterns(self, groups: Mapping[_Key, Sequence[Stop]]) -> tuple[dict[_Key, str], set[_Key]]:
        """Return the pattern of each place, and the places at targets of values that lose their gradient elsewhere."""
        found = {key: self._pattern_of_all(stops) for key, stops in groups.items()}
        lost = {key: self._lost(stops) for key, stops in groups.items() if not found[key]}
        # Without a graph nothing gets a gradient.
        asked = [key for key, leaves in lost.items() if leaves and self._reached]
        # There the values of all stops are only what others are compared with.
        targets = {key for key in asked if all(set(self._roles.of(stop.value)) == {"target"} for stop in groups[key])}
        # If both sides of a comparison carry no gradient, the target is not the side that lacks it.
        elsewhere = {leaf for key, leaves in lost.items() if key not in targets for leaf in leaves}
        targets = {key for key in targets if elsewhere.issuperset(lost[key])}
        return found | dict.fromkeys(targets, STOP_GRADIENT), targets

    def _lost(self, stops: Sequence[Stop]) -> list[Value]:
        owners = dict.fromkeys(map(self._flowing.owner_of, self._flowing.leaves_cut_by(stops)))
        return [leaf for leaf in owners if id(self._flow.tensor_of(leaf)) not in self._reached]

    def _pattern_of_all(self, stops: Sequence[Stop]) -> str:
        values, kinds = {stop.value for stop in stops}, {stop.kind for stop in stops}
        is_made = all(value.maker != FROM_OUTSIDE for value in values)
        if not (kinds <= _ASKED_FOR and is_made and values.isdisjoint(self._flowing.ends)):
            return ""
        if self.are_moved(self._flowing.leaves_cut_by(stops)):
            return "target network"
        found = {self._pattern(stop) for stop in stops}
        # A layer of a network may be as any other; of all that a line runs more is known.
        lacking = self._lost(stops)
        if lacking and found.isdisjoint(_BY_THEMSELVES):
            return self._followers.pattern(lacking, {role for stop in stops for role in self._roles.of(stop.value)})
        return found.pop() if len(found) == 1 else ""

    def are_moved(self, leaves: Iterable[Value]) -> bool:
        """Return whether the program moves all of some leaves towards others, without a gradient."""
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
        """``x - x.amax().detach()``, the maximum of detached numbers or under no_grad."""
        value, whose = stop.value, self._sums.original(stop.value)
        made = self._flow.step_of(whose)
        if made is not None and _name(made) in _LARGEST and len(made.inputs) == 1 and whose.number == 0:
            return self._is_subtracted(value, self._sums.original(made.inputs[0].value))
        uses = [(use.step, self._flow.steps[use.step]) for use in self._uses.get(value, ())]
        is_of_largest = all(_name(step) in _LARGEST and len(step.inputs) == 1 for _, step in uses)
        return bool(uses) and is_of_largest and all(self._is_subtracted(Value(at, 0), whose) for at, _ in uses)

    def _is_subtracted(self, value: Value, source: Value) -> bool:
        waiting, found = [value], False
        while waiting:
            value = waiting.pop()
            for use in self._uses.get(value, ()):
                step = self._flow.steps[use.step]
                if _name(step) in SAME_NUMBERS and len(step.inputs) == 1:
                    waiting.append(Value(use.step, 0))
                    continue
                is_difference = use.slot == 1 and is_plain(step, {"sub"}) and step.mode == "grad"
                if not is_difference or not step.inputs[0].carries:
                    return False
                if self._sums.original(step.inputs[0].value) != source:
                    return False
                found = True
        return found

    def _moved_averages(self) -> Iterator[Value]:
        """Leaves that are moved towards others without a gradient, and that nothing captured has a gradient for."""
        moved: dict[Value, None] = {}
        trained: set[Value] = set()
        for index, step in enumerate(self._flow.steps):
            wanted = not self._flowing.wanted.isdisjoint(self._flow.made_by(index))
            if step.mode == "grad" and wanted:
                trained.update(self._flowing.root(read.value) for read in step.inputs if read.is_leaf)
            if "inplace" in step.kinds and step.called != _OPTIMIZER:
                target = self._flowing.leaf_of(step.of_kind("inplace")[0])
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
    """Whether torch cuts for a function of its own, which has its gradient another way, or copies a parameter."""
    if stop.kind == "data":
        return stop.step.place is not None and stop.step.place.code is copy.deepcopy.__code__
    if stop.kind == "detach":
        # A program's own has that name.
        return stop.step.called in _DETACHING
    call = stop.step.call
    return stop.kind == "no_grad" and call is not None and type(call.module).__name__ == SPECTRAL_NORM


def cut_by_program(flowing: Flowing, patterns: Mapping[At, str]) -> set[Value]:
    """Return the leaves that a program cuts without a pattern, and not torch for a function of its own."""
    plain = (stop for stop in flowing.stops if not (patterns[stop.kind, stop.place] or is_own_of_torch(stop)))
    return set(flowing.leaves_cut_by(plain))


def _name(step: Step) -> str:
    return str(step.func.__name__).partition(".")[0]
