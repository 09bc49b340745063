"""Simulate all ranks as programs that wait in each collective for all ranks of its group."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from gradir.ir import Collective
from gradir.ir.ids import remove_ordinal, split_id, strip_accumulator

ROOTED: Final = frozenset({"broadcast", "gather", "reduce", "scatter"})
_UNEVEN: Final = frozenset({"gather", "scatter", "all_to_all"})
"""Operations whose tensors may have different sizes on each rank."""

POINT_TO_POINT: Final = frozenset({"send", "recv"})

_MUST_EQUAL: Final = attrgetter("op", "tensors", "reduce", "peer")
_BARRIER: Final = "barrier"
_MOST_KINDS: Final = 3
"""The kinds of mixed tensors to report."""

_ACCUMULATORS: Final = frozenset({"accumulate_grad"})
_EXCHANGING: Final = ("post_backward", *(f"_{name}" for name in ("all_gather", "all_reduce", "all_to_all", "scatter")))
"""Parts of the names of functions that issue the collectives of one module or one call."""

Key = tuple[str, tuple[int, ...]]
"""A process group: its label and its ranks, in its order."""

Groups = Mapping[str, tuple[int, ...]]
"""The groups of a rank by label."""

_Line = tuple[str, str, int]
"""A group, a file, and a line number."""


class Mismatch(NamedTuple):
    """Collectives of one group that do not fit, and their places in the programs, both by rank."""

    group: Key
    issued: Mapping[int, Collective]
    reason: str
    places: Mapping[int, int]


class Stuck(NamedTuple):
    """Ranks that wait for ever, and the number of collectives of each rank that has ended.

    ``first`` has the ranks that wait for ended ranks, with the latter. If it is empty, the ranks wait in a circle.
    """

    waiting: Mapping[int, Collective]
    ended: Mapping[int, int]
    first: Mapping[int, Sequence[int]]


class Outcome(NamedTuple):
    """The number of collectives that all of their group entered, and the first problem, if any.

    ``unreceived`` has the first unreceived message of each sender. ``mixed`` has the first collectives of each kind
    that mixes tensors, by rank. ``places`` has the place of the problem, or of the first mixed tensors, by rank.
    """

    done: int
    problem: Mismatch | Stuck | None
    unreceived: Mapping[int, Collective] = MappingProxyType({})
    mixed: Sequence[Mapping[int, Collective]] = ()
    mixed_count: int = 0
    places: Mapping[int, int] = MappingProxyType({})


def simulate(
    programs: Mapping[int, Iterable[Collective]], groups: Mapping[int, Groups], joined: Container[int] = ()
) -> Outcome:
    """Run the collectives of each rank until all ranks end or wait. A rank that sends does not wait.

    Ranks without a program do not count. Ranks that ``joined`` mix no tensors.

    >>> both = {0: {"world": (0, 1)}, 1: {"world": (0, 1)}}
    >>> outcome = simulate({0: [Collective("backward", "all_reduce", "world")], 1: []}, both)
    >>> outcome.done, sorted(outcome.problem.waiting), outcome.problem.ended
    (0, [0], {1: 0})
    """
    return _Run(programs, groups, joined).run()


class _Rendezvous:
    """The ranks of a group that have a program, and the collectives of those that have arrived."""

    def __init__(self, key: Key, programs: Container[int]) -> None:
        self.key = key
        self.members = tuple([member for member in key[1] if member in programs])
        self.arrived: dict[int, Collective] = {}


class _Run:
    def __init__(
        self, programs: Mapping[int, Iterable[Collective]], groups: Mapping[int, Groups], joined: Container[int]
    ) -> None:
        self._programs, self._joined = programs, joined
        self._lines: dict[int, set[_Line]] = {}
        keys = {(label, members) for rank in programs for label, members in groups[rank].items()}
        # Keyed by rank and label, since the hash of a large group takes longer than a step.
        meetings = {key: _Rendezvous(key, programs) for key in keys}
        self._meetings = {rank: {key[0]: meetings[key] for key in groups[rank].items()} for rank in programs}
        self._places = dict.fromkeys(programs, 0)
        self._rest = {rank: iter(program) for rank, program in programs.items()}
        self._current = {rank: next(rest, None) for rank, rest in self._rest.items()}
        self._mail: defaultdict[tuple[Key, int, int], deque[tuple[Collective, int]]] = defaultdict(deque)
        self._done = 0
        self._mixed: dict[Hashable, Mapping[int, Collective]] = {}
        self._mixed_count = 0
        self._mixed_places: Mapping[int, int] = {}

    def run(self) -> Outcome:
        """Let each rank run until it waits, and again after the others arrived."""
        work = deque(self._places)
        while work:
            rank = work.popleft()
            while (issued := self._current[rank]) is not None:
                woken = self._step(rank, issued)
                if isinstance(woken, Mismatch):
                    return self._outcome(woken, woken.places)
                if woken is None:
                    break
                work.extend(woken)
        waiting = {rank: issued for rank, issued in self._current.items() if issued is not None}
        if waiting:
            return self._outcome(self._find_stuck(waiting), self._places)
        unread = {key: mail for key, mail in self._mail.items() if mail}
        self._done -= sum(map(len, unread.values()))
        unreceived = {sender: mail[0][0] for (_, sender, receiver), mail in unread.items() if receiver in self._places}
        return self._outcome(None, self._mixed_places)._replace(unreceived=unreceived)

    def _advance(self, rank: int) -> None:
        self._places[rank] += 1
        self._current[rank] = next(self._rest[rank], None)

    def _outcome(self, problem: Mismatch | Stuck | None, places: Mapping[int, int]) -> Outcome:
        mixed = tuple(self._mixed.values())
        return Outcome(self._done, problem, mixed=mixed, mixed_count=self._mixed_count, places=places)

    def _step(self, rank: int, issued: Collective) -> Sequence[int] | Mismatch | None:
        """Issue a collective, and return the ranks that may continue, or None if this one waits."""
        meeting = self._meetings[rank][issued.group]
        key = meeting.key
        if issued.op == "send" and issued.peer is not None:
            receiver = key[1][issued.peer]
            self._mail[key, rank, receiver].append((issued, self._places[rank]))
            self._advance(rank)
            self._done += 1
            return (receiver,) if receiver in self._places else ()
        if issued.op == "recv" and issued.peer is not None:
            return self._receive(rank, key, issued)
        arrived, members = meeting.arrived, meeting.members
        arrived[rank] = issued
        if len(arrived) < len(members):
            return None
        reason = self._reason(key, arrived)
        if reason:
            return Mismatch(key, dict(arrived), reason, {member: self._places[member] for member in members})
        if len({*map(id, arrived.values())}) > 1:
            self._check_mixed(arrived)
        arrived.clear()
        for member in members:
            self._advance(member)
        self._done += 1
        return [member for member in members if member != rank]

    def _receive(self, rank: int, key: Key, issued: Collective) -> Sequence[int] | Mismatch | None:
        sender = key[1][issued.peer or 0]
        mail = self._mail[key, sender, rank]
        if not mail:
            if sender in self._places:
                return None
        else:
            sent, place = mail.popleft()
            places = {sender: place, rank: self._places[rank]}
            if sent.tensors != issued.tensors:
                return Mismatch(key, {sender: sent, rank: issued}, "other tensors", places)
            if None not in (sent.microbatch, issued.microbatch) and sent.microbatch != issued.microbatch:
                self._add_mixed((key, sender, rank), {sender: sent, rank: issued}, places)
        self._advance(rank)
        self._done += 1
        return ()

    def _reason(self, key: Key, arrived: Mapping[int, Collective]) -> str:
        first = next(iter(arrived.values()))
        # Ranks with equal lists have the same objects.
        others = {id(issued): issued for issued in arrived.values()}.values()
        expected = _MUST_EQUAL(first)
        if first.op != "all_to_all" and all(_MUST_EQUAL(issued) == expected for issued in others):
            return ""
        kinds = {_kind_of(issued) for issued in arrived.values()}
        if len(kinds) > 1:
            ops, tensors, peers = map(set, zip(*kinds, strict=True))
            if len(ops) > 1:
                return "other operations"
            return "other roots" if len(tensors) == 1 and len(peers) > 1 else "other tensors"
        return _wrong_splits(key[1], arrived) if first.op == "all_to_all" else ""

    def _check_mixed(self, arrived: Mapping[int, Collective]) -> None:
        first, *others = {id(issued): issued for issued in arrived.values()}.values()
        if any(rank in self._joined for rank in arrived):
            return
        if any(_is_other(first, each) for each in others) or self._are_elsewhere(arrived):
            kind = frozenset((each.phase, each.op, each.scope, each.node) for each in (first, *others))
            self._add_mixed(kind, dict(arrived), {rank: self._places[rank] for rank in arrived})

    def _are_elsewhere(self, arrived: Mapping[int, Collective]) -> bool:
        by_line = {_line_of(issued): rank for rank, issued in arrived.items()}
        if len(by_line) == 1 or None in by_line:
            return False
        for rank in by_line.values():
            if rank not in self._lines:
                self._lines[rank] = {line for line in map(_line_of, self._programs[rank]) if line is not None}
        return all(self._lines[rank].issuperset(by_line) for rank in by_line.values())

    def _add_mixed(self, kind: Hashable, issued: Mapping[int, Collective], places: Mapping[int, int]) -> None:
        self._mixed_count += 1
        self._mixed_places = {**places, **self._mixed_places}
        if len(self._mixed) < _MOST_KINDS:
            self._mixed.setdefault(kind, issued)

    def _find_stuck(self, waiting: Mapping[int, Collective]) -> Stuck:
        ended = {rank: self._places[rank] for rank in self._places if rank not in waiting}
        first = {
            rank: [*filter(ended.__contains__, self._list_awaited(rank, issued))] for rank, issued in waiting.items()
        }
        return Stuck(waiting, ended, {rank: awaited for rank, awaited in first.items() if awaited})

    def _list_awaited(self, rank: int, issued: Collective) -> Sequence[int]:
        meeting = self._meetings[rank][issued.group]
        if issued.op == "recv" and issued.peer is not None:
            return (meeting.key[1][issued.peer],)
        return [member for member in meeting.members if member not in meeting.arrived]


def _is_other(one: Collective, other: Collective) -> bool:
    """Return whether collectives that fit certainly belong to different tensors.

    They do in different phases, with different reductions, in different modules of the forward, and for different
    gradients of the backward. Two buckets that share a gradient are the same bucket.
    """
    if one.phase != other.phase or (one.reduce != other.reduce and one.reduce and other.reduce):
        return True
    if one.phase == "forward":
        return one.scope != other.scope and one.op != _BARRIER
    # Nearly all of a million collectives are equal in these fields.
    return (one.node, one.operands) != (other.node, other.operands) and _is_other_gradient(one, other)


def _is_other_gradient(one: Collective, other: Collective) -> bool:
    if one.operands and other.operands:
        return {*one.operands}.isdisjoint(other.operands)
    (path, name), (other_path, other_name) = split_id(one.node), split_id(other.node)
    by_one_function = remove_ordinal(name) == remove_ordinal(other_name) != ""
    if path == other_path or not by_one_function:
        return False
    if strip_accumulator(one.node, _ACCUMULATORS) != one.node:
        return any(len(tensor.shape or ()) > 1 for tensor in one.tensors)
    return any(part in name for part in _EXCHANGING)


def _line_of(issued: Collective) -> _Line | None:
    """Return the line of a collective in the forward. Roots and barriers often have different lines."""
    source = issued.source
    if source is None or issued.phase != "forward" or issued.op in (*ROOTED, _BARRIER):
        return None
    # The folder depends on the working directory of the rank.
    return issued.group, source.file.rpartition("/")[2], source.line


def _kind_of(issued: Collective) -> tuple[Hashable, ...]:
    tensors = tuple([(tensor.dtype, tensor.shape) for tensor in issued.tensors])
    peer = issued.peer if issued.op in ROOTED else None
    return issued.op, tensors if issued.op not in _UNEVEN else None, peer


def _wrong_splits(members: Sequence[int], arrived: Mapping[int, Collective]) -> str:
    for place, sender in enumerate(members):
        for other, receiver in enumerate(members):
            if sender not in arrived or receiver not in arrived:
                continue
            sent, received = arrived[sender].splits, arrived[receiver].splits
            if not sent or len(received) < len("io"):
                continue
            if sent[0][other : other + 1] != received[1][place : place + 1]:
                return (
                    f"rank {sender} sends {_size(sent[0], other)} to rank {receiver}, which expects "
                    f"{_size(received[1], place)}"
                )
    return ""


def _size(sizes: Sequence[int], place: int) -> str:
    return str(sizes[place]) if place < len(sizes) else "nothing"
