"""The changes of single modules; layers that changed in the same way are told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.diffs.changes import Finding
from gradir.ir.edges import sources
from gradir.ir.ids import numbered
from gradir.ir.module_tree import upwards
from gradir.review.relative_changes import alike, but_for_sizes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from gradir.ir import Graph
    from gradir.review.evidence import Evidence
    from gradir.review.places import ChangedModule
    from gradir.review.relative_changes import RelativeChanges


def layers(evidence: Evidence) -> Iterator[Finding]:
    """Modules with changes that nothing else explains, those with the same together.

    ``gone`` is there where only the first graph has them, and ``sizes`` where theirs differ.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> a, b = (Graph.of([Node(f"{n}/f:1", op=op, scope=f"{n}") for n in range(3)]) for op in ("exp", "sin"))
    >>> [(found.kind, found.subjects, found.changes) for found in reviewed(a, b).findings[1:]]
    [('same', ('0', '1', '2'), ((0,), (1,), (2,)))]
    """
    if not evidence.left:
        return
    feeds = [_entering(graph) for graph in evidence.graphs]
    together: dict[tuple[RelativeChanges, bool], dict[ChangedModule, tuple[int, ...]]] = {}
    for module, indices in evidence.order.sections(evidence.changes, evidence.left):
        before = module.path if module.gone else evidence.renamed.before(module.path)
        fed = feeds[0].get(_entry(before), ""), feeds[1].get(_entry(module.path), "")
        found = [evidence.changes[at] for at in indices]
        key = alike(found, module.path, before, fed), module.gone
        together.setdefault(key, {})[module] = tuple(indices)
    but: dict[tuple[Hashable, bool], list[dict[ChangedModule, tuple[int, ...]]]] = {}
    for (same, gone), members in together.items():
        but.setdefault((but_for_sizes(same), gone), []).append(members)
    for (_, gone), groups in but.items():
        members = {module: indices for group in groups for module, indices in group.items()}
        details = {"gone": gone, "sizes": len(groups) > 1}
        yield Finding(
            "same",
            "change",
            tuple(module.path for module in members),
            tuple(members.values()),
            details={name: True for name, holds in details.items() if holds},
        )


def _entering(graph: Graph) -> dict[str, str]:
    """For each entry of a list the node that it reads from outside, where that is one alone.

    >>> from gradir.ir import Graph, Node, Ref
    >>> nodes = [Node(f"h.{n}/f:1", scope=f"h.{n}", inputs=(Ref(f"h.{n - 1}/f:1", 0),) if n else ()) for n in range(3)]
    >>> _entering(Graph.of(nodes))
    {'h.1': 'h.0/f:1', 'h.2': 'h.1/f:1'}
    """
    entries: dict[str, str] = {}
    found: dict[str, str] = {}
    for node in graph.nodes.values():
        if node.scope not in entries:
            entries[node.scope] = _entry(node.scope)
        here = entries[node.scope]
        for source in sources(node) if here else ():
            there = graph.nodes[source].scope if source in graph.nodes else ""
            if there != here and not there.startswith(f"{here}."):
                found[here] = source if found.get(here, source) == source else ""
    return {path: source for path, source in found.items() if source}


def _entry(path: str) -> str:
    """The innermost entry of a list that a module lies in, or is; nothing where it lies in none.

    >>> _entry("h.3.mlp.up"), _entry("h_3.experts.1"), _entry("norm")
    ('h.3', 'h_3.experts.1', '')
    """
    return next((above for above in upwards(path) if numbered(above.rpartition(".")[2])), "")
