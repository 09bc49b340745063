"""Read the files of ranks once, without making graphs."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from operator import itemgetter
from os import PathLike
from typing import Any, Final, NamedTuple, cast

from msgspec.structs import astuple, replace

from gradir import files
from gradir.codecs.codec import decode, encode
from gradir.codecs.rank_parts import RankParts, RankSplitter, number_collectives
from gradir.distributed.simulation import POINT_TO_POINT, Key
from gradir.errors import GradirError
from gradir.gcpause import pause_gc
from gradir.ir import Collective, Graph, Rank
from gradir.ir.memo import group_by_key
from gradir.ir.text import excerpt

_Source = str | PathLike[str] | Graph

_UNKNOWN: Final = Rank(0, 0)
"""The rank of a file that states none."""

_NUMBER: Final = re.compile("([0-9]+)")
_MOST_RANKS: Final = 1_000_000
"""A larger number in the name of a file is not a rank, but perhaps a date."""

_STARTS: Final = tuple(map(Collective.__struct_fields__.index, ("phase", "node", "source", "operands")))
"""The first field of each part: the operation, its place, its line, and its tensors."""

_MOST_KNOWN: Final = 20_000
"""The records to recognize by their bytes, or to keep as objects, which takes some megabytes."""


class _Part(dict[tuple[Any, ...], int]):
    """The distinct values of one part, with their numbers, and the numbers of all records."""

    def __init__(self, fields: slice) -> None:
        super().__init__()
        self.fields = fields
        self.distinct: list[tuple[Any, ...]] = []
        self.numbers = array("L")

    def __missing__(self, value: tuple[Any, ...]) -> int:
        number = self[value] = len(self.distinct)
        self.distinct.append(value)
        return number


class _Programs:
    """Stores each distinct part of the collectives of all ranks once, since a thousand ranks have a million of them."""

    def __init__(self) -> None:
        self._parts = [_Part(slice(*ends)) for ends in zip(_STARTS, (*_STARTS[1:], None), strict=True)]
        self._lists: dict[bytes, Program] = {}
        self._known: dict[bytes, int] = {}
        self._record = lru_cache(_MOST_KNOWN)(self._make_record)

    def read(self, data: bytes, parts: RankParts) -> Program:
        """Return the collectives of a document."""
        digest = hashlib.sha256(parts.collectives).digest()
        if digest not in self._lists:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            rows = number_collectives(data, parts, self._known, self._add)
            self._lists[digest] = Program(self._parts, self._record, rows)
        return self._lists[digest]

    def _add(self, collectives: Sequence[Collective]) -> range:
        records = [*map(astuple, collectives)]
        for part in self._parts:
            part.numbers.extend(map(part.__getitem__, map(itemgetter(part.fields), records)))
        count = len(self._parts[0].numbers)
        return range(count - len(records), count)

    def _make_record(self, row: int) -> Collective:
        # Ranks whose lists all differ make each record anew, and a loop over the parts takes twice as long.
        operation, place, line, tensors = self._parts
        return Collective(
            *operation.distinct[operation.numbers[row]],
            *place.distinct[place.numbers[row]],
            *line.distinct[line.numbers[row]],
            *tensors.distinct[tensors.numbers[row]],
        )


class Program:
    """The collectives of a rank, in order."""

    def __init__(self, parts: Sequence[_Part], record: Callable[[int], Collective], rows: Sequence[int]) -> None:
        self._parts, self.record, self._rows = parts, record, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> Collective:
        return self.record(self._rows[place])

    def __iter__(self) -> Iterator[Collective]:
        return map(self.record, self._rows)

    def kinds(self) -> Iterator[tuple[Collective, int]]:
        """Return the collectives that differ in more than their lines, with their counts."""
        operations, places, _, tensors = (part.numbers for part in self._parts)
        firsts: dict[tuple[int, ...], int] = {}
        counts: Counter[int] = Counter()
        for row, count in Counter(self._rows).items():
            counts[firsts.setdefault((operations[row], places[row], tensors[row]), row)] += count
        return ((self.record(row), count) for row, count in counts.items())


class RankFile(NamedTuple):
    """The file of one rank: the digest of its graph, and its collectives. Equal lists are one object."""

    name: str
    source: _Source
    rank: Rank
    digest: bytes
    collectives: Program

    @property
    def sends_by_hand(self) -> bool:
        """Whether the rank sends or receives messages of single ranks without a schedule."""
        return self.rank.stage is None and any(each.op in POINT_TO_POINT for each, _ in self.collectives.kinds())


def read_ranks(sources: Iterable[object]) -> list[RankFile]:
    """Return the files, or graphs, of the ranks of one run, by rank.

    If none states its rank, the rank is the number in which the names differ, or else the place in ``sources``.

    Raises:
        GradirError: there is no file, only some state their rank, two have one rank, or they are of several runs.
        FileError: gradir cannot read a file.
        FormatError: a file is not a GIR document that this release can read.
    """
    if isinstance(sources, (str, PathLike)):
        # A string is iterable, and one path is likely a pattern such as run.*.gir.
        raise GradirError(f"expected a list of files, not {str(sources)!r} alone; pass sorted(glob.glob(...))")
    programs, splitter, values = _Programs(), RankSplitter(), _Values()
    with pause_gc():
        rank_files = [
            _read(cast("_Source", source), number, programs, splitter, values) for number, source in enumerate(sources)
        ]
    if not rank_files:
        raise GradirError("cannot compare: give the files of the ranks of one run")
    unknown = [one for one in rank_files if one.rank is _UNKNOWN]
    if len(unknown) == len(rank_files):
        rank_files = _number_ranks(rank_files)
    elif unknown:
        other = next(one for one in rank_files if one.rank is not _UNKNOWN)
        differ = f"{unknown[0].name} has no rank, and {other.name} has one"
        raise GradirError(f"{differ}: capture all of them with --collectives, or none")
    found: dict[int, RankFile] = {}
    for one in rank_files:
        other = found.setdefault(one.rank.rank, one)
        if other is not one:
            both = f"{other.name} and {one.name} are both of rank {one.rank.rank}"
            raise GradirError(f"{both}: give the files of one run")
    ranks = [found[rank] for rank in sorted(found)]
    _check_one_run(ranks)
    return ranks


def graph_in(one: RankFile) -> Graph:
    """Return the graph of a rank."""
    if isinstance(one.source, Graph):
        return one.source
    with files.naming(one.source):
        return decode(files.read_bytes(one.source))


def group_members(ranks: Iterable[RankFile]) -> Mapping[Key, Sequence[RankFile]]:
    """Return the ranks of each process group."""
    return group_by_key((key, one) for one in ranks for key in one.rank.groups.items())


_Values = dict[tuple[tuple[str, int], ...], Mapping[str, int]]
"""The distinct checksums of parameters, which mostly are the same on all ranks."""


def _read(source: _Source, number: int, programs: _Programs, splitter: RankSplitter, values: _Values) -> RankFile:
    if isinstance(source, Graph):
        name, data = f"graph {number}", encode(source, "msgpack")
    else:
        name, data = files.name_of(source), files.read_bytes(source)
    with files.naming(name):
        parts = splitter.split(data)
        rank = parts.rank or _UNKNOWN
        if rank.values:
            rank = replace(rank, values=values.setdefault((*rank.values.items(),), rank.values))
        return RankFile(name, source, rank, parts.rest, programs.read(data, parts))


def _number_ranks(rank_files: Sequence[RankFile]) -> list[RankFile]:
    split = [_NUMBER.split(one.name) for one in rank_files]
    differing = [place for place, column in enumerate(zip_longest(*split)) if len({*column}) > 1]
    numbers = [int(parts[differing[0]]) for parts in split] if len(differing) == 1 and differing[0] % 2 else []
    if len({*numbers}) < len(rank_files) or max(numbers) >= _MOST_RANKS:
        numbers = [*range(len(rank_files))]
    world = max(numbers) + 1
    return [one._replace(rank=Rank(number, world)) for one, number in zip(rank_files, numbers, strict=True)]


def _check_groups(one: RankFile) -> None:
    for collective, _ in one.collectives.kinds():
        members = one.rank.groups.get(collective.group)
        if members is None:
            where = f"on {excerpt(collective.group)}, which is not one of its groups"
        elif collective.peer is not None and collective.peer >= len(members):
            where = f"with {collective.peer}, and {collective.group} has {len(members)} ranks"
        else:
            continue
        number = [*one.collectives].index(collective)
        raise GradirError(f"{one.name}: its collective {number} is {where}: capture it again")


def _check_one_run(ranks: Sequence[RankFile]) -> None:
    """Raise GradirError if ranks are not of one run, and name a file that differs from most."""
    # A rank that stopped before its schedule does not know its stage.
    complete = [one for one in ranks if not one.rank.stopped] or ranks
    most = Counter((one.rank.world, one.rank.stages) for one in complete).most_common(1)[0][0]
    first = next(one for one in ranks if (one.rank.world, one.rank.stages) == most)
    # A thousand ranks have few distinct lists, so check each once.
    checked: set[tuple[int, frozenset[tuple[str, int]]]] = set()
    for one in ranks:
        rank = one.rank
        if rank.world != first.rank.world or rank.rank >= rank.world:
            raise GradirError(
                f"{one.name} is rank {rank.rank} of {rank.world}, and {first.name} rank {first.rank.rank} of "
                f"{first.rank.world}: give the files of one run"
            )
        if rank.stages != first.rank.stages and not rank.stopped:
            raise GradirError(
                f"{one.name} is of a pipeline of {rank.stages} stages, and {first.name} of {first.rank.stages}: "
                "give the files of one run, captured in one way"
            )
        kind = id(one.collectives), frozenset((label, len(members)) for label, members in rank.groups.items())
        if kind not in checked:
            checked.add(kind)
            _check_groups(one)
        for label, members in rank.groups.items():
            if rank.rank not in members:
                raise GradirError(f"{one.name}: its rank {rank.rank} is not in its group {label}: capture it again")
    _check_members(group_members(ranks))


def _check_members(groups: Mapping[Key, Sequence[RankFile]]) -> None:
    # Equal groups are one object, so compare them by identity.
    own = {(label, one.rank.rank): (members, one) for (label, members), group in groups.items() for one in group}
    for (label, members), group in groups.items():
        if len({*members}) < len(members):
            raise GradirError(f"the group {excerpt(label)} has a rank twice: capture it again")
        for member in members:
            other, file = own.get((label, member), (members, group[0]))
            if other is not members:
                named = file if len(groups[label, other]) <= len(group) else group[0]
                raise GradirError(
                    f"{named.name} has other ranks in the group {label} than others there: give the files of one run"
                )
