"""Whether ranks that sum the gradients of a parameter have the same values of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gradir.distributed.missing import listed
from gradir.distributed.model import Finding
from gradir.distributed.reading import RankFile
from gradir.distributed.simulation import Key
from gradir.distributed.words import span
from gradir.ir.ranks import summed_by

_COPIES = "equal gradients keep copies apart: give all ranks the same values before the first step, and step alike"
_SHARDS = "these are shards: reduce over the ranks that hold the same one, with equal values"


def differing_values(ranks: Sequence[RankFile]) -> Iterator[Finding]:
    """Yield parameters whose gradients ranks sum, although they have other values of them."""
    in_group: defaultdict[Key, list[RankFile]] = defaultdict(list)
    for one in ranks:
        for key in one.rank.groups.items() if one.rank.values else ():
            in_group[key].append(one)
    # Groups of one label mostly do the same: by label and names, the ranks that differ and those that do not.
    apart: defaultdict[tuple[str, tuple[str, ...]], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for (label, _), members in in_group.items():
        names = _summed(label, members)
        rows = {one.rank.rank: tuple(map(one.rank.values.get, names)) for one in members}
        usual = Counter(rows.values()).most_common(1)[0][0]
        differing: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for rank, row in rows.items():
            pairs = zip(names, row, usual, strict=True)
            those = tuple([name for name, own, other in pairs if own != other and None not in (own, other)])
            differing[those].append(rank)
        agreeing = differing.pop((), [])
        for those, others in differing.items():
            apart[label, those][0].extend(others)
            apart[label, those][1].extend(agreeing)
    for (label, those), (others, agreeing) in apart.items():
        line = f"{listed(those)}: other values than on {span(agreeing)}, and gradients are summed on {label}"
        is_shard = any(those[0] in one.rank.local for one in ranks)
        yield Finding("values", tuple(sorted(others)), (line, _SHARDS if is_shard else _COPIES))


def _summed(label: str, ranks: Sequence[RankFile]) -> Sequence[str]:
    """Return the parameters whose gradients are summed on a group, if any values differ."""
    if all(one.rank.values == ranks[0].rank.values for one in ranks):
        return ()
    programs = {id(one.collectives): one for one in ranks}.values()
    every = ((issued, one.rank.wrappers) for one in programs for issued, _ in one.collectives.kinds())
    names = (name for issued, wrappers in every if issued.group == label for name in summed_by(issued, wrappers))
    return tuple(dict.fromkeys(names))
