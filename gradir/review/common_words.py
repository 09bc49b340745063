"""What two graphs have in common, told in the words that their frameworks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.ir.text import counted, printable

if TYPE_CHECKING:
    from gradir.ir import Graph
    from gradir.review.comparison import Comparison

__all__ = ["common", "other_framework"]

_KINDS: Final = (("parameter", "parameter"), ("operation", "function"))


def common(comparison: Comparison) -> str:
    """How many parameters and operations are the same in both graphs, of how many.

    >>> from gradir.ir import Graph, Node, Producer
    >>> from gradir.review.comparison import Comparison
    >>> a = Graph.of([Node("exp:1", op="exp")], producer=Producer(framework="torch"))
    >>> b = Graph.of([Node("exp:1", op="exp"), Node("neg:1", op="neg")], producer=Producer(framework="jax"))
    >>> common(Comparison(a, b, vocabulary=True))
    'torch and jax have 1 of 1 -> 2 operations in common'
    """
    changes = [change for change in comparison.diff.changes if change.subject == "node"]
    other = {change.id for change in changes if change.kind in ("added", "changed")}
    after = comparison.after.nodes
    texts = []
    for word, role in _KINDS:
        numbers = [sum(node.role == role for node in graph.nodes.values()) for graph in comparison.graphs]
        if any(numbers):
            same = sum(after[node].role == role and node not in other for node in comparison.matching.nodes.values())
            of = f"{numbers[0]:,}" if numbers[0] == numbers[1] else f"{numbers[0]:,} -> {numbers[1]:,}"
            texts.append(f"{same:,} of {of} {counted(numbers[1], word).partition(' ')[2]}")
    names = " and ".join(map(_framework, comparison.graphs))
    return f"{names} have {' and '.join(texts) or 'nothing'} in common"


def other_framework(comparison: Comparison) -> str:
    """That the frameworks differ, and what to do; nothing where they are the same or not known.

    >>> from gradir.ir import Graph, Producer
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([], producer=Producer(framework=name)) for name in ("torch", "jax"))
    >>> other_framework(Comparison(a, b))
    'the frameworks differ: torch and jax have other words; --vocabulary compares in words that both share'
    """
    names = [graph.producer.framework for graph in comparison.graphs]
    if not all(names) or names[0] == names[1]:
        return ""
    both = " and ".join(map(_framework, comparison.graphs))
    return f"the frameworks differ: {both} have other words; --vocabulary compares in words that both share"


def _framework(graph: Graph) -> str:
    made = graph.producer
    return printable(f"{made.framework} {made.framework_version}".strip() or "a graph made by hand")
