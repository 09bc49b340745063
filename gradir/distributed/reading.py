"""The files of ranks, each looked at once, and no graph made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import NamedTuple, cast

from gradir import files
from gradir.codecs.codec import decode, encode
from gradir.codecs.parted import Parter, collectives_in
from gradir.errors import GradirError
from gradir.ir import Collective, Graph, Rank
from gradir.ir.excerpt import excerpt

_Source = str | PathLike[str] | Graph


class RankFile(NamedTuple):
    """What one rank left: its graph's digest, and its collectives, one object for equal lists."""

    name: str
    source: _Source
    rank: Rank
    digest: bytes
    collectives: Sequence[Collective]


def read(sources: Iterable[object]) -> list[RankFile]:
    """The files, or graphs, of the ranks of one run, by rank.

    Raises:
        GradirError: there is none; one does not say its rank; two are of one rank, or not all of one run.
        FileError: a file cannot be read.
        FormatError: a file is not a GIR document that this release can read.
    """
    lists: dict[bytes, Sequence[Collective]] = {}
    parter = Parter()
    found: dict[int, RankFile] = {}
    for number, source in enumerate(sources):
        one = _read(cast("_Source", source), number, lists, parter)
        other = found.setdefault(one.rank.rank, one)
        if other is not one:
            both = f"{other.name} and {one.name} are both of rank {one.rank.rank}"
            raise GradirError(f"{both}: give the files of one run")
    if not found:
        raise GradirError("there is nothing to compare: give the files of the ranks of one run")
    ranks = [found[rank] for rank in sorted(found)]
    _check_one_run(ranks)
    return ranks


def graph_in(one: RankFile) -> Graph:
    """The graph of a rank."""
    if isinstance(one.source, Graph):
        return one.source
    with files.naming(one.source):
        return decode(files.read_bytes(one.source))


def _read(source: _Source, number: int, lists: dict[bytes, Sequence[Collective]], parter: Parter) -> RankFile:
    if isinstance(source, Graph):
        name, data = f"graph {number}", encode(source, "msgpack")
    else:
        name, data = files.name_of(source), files.read_bytes(source)
    with files.naming(name):
        parts = parter.parted(data)
        if parts.rank is None:
            raise GradirError(f"{name} does not say which rank it is of: capture it with --collectives")
        collectives = lists.get(parts.collectives)
        if collectives is None:
            collectives = lists[parts.collectives] = collectives_in(data, parts)
    return RankFile(name, source, parts.rank, parts.rest, collectives)


def _check_groups(one: RankFile) -> None:
    """Each collective is on a group of its rank, with one that is in it."""
    for number, collective in enumerate(one.collectives):
        members = one.rank.groups.get(collective.group)
        if members is None:
            where = f"on {excerpt(collective.group)}, which is none of its groups"
        elif collective.peer is not None and collective.peer >= len(members):
            where = f"with {collective.peer}, and {collective.group} has {len(members)} ranks"
        else:
            continue
        raise GradirError(f"{one.name}: its collective {number} is {where}: capture it anew")


_Ranks = tuple[int, ...]
_Members = tuple[str, _Ranks]


def _check_one_run(ranks: Sequence[RankFile]) -> None:
    first = ranks[0]
    # A thousand ranks have few lists, and few groups, which are compared by identity.
    checked: set[tuple[int, frozenset[tuple[str, int]]]] = set()
    groups: dict[_Members, _Ranks] = {}
    own: dict[tuple[str, int], tuple[_Ranks, RankFile]] = {}
    for one in ranks:
        rank = one.rank
        if rank.world != first.rank.world or rank.rank >= rank.world:
            raise GradirError(
                f"{one.name} is rank {rank.rank} of {rank.world}, and {first.name} rank {first.rank.rank} of "
                f"{first.rank.world}: give the files of one run"
            )
        if rank.stages != first.rank.stages:
            raise GradirError(
                f"{one.name} is of a pipeline of {rank.stages} stages, and {first.name} of {first.rank.stages}: "
                "give the files of one run, captured in one way"
            )
        kind = id(one.collectives), frozenset((label, len(members)) for label, members in rank.groups.items())
        if kind not in checked:
            checked.add(kind)
            _check_groups(one)
        for label, members in rank.groups.items():
            own[label, rank.rank] = groups.setdefault((label, members), members), one
    _check_members(groups, own, first)


def _check_members(
    groups: Iterable[_Members], own: Mapping[tuple[str, int], tuple[_Ranks, RankFile]], first: RankFile
) -> None:
    """Each rank is in its groups, once, and those in a group agree on who is in it."""
    for (label, rank_number), (members, one) in own.items():
        if rank_number not in members:
            raise GradirError(f"{one.name}: its rank {rank_number} is not in its group {label}: capture it anew")
    for label, members in groups:
        if len({*members}) < len(members):
            raise GradirError(f"the group {excerpt(label)} has a rank twice: capture it anew")
        for member in members:
            other, file = own.get((label, member), (members, first))
            if other is not members:
                raise GradirError(
                    f"{file.name} has other ranks in the group {label} than others there: give the files of one run"
                )
