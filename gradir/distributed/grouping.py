"""Ranks with equal graphs, and in which modules another graph differs first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gradir.diffs.changes import Change
from gradir.diffs.compare import compare
from gradir.diffs.ignoring import ignoring
from gradir.distributed.reading import RankFile
from gradir.ir import Graph
from gradir.ir.module_tree import upwards
from gradir.ir.text import counted

__all__ = ["Differing", "alike", "differences"]

_SIZES: Final = (
    *(
        "out[*].shape",
        "saved.*.shape",
        "saved.*.bytes",
        "attrs.*size",
        "attrs.*sizes",
        "attrs.*stride",
        "attrs.*strides",
    ),
    *("total", "own", "trainable", "detail", "indices"),
)
"""What follows from the sizes of a rank's parts."""

_MOST: Final = 5


def alike(ranks: Sequence[RankFile]) -> list[list[RankFile]]:
    """The ranks of a stage whose graphs have the same bytes, most first."""
    found: dict[tuple[int | None, bytes], list[RankFile]] = defaultdict(list)
    for one in ranks:
        found[one.rank.stage, one.digest].append(one)
    return sorted(found.values(), key=lambda members: (-len(members), members[0].rank.rank))


class Differing(NamedTuple):
    """In what a graph differs from another: a line for each place, or in sizes alone."""

    lines: tuple[str, ...]
    sizes: bool


def differences(usual: Graph, other: Graph) -> Differing:
    """In what another graph differs from the usual one, the first in the order of the model first.

    ``lines`` says nothing of sizes; ``sizes`` is set where these differ, and nothing else does.

    >>> from gradir.ir import Node
    >>> a = Graph.of([Node("x", role="leaf"), Node("fc/f:1", op="f", scope="fc")])
    >>> differences(a, Graph.of([Node("x", role="leaf")])).lines, differences(a, a)
    (('lacks fc (1 node)',), Differing(lines=(), sizes=False))
    """
    found = compare(usual, other)
    changes = ignoring(found, _SIZES).changes
    made = [_framework(usual), _framework(other)]
    by = [f"is made by {made[1] or 'no known framework'}, not by {made[0] or 'one'}"] if made[0] != made[1] else []
    if not changes and not by:
        return Differing((), bool(found.changes))
    has, lacks = _functions(usual), _functions(other)
    order = {path: place for place, path in enumerate({**usual.scopes, **other.scopes})}
    lines = [(path, f"lacks {path} ({counted(has[path], 'node')}{_place(usual, path)})") for path in _whole(has, lacks)]
    lines += [
        (path, f"has {path} beside ({counted(lacks[path], 'node')}{_place(other, path)})")
        for path in _whole(lacks, has)
    ]
    told = [text for _, text in sorted(lines, key=lambda line: order.get(line[0], len(order)))]
    told = by + (told or list(_first_changes(changes, order)))
    more = len(told) - _MOST
    rest = [f"and {counted(more, 'difference')} more"] if more > 0 else []
    return Differing((*told[:_MOST], *rest), sizes=False)


def _framework(graph: Graph) -> str:
    """What made a graph, with its release."""
    return f"{graph.producer.framework} {graph.producer.framework_version}".strip()


def _functions(graph: Graph) -> Counter[str]:
    """How many functions each module has, with those below it."""
    found: Counter[str] = Counter()
    for scope, count in Counter(node.scope for node in graph.nodes.values() if node.role == "function").items():
        for path in upwards(scope):
            found[path] += count
    return found


def _place(graph: Graph, path: str) -> str:
    """The line that runs a module, where the graph has lines."""
    sources = (node.source for node in graph.in_scope(path) if node.role == "function" and node.source is not None)
    first = next(sources, None)
    return "" if first is None else f", {first.file}:{first.line}"


def _whole(has: Mapping[str, int], lacks: Mapping[str, int]) -> Iterator[str]:
    """The modules that one graph has and another lacks with all that is in them, the outermost of them."""
    for path, count in has.items():
        above = path.rpartition(".")[0]
        if path and count and not lacks.get(path) and (not above or lacks.get(above)):
            yield path


def _first_changes(changes: Sequence[Change], order: Mapping[str, int]) -> Iterator[str]:
    """What changed, by module."""
    by_module: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for change in changes:
        path = change.id if change.subject == "scope" else change.scope
        by_module[path][f"{change.kind} {change.what or change.subject}"] += 1
    for path in sorted(by_module, key=lambda path: (order.get(path, len(order)), path)):
        what = ", ".join(f"{count} × {text}" if count > 1 else text for text, count in by_module[path].items())
        yield f"differs in {path or 'the model itself'}: {what}"
