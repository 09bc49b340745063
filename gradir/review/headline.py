"""The first line of a diff: counts, and how much the graph grew."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.ir.text import amount, short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.review.comparison import Comparison

__all__ = ["SIGNS", "headline", "unknown_sizes"]

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "renamed": ">", "moved": "^"}
_ALWAYS: Final = ("added", "removed", "changed")


def headline(comparison: Comparison) -> str:
    """How much changed, in one line; cuts first, since they are parameters that lost their gradient.

    >>> from gradir.ir import Cut, Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = Graph.of([Node("x")]), Graph.of([], [], [Cut("unreached", ("x",))])
    >>> headline(Comparison(a, b))
    '+1 -0 ~0 cuts; +0 -1 ~0 nodes'
    """
    diff = comparison.diff
    counts: Counter[tuple[str, str]] = Counter((change.subject, change.kind) for change in diff.changes)
    texts = []
    for subject in ("cut", "node", "scope"):
        numbers = [
            (sign, counts[subject, kind]) for kind, sign in SIGNS.items() if kind in _ALWAYS or counts[subject, kind]
        ]
        if subject == "node" or any(number for _, number in numbers):
            texts.append(f"{' '.join(f'{sign}{number}' for sign, number in numbers)} {subject}s")
    modules = counts["module", "renamed"]
    if modules:
        texts.append(f"{modules} module{'s'[: modules != 1]} renamed")
    if any(change.id == "order" for change in diff.changes if change.subject == "graph"):
        texts.append("order changed")
    return "; ".join([*texts, *_growth(comparison)])


def _growth(comparison: Comparison) -> Iterator[str]:
    before, after = comparison.diff.before, comparison.diff.after
    for what, grown in (("edges", after.edges - before.edges), ("parameters", after.parameters - before.parameters)):
        if grown:
            yield f"{what} {amount(grown, signed=True)}"
    grown = after.saved_bytes - before.saved_bytes
    slots = comparison.unknown_slots
    if grown or slots[0] != slots[1]:
        share = f" ({100 * grown / before.saved_bytes:+,.1f} %)" if before.saved_bytes and grown else ""
        figure = f"saved bytes {short_bytes(grown, signed=True) if grown else 'as before'}{share}"
        yield ", ".join(filter(None, (figure, unknown_sizes(*slots))))


def unknown_sizes(before: int, after: int) -> str:
    """How many saved slots a figure of saved bytes leaves out; nothing where it leaves out none.

    >>> unknown_sizes(0, 0), unknown_sizes(0, 3), unknown_sizes(1, 1), unknown_sizes(58, 0)
    ('', 'unknown for 3 slots', 'unknown for 1 slot', 'unknown for 58 slots before')
    """
    if before and not after:
        return f"unknown for {before:,} slot{'s'[: before != 1]} before"
    if before != after and before:
        return f"unknown for {before:,} -> {after:,} slots"
    return f"unknown for {after:,} slot{'s'[: after != 1]}" if after else ""
