"""Find parameters with different values on ranks that sum their gradients."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gradir.distributed.missing import join_names
from gradir.distributed.model import Finding
from gradir.distributed.reading import RankFile, group_members
from gradir.distributed.words import span
from gradir.ir.head import find_summed_parameters

_COPIES = (
    "give all ranks equal values before the first step, and run equal steps: equal gradients do not remove a difference"
)
_SHARDS = "these are shards: reduce over the ranks that have the same one, with equal values"


def differing_values(ranks: Sequence[RankFile]) -> Iterator[Finding]:
    """Yield parameters with different values on ranks that sum their gradients."""
    # Groups of one label mostly do the same, so collect by label and names the ranks that differ and those that agree.
    found: defaultdict[tuple[str, tuple[str, ...]], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for (label, _), members in group_members(one for one in ranks if one.rank.values).items():
        names = _find_summed(label, members)
        rows = {one.rank.rank: tuple(map(one.rank.values.get, names)) for one in members}
        usual = Counter(rows.values()).most_common(1)[0][0]
        differing: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for rank, row in rows.items():
            pairs = zip(names, row, usual, strict=True)
            differing[tuple([name for name, own, other in pairs if own != other and None not in (own, other)])].append(
                rank
            )
        agreeing = differing.pop((), [])
        for changed, others in differing.items():
            found[label, changed][0].extend(others)
            found[label, changed][1].extend(agreeing)
    for (label, changed), (others, agreeing) in found.items():
        line = f"{join_names(changed)}: other values than on {span(agreeing)}, and gradients are summed on {label}"
        is_shard = any(changed[0] in one.rank.local for one in ranks)
        yield Finding("values", tuple(sorted(others)), (line, _SHARDS if is_shard else _COPIES))


def _find_summed(label: str, ranks: Sequence[RankFile]) -> Sequence[str]:
    """Return the parameters whose gradients a group sums, if any values differ."""
    if all(one.rank.values == ranks[0].rank.values for one in ranks):
        return ()
    programs = {id(one.collectives): one for one in ranks}.values()
    every = ((issued, one.rank.wrappers) for one in programs for issued, _ in one.collectives.kinds())
    names = (
        name for issued, wrappers in every if issued.group == label for name in find_summed_parameters(issued, wrappers)
    )
    return tuple(dict.fromkeys(names))
