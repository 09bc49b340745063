"""Which ranks of many to look at, where to look at all takes too long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final

from gradir.ir import Rank

__all__ = ["sample"]

_SHARDED: Final = re.compile(r"(?P<dimension>.+):(?:Strided)?Shard\((?P<axis>\d+)[,)]")


def sample(first: Rank, held: Iterable[tuple[Sequence[object] | None, Sequence[str]]]) -> tuple[int, ...]:
    """The ranks at the corners of the mesh that the first rank is in, and those beside which shards differ in size.

    ``held`` has the whole shape of each parameter, and its placements by the dimensions of the mesh. All that the known
    dimensions leave is one more, and without a mesh it is all ranks. In each dimension those places are taken that are
    the first, the last, or where a part is smaller than that before it; of several dimensions, all that they make
    together.

    >>> mesh = Rank(0, 8, coordinates={"dp": 0, "tp": 0}, groups={"dp": (0, 4), "tp": (0, 1, 2, 3)})
    >>> sample(mesh, []), sample(mesh, [((6, 8), ("dp:Replicate", "tp:Shard(0)"))])
    ((0, 3, 4, 7), (0, 2, 3, 4, 6, 7))
    >>> sample(Rank(0, 8, coordinates={"tp": 0}, groups={"tp": (0, 1)}), []), sample(Rank(0, 8), [])
    ((0, 1, 6, 7), (0, 7))
    """
    dimensions = {name: first.groups[name] for name in first.coordinates if name in first.groups}
    places = {name: {0, len(ranks) - 1} for name, ranks in dimensions.items()}
    for shape, placements in held:
        for placement in placements:
            found = _SHARDED.match(placement)
            if found is None or shape is None or found["dimension"] not in places:
                continue
            size = shape[int(found["axis"])] if int(found["axis"]) < len(shape) else None
            if isinstance(size, int):
                places[found["dimension"]] |= _uneven(size, len(dimensions[found["dimension"]]))
    chosen = [[dimensions[name][place] for place in sorted(taken)] for name, taken in places.items()]
    # Where a program exchanges nothing along a dimension, its file does not have it; the last rank is last in it too.
    chosen.append([0, max(0, first.world - 1 - sum(ranks[-1] for ranks in dimensions.values()))])
    # The first rank is 0 in each dimension, so what the dimensions add to it adds up.
    ranks = {sum(parts) for parts in product(*chosen)}
    return tuple(sorted({rank for rank in ranks if rank < first.world} | {first.world - 1}))


def _uneven(size: int, parts: int) -> set[int]:
    """The places at which parts of a size change: all are as large as the first, then one is smaller, then none is."""
    if not size or size % parts == 0:
        return set()
    full = size // -(-size // parts)
    return {place for place in (full - 1, full, full + 1) if 0 <= place < parts}
