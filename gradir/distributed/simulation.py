"""Runs all ranks at once, as programs that wait in each collective until all of its group are there."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gradir.ir import Collective
from gradir.ir.ids import accumulated, split_id, without_ordinal

ROOTED: Final = frozenset({"broadcast", "gather", "reduce", "scatter"})
_UNEVEN: Final = frozenset({"gather", "scatter", "all_to_all"})
"""Of these the ranks may give tensors of different sizes."""

POINT_TO_POINT: Final = frozenset({"send", "recv"})

_BARRIER: Final = "barrier"
_MOST_KINDS: Final = 3
"""So many kinds of mixed tensors are told."""

_ACCUMULATORS: Final = frozenset({"accumulate_grad"})
_EXCHANGING: Final = ("post_backward", *(f"_{name}" for name in ("all_gather", "all_reduce", "all_to_all", "scatter")))
"""Parts of the names of functions of which each issues the collectives of one module or one call."""

Key = tuple[str, tuple[int, ...]]
"""A process group: its label and the ranks in it, in its order."""

Groups = Mapping[str, tuple[int, ...]]
"""The groups of a rank by label."""

_Line = tuple[str, str, int]
"""A group, a file and a line in it."""


class Mismatch(NamedTuple):
    """Collectives of one group that do not fit, and their places in the programs, by rank."""

    group: Key
    issued: Mapping[int, Collective]
    reason: str
    places: Mapping[int, int]


class Stuck(NamedTuple):
    """Ranks that wait for ever, and how many collectives those issued that have ended.

    ``first`` has those that wait for ranks that have ended, and these; if there are none, the ranks wait in a circle.
    """

    waiting: Mapping[int, Collective]
    ended: Mapping[int, int]
    first: Mapping[int, Sequence[int]]


class Outcome(NamedTuple):
    """How many collectives were entered by all of their group, and what went wrong first, if anything.

    ``unreceived`` has the first unreceived message of each sender, ``mixed`` the first of each kind that mixes tensors,
    by rank, and ``places`` where the problem, or the first mixed tensors, are in the program of each rank.
    """

    done: int
    problem: Mismatch | Stuck | None
    unreceived: Mapping[int, Collective] = MappingProxyType({})
    mixed: Sequence[Mapping[int, Collective]] = ()
    mixed_count: int = 0
    places: Mapping[int, int] = MappingProxyType({})


def simulated(
    programs: Mapping[int, Iterable[Collective]], groups: Mapping[int, Groups], joined: Container[int] = ()
) -> Outcome:
    """Run the collectives of each rank until all end or wait. A rank that sends does not wait.

    Ranks without a program do not count. Those that ``joined`` mix no tensors.

    >>> both = {0: {"world": (0, 1)}, 1: {"world": (0, 1)}}
    >>> outcome = simulated({0: [Collective("backward", "all_reduce", "world")], 1: []}, both)
    >>> outcome.done, sorted(outcome.problem.waiting), outcome.problem.ended
    (0, [0], {1: 0})
    """
    return _Run(programs, groups, joined).outcome()


class _Room:
    def __init__(self, key: Key, programs: Container[int]) -> None:
        self.key = key
        self.present = tuple([member for member in key[1] if member in programs])
        self.here: dict[int, Collective] = {}


class _Run:
    def __init__(
        self, programs: Mapping[int, Iterable[Collective]], groups: Mapping[int, Groups], joined: Container[int]
    ) -> None:
        self._programs, self._joined = programs, joined
        self._lines: dict[int, set[_Line]] = {}
        keys = {(label, members) for rank in programs for label, members in groups[rank].items()}
        # By rank and label: the hash of a large group takes longer than a step.
        rooms = {key: _Room(key, programs) for key in keys}
        self._rooms = {rank: {key[0]: rooms[key] for key in groups[rank].items()} for rank in programs}
        self._at = dict.fromkeys(programs, 0)
        self._left = {rank: iter(program) for rank, program in programs.items()}
        self._now = {rank: next(left, None) for rank, left in self._left.items()}
        self._mail: defaultdict[tuple[Key, int, int], deque[tuple[Collective, int]]] = defaultdict(deque)
        self._done = 0
        self._mixed: dict[Hashable, Mapping[int, Collective]] = {}
        self._mixed_count = 0
        self._mixed_at: Mapping[int, int] = {}

    def outcome(self) -> Outcome:
        """Let each rank run until it waits, and again once that is there for which it waited."""
        work = deque(self._at)
        while work:
            rank = work.popleft()
            while (issued := self._now[rank]) is not None:
                woken = self._step(rank, issued)
                if isinstance(woken, Mismatch):
                    return self._ended(self._done, woken)
                if woken is None:
                    break
                work.extend(woken)
        stuck = {rank: issued for rank, issued in self._now.items() if issued is not None}
        if stuck:
            return self._ended(self._done, self._stuck(stuck))
        left = {
            sender: mail[0][0] for (_, sender, receiver), mail in self._mail.items() if mail and receiver in self._at
        }
        return self._ended(self._done - sum(map(len, self._mail.values())), None, left)

    def _go_on(self, rank: int) -> None:
        self._at[rank] += 1
        self._now[rank] = next(self._left[rank], None)

    def _ended(
        self, done: int, problem: Mismatch | Stuck | None, left: Mapping[int, Collective] = MappingProxyType({})
    ) -> Outcome:
        at = self._mixed_at
        if problem is not None:
            at = problem.places if isinstance(problem, Mismatch) else self._at
        return Outcome(done, problem, left, tuple(self._mixed.values()), self._mixed_count, at)

    def _step(self, rank: int, issued: Collective) -> Sequence[int] | Mismatch | None:
        """Issue a collective; return the ranks that may go on, or None if this one waits."""
        room = self._rooms[rank][issued.group]
        key = room.key
        if issued.op == "send" and issued.peer is not None:
            receiver = key[1][issued.peer]
            self._mail[key, rank, receiver].append((issued, self._at[rank]))
            self._go_on(rank)
            self._done += 1
            return (receiver,) if receiver in self._at else ()
        if issued.op == "recv" and issued.peer is not None:
            return self._receive(rank, key, issued)
        here, present = room.here, room.present
        here[rank] = issued
        if len(here) < len(present):
            return None
        reason = self._reason(key, here)
        if reason:
            return Mismatch(key, dict(here), reason, {member: self._at[member] for member in present})
        if len({*map(id, here.values())}) > 1:
            self._note_mixed(here)
        here.clear()
        for member in present:
            self._go_on(member)
        self._done += 1
        return [member for member in present if member != rank]

    def _receive(self, rank: int, key: Key, issued: Collective) -> Sequence[int] | Mismatch | None:
        sender = key[1][issued.peer or 0]
        mail = self._mail[key, sender, rank]
        if not mail:
            if sender in self._at:
                return None
        else:
            sent, place = mail.popleft()
            places = {sender: place, rank: self._at[rank]}
            if sent.tensors != issued.tensors:
                return Mismatch(key, {sender: sent, rank: issued}, "other tensors", places)
            if None not in (sent.microbatch, issued.microbatch) and sent.microbatch != issued.microbatch:
                self._add_mixed((key, sender, rank), {sender: sent, rank: issued}, places)
        self._go_on(rank)
        self._done += 1
        return ()

    def _reason(self, key: Key, here: Mapping[int, Collective]) -> str:
        first = next(iter(here.values()))
        # Ranks with equal lists have the same objects.
        others = {id(issued): issued for issued in here.values()}.values()
        if first.op != "all_to_all" and all(_is_as(issued, first) for issued in others):
            return ""
        kinds = {_shape(issued) for issued in here.values()}
        if len(kinds) > 1:
            ops, tensors, peers = map(set, zip(*kinds, strict=True))
            if len(ops) > 1:
                return "other operations"
            return "other roots" if len(tensors) == 1 and len(peers) > 1 else "other tensors"
        if first.op == "all_to_all":
            return _wrong_splits(key[1], here)
        return ""

    def _note_mixed(self, here: Mapping[int, Collective]) -> None:
        first, *others = {id(issued): issued for issued in here.values()}.values()
        if any(rank in self._joined for rank in here):
            return
        if any(_is_other(first, each) for each in others) or self._are_elsewhere(here):
            kind = frozenset((each.phase, each.op, each.scope, each.node) for each in (first, *others))
            self._add_mixed(kind, dict(here), {rank: self._at[rank] for rank in here})

    def _are_elsewhere(self, here: Mapping[int, Collective]) -> bool:
        """Return whether ranks come to the same lines in another order."""
        by_line = {_line_of(issued): rank for rank, issued in here.items()}
        if len(by_line) == 1 or None in by_line:
            return False
        for rank in by_line.values():
            if rank not in self._lines:
                self._lines[rank] = {line for line in map(_line_of, self._programs[rank]) if line is not None}
        return all(self._lines[rank].issuperset(by_line) for rank in by_line.values())

    def _add_mixed(self, kind: Hashable, issued: Mapping[int, Collective], places: Mapping[int, int]) -> None:
        self._mixed_count += 1
        self._mixed_at = {**places, **self._mixed_at}
        if len(self._mixed) < _MOST_KINDS:
            self._mixed.setdefault(kind, issued)

    def _stuck(self, waiting: Mapping[int, Collective]) -> Stuck:
        ended = {rank: self._at[rank] for rank in self._at if rank not in waiting}
        gone = {rank: [*filter(ended.__contains__, self._missing(rank, issued))] for rank, issued in waiting.items()}
        return Stuck(waiting, ended, {rank: those for rank, those in gone.items() if those})

    def _missing(self, rank: int, issued: Collective) -> Sequence[int]:
        room = self._rooms[rank][issued.group]
        if issued.op == "recv" and issued.peer is not None:
            return (room.key[1][issued.peer],)
        return [member for member in room.present if member not in room.here]


def _is_other(one: Collective, other: Collective) -> bool:
    """Return whether collectives that fit surely belong to different tensors.

    They do in different phases, with different reductions, of different modules in the forward, and of different
    gradients in the backward. Two buckets of gradients that have one in common are the same bucket.
    """
    if one.phase != other.phase or (one.reduce != other.reduce and one.reduce and other.reduce):
        return True
    if one.phase == "forward":
        return one.scope != other.scope and one.op != _BARRIER
    # Of a million collectives nearly all are equal in these.
    return (one.node, one.operands) != (other.node, other.operands) and _is_other_gradient(one, other)


def _is_other_gradient(one: Collective, other: Collective) -> bool:
    if one.operands and other.operands:
        return {*one.operands}.isdisjoint(other.operands)
    (path, name), (other_path, other_name) = split_id(one.node), split_id(other.node)
    by_one_function = without_ordinal(name) == without_ordinal(other_name) != ""
    if path == other_path or not by_one_function:
        return False
    if accumulated(one.node, _ACCUMULATORS) != one.node:
        return any(len(tensor.shape or ()) > 1 for tensor in one.tensors)
    return any(part in name for part in _EXCHANGING)


def _line_of(issued: Collective) -> _Line | None:
    """Return the line of a collective in forward; roots and barriers often have lines of their own."""
    source = issued.source
    if source is None or issued.phase != "forward" or issued.op in (*ROOTED, _BARRIER):
        return None
    # The folder is as the rank's own working directory shows it.
    return issued.group, source.file.rpartition("/")[2], source.line


def _is_as(issued: Collective, first: Collective) -> bool:
    return (
        issued.op == first.op
        and issued.tensors == first.tensors
        and issued.reduce == first.reduce
        and issued.peer == first.peer
    )


def _shape(issued: Collective) -> tuple[Hashable, ...]:
    tensors = tuple([(tensor.dtype, tensor.shape) for tensor in issued.tensors])
    peer = issued.peer if issued.op in ROOTED else None
    return issued.op, tensors if issued.op not in _UNEVEN else None, peer


def _wrong_splits(members: Sequence[int], here: Mapping[int, Collective]) -> str:
    for place, sender in enumerate(members):
        for other, receiver in enumerate(members):
            if sender not in here or receiver not in here:
                continue
            sent, received = here[sender].splits, here[receiver].splits
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
