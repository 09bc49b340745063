"""Read the files of ranks once, without making graphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from os import PathLike
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from gradir import files
from gradir.codecs.codec import decode, encode
from gradir.codecs.rank_parts import RankSplitter
from gradir.distributed.programs import Program, Programs
from gradir.distributed.simulation import Key
from gradir.errors import GradirError
from gradir.gcpause import pause_gc
from gradir.ir import Graph, Rank
from gradir.ir.memo import group_by_key
from gradir.ir.text import excerpt

_Source = str | PathLike[str] | Graph

_UNKNOWN: Final = Rank(0, 0)
"""The rank of a file that states none."""

_NUMBER: Final = re.compile("([0-9]+)")
_MOST_RANKS: Final = 1_000_000
"""A larger number in the name of a file is not a rank, but perhaps a date."""


class RankFile(NamedTuple):
    """The file of one rank: the digest of its graph, and its collectives. Equal lists are one object."""

    name: str
    source: _Source
    rank: Rank
    digest: bytes
    collectives: Program


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
    programs, splitter, values = Programs(), RankSplitter(), _Values()
    with pause_gc():
        rank_files = [
            _read(cast("_Source", source), number, programs, splitter, values) for number, source in enumerate(sources)
        ]
    if not rank_files:
        raise GradirError("there is nothing to compare: give the files of the ranks of one run")
    unknown = [one for one in rank_files if one.rank is _UNKNOWN]
    if len(unknown) == len(rank_files):
        rank_files = _number_ranks(rank_files)
    elif unknown:
        other = next(one for one in rank_files if one.rank is not _UNKNOWN)
        differ = f"{unknown[0].name} does not say its rank, and {other.name} does"
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


def _read(source: _Source, number: int, programs: Programs, splitter: RankSplitter, values: _Values) -> RankFile:
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
            where = f"on {excerpt(collective.group)}, which is none of its groups"
        elif collective.peer is not None and collective.peer >= len(members):
            where = f"with {collective.peer}, and {collective.group} has {len(members)} ranks"
        else:
            continue
        number = [*one.collectives].index(collective)
        raise GradirError(f"{one.name}: its collective {number} is {where}: capture it anew")


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
                raise GradirError(f"{one.name}: its rank {rank.rank} is not in its group {label}: capture it anew")
    _check_members(group_members(ranks))


def _check_members(groups: Mapping[Key, Sequence[RankFile]]) -> None:
    # Equal groups are one object, so compare them by identity.
    own = {(label, one.rank.rank): (members, one) for (label, members), group in groups.items() for one in group}
    for (label, members), group in groups.items():
        if len({*members}) < len(members):
            raise GradirError(f"the group {excerpt(label)} has a rank twice: capture it anew")
        for member in members:
            other, file = own.get((label, member), (members, group[0]))
            if other is not members:
                named = file if len(groups[label, other]) <= len(group) else group[0]
                raise GradirError(
                    f"{named.name} has other ranks in the group {label} than others there: give the files of one run"
                )
