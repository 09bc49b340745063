"""Compare two sequences: their common entries, and the entries in another order."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import eq
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")


def pair_by_key(before: Mapping[K, T], after: Mapping[K, T]) -> Iterator[tuple[K, T | None, T | None]]:
    """Yield each key with both values in the order of ``after``; a key that it lacks follows its predecessor."""
    if [*before] == [*after]:
        # Most graphs share their keys, and without lookups this takes a fraction of the time.
        yield from zip(after, before.values(), after.values(), strict=True)
        return
    removed: dict[K | None, list[K]] = {}
    previous: K | None = None
    for key in before:
        if key in after:
            previous = key
        else:
            removed.setdefault(previous, []).append(key)
    for key in removed.get(None, ()):
        yield key, before[key], None
    for key, value in after.items():
        yield key, before.get(key), value
        for removed_key in removed.get(key, ()):
            yield removed_key, before[removed_key], None


def number_repeats(keys: Iterable[K]) -> Iterator[tuple[K | int, ...]]:
    """Yield each key by itself, followed by 2, 3 … if it repeats."""
    seen: Counter[K] = Counter()
    for key in keys:
        seen[key] += 1
        yield (key,) if seen[key] == 1 else (key, seen[key])


def find_out_of_place(before: Iterable[K], after: Iterable[K]) -> tuple[K, K] | None:
    """Return the first two keys that differ among the common ones."""
    olds, news = dict.fromkeys(before), dict.fromkeys(after)
    if [*olds] == [*news]:
        return None
    common = zip(filter(news.__contains__, olds), filter(olds.__contains__, news), strict=True)
    return next(((old, new) for old, new in common if old != new), None)


def longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence whose second numbers increase, by patience sorting (C. Schensted, 1961)."""
    if all(one[1] < other[1] for one, other in pairwise(pairs)):
        return [*pairs]
    # For each pile its top and the place of the top; for each place the one before it in the subsequence.
    tops: list[int] = []
    places: list[int] = []
    previous: list[int] = []
    for place, (_, value) in enumerate(pairs):
        pile = bisect_left(tops, value)
        previous.append(places[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(value)
            places.append(place)
        else:
            tops[pile] = value
            places[pile] = place
    found = []
    place = places[-1]
    while place >= 0:
        found.append(pairs[place])
        place = previous[place]
    return found[::-1]


# No index has more digits; Python refuses to read numbers of thousands of digits.
_MOST_DIGITS: Final = 18


def find_overtaken(paths: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the first entry of a list that overtook another, given the path of each module before and after."""
    paths = list(paths)
    lists: defaultdict[tuple[str, str], list[tuple[int, int, str, str]]] = defaultdict(list)
    for old, new in paths if any(old != new for old, new in paths) else ():
        parent, _, index = old.rpartition(".")
        new_parent, _, new_index = new.rpartition(".")
        if all(name.isdecimal() and len(name) <= _MOST_DIGITS for name in (index, new_index)):
            lists[parent, new_parent].append((int(index), int(new_index), old, new))
    for entries in lists.values():
        furthest = -1
        for _, place, old, new in sorted(entries):
            # An entry that others overtook on both sides may still have its index.
            if place < furthest and old != new:
                return old, new
            furthest = max(furthest, place)
    return None


# How far an entry may shift beyond the difference of the lists' lengths.
_BAND: Final = 16
# The most entries of a table.
_CELLS: Final = 60_000


def cheapest_alignment(
    weights: Sequence[int], other_weights: Sequence[int], change: Callable[[int, int], int]
) -> list[tuple[int, int]] | None:
    """Return increasing pairs of indices for which it costs least to change these and replace the rest.

    Of equal alignments, the result pairs early entries. It is ``None`` if the lists are too long. This is the algorithm
    of S. Needleman and C. Wunsch (1970), in a band around the diagonal.
    """
    size, other_size = len(weights), len(other_weights)
    low, high = min(0, other_size - size) - _BAND, max(0, other_size - size) + _BAND
    if (size + 1) * (high - low + 1) > _CELLS:
        return None
    far = sum(weights) + sum(other_weights) + 1
    rows: list[dict[int, int]] = [{} for _ in range(size + 1)]
    for x in range(size, -1, -1):
        row, next_row = rows[x], rows[x + 1] if x < size else {}
        for y in range(min(other_size, x + high), max(0, x + low) - 1, -1):
            if x == size and y == other_size:
                row[y] = 0
                continue
            row[y] = min(
                next_row.get(y, far) + weights[x] if x < size else far,
                row.get(y + 1, far) + other_weights[y] if y < other_size else far,
                next_row.get(y + 1, far) + change(x, y) if x < size and y < other_size else far,
            )
    return _trace_alignment(rows, weights, change, other_size)


def _trace_alignment(
    rows: Sequence[dict[int, int]], weights: Sequence[int], change: Callable[[int, int], int], other_size: int
) -> list[tuple[int, int]]:
    pairs = []
    x = y = 0
    while x < len(weights) and y < other_size:
        cost, next_row = rows[x][y], rows[x + 1]
        if y + 1 in next_row and cost == next_row[y + 1] + change(x, y):
            pairs.append((x, y))
            x += 1
            y += 1
        elif y in next_row and cost == next_row[y] + weights[x]:
            x += 1
        else:
            y += 1
    return pairs


# How often a gap is split at its own anchors; each round looks at every position at most once.
_ROUNDS: Final = 6


class Gap(NamedTuple):
    """Two ranges to align: ``start`` included, ``end`` not."""

    start: int
    end: int
    other_start: int
    other_end: int


def align(before: Sequence[int], after: Sequence[int], gaps: Iterable[Gap]) -> tuple[list[tuple[int, int]], list[Gap]]:
    """Return pairs of equal tokens within the gaps, in order within each, and the gaps that remain.

    Tokens that occur once on both sides are the anchors. The longest increasing subsequence of them splits a gap, and
    each part is aligned in turn, as in the patience diff of Bram Cohen. In a part without such tokens, the first
    occurrences of a token are an anchor, so are the second ones, and so on.
    """
    pairs: list[tuple[int, int]] = []
    left: list[Gap] = []
    stack = [(gap, _ROUNDS) for gap in gaps][::-1]
    while stack:
        gap, rounds = stack.pop()
        gap = _trim(before, after, gap, pairs)
        if gap.start == gap.end or gap.other_start == gap.other_end:
            continue
        anchors = _find_anchors(before, after, gap) if rounds else []
        pairs += anchors
        if anchors:
            stack += [(inner, rounds - 1) for inner in reversed(gaps_between(anchors, gap))]
        else:
            left.append(gap)
    return pairs, left


def gaps_between(pairs: Iterable[tuple[int, int]], gap: Gap) -> list[Gap]:
    """Return the gaps between pairs that increase on both sides, if they have entries on both."""
    ends = [(gap.start - 1, gap.other_start - 1), *pairs, (gap.end, gap.other_end)]
    return [
        Gap(x + 1, next_x, y + 1, next_y) for (x, y), (next_x, next_y) in pairwise(ends) if next_x - x > 1 < next_y - y
    ]


def count_equal_ends(before: Sequence[T], after: Sequence[T], same: Callable[[T, T], bool] = eq) -> tuple[int, int]:
    """Return how many entries are the same from the start, and how many of the others from the end."""
    most = min(len(before), len(after))
    start = next((at for at in range(most) if not same(before[at], after[at])), most)
    most -= start
    return start, next((at for at in range(most) if not same(before[-1 - at], after[-1 - at])), most)


def _trim(before: Sequence[int], after: Sequence[int], gap: Gap, pairs: list[tuple[int, int]]) -> Gap:
    """Return a gap without its equal ends, which are added to ``pairs``."""
    x, end, y, other_end = gap
    same, same_end = count_equal_ends(before[x:end], after[y:other_end])
    pairs += zip(range(x, x + same), range(y, y + same), strict=True)
    inner = Gap(x + same, end - same_end, y + same, other_end - same_end)
    pairs += zip(range(inner.end, end), range(inner.other_end, other_end), strict=True)
    return inner


def _find_anchors(before: Sequence[int], after: Sequence[int], gap: Gap) -> list[tuple[int, int]]:
    olds, news = before[gap.start : gap.end], after[gap.other_start : gap.other_end]
    places = range(gap.start, gap.end), range(gap.other_start, gap.other_end)
    unique = pair_unique(zip(olds, places[0], strict=True), zip(news, places[1], strict=True))
    return longest_increasing(
        unique
        or pair_unique(
            zip(number_repeats(olds), places[0], strict=True), zip(number_repeats(news), places[1], strict=True)
        )
    )


def pair_unique(before: Iterable[tuple[K, T]], after: Iterable[tuple[K, T]]) -> list[tuple[T, T]]:
    """Return the values of each key that occurs once on both sides."""
    olds, news = _find_unique(before), _find_unique(after)
    return [(value, news[key]) for key, value in olds.items() if key in news]


def _find_unique(pairs: Iterable[tuple[K, T]]) -> dict[K, T]:
    found: dict[K, T] = {}
    repeated: set[K] = set()
    for key, value in pairs:
        if key in found:
            repeated.add(key)
        else:
            found[key] = value
    return {key: value for key, value in found.items() if key not in repeated}
