"""The first block of a page: the graph as columns of numbers by node, scope and edge.

viewer/src/data/read.ts reads it. Columns refer to tables of values that several nodes share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, repeat
from operator import sub
from typing import Any, Final, NamedTuple, TypeAlias

from gradir.explanations.from_cuts import find_verdict
from gradir.ir import Graph, TensorMeta
from gradir.ir.cuts import cut_counts
from gradir.ir.edges import EdgeColumns
from gradir.ir.ids import function_prefix, mask_indices, split_ordinal
from gradir.ir.marks import UNREAD, ListedChange, failure, find_unread_outputs, graph_kind, is_backward, status
from gradir.ir.memo import Memo, Table
from gradir.ir.model import clamp_size, first_known
from gradir.ir.module_tree import OUTSIDE, ModuleTree, class_text, whole_tree
from gradir.ir.saved import SavedBytes, bytes_beyond_slots
from gradir.ir.text import escape_unprintable
from gradir.ir.totals import totals
from gradir.passes.blocks import Blocks, NodeColumns
from gradir.passes.readability import MOST_BOXES
from gradir.passes.rollup import DEEPEST_LAYERS, number_layers
from gradir.passes.rounds import ACCUMULATOR, find_equal_steps
from gradir.vocabulary import vocabulary_of
from gradir_exporters._page.details import Facts, shape_text
from gradir_exporters._page.marks import change_records, channels, cut_records, find_lost_modules, node_statuses
from gradir_exporters._page.tables import column, edge_block, edge_statuses, steps

# The roles that the page knows, in the order of viewer/src/data/model.ts; any other gets the next number.
ROLES: Final = ("function", "leaf", "parameter", "buffer", "input", "constant", "output")
REARRANGES, ACCUMULATES, OPAQUE, FAILED, OUTPUT, BACKWARD = 1, 2, 4, 8, 16, 32
_NAMED, _ACCUMULATOR = 0, -1
Column: TypeAlias = "Sequence[int]"


class Columns:
    """A graph as columns: ``block()`` is the first block, ``facts.block()`` the second."""

    def __init__(
        self,
        graph: Graph,
        changes: Sequence[ListedChange] = (),
        had: Mapping[str, tuple[int, int]] | None = None,
        sides: Sequence[tuple[str, Graph]] = (),
    ) -> None:
        """Read a graph, and the arguments of `gradir.protocols.ListsChanges`."""
        self._graph, self._changes, self._had, self._sides = graph, changes, had or {}, sides
        self._nodes = list(graph.nodes.values())
        self._unread = find_unread_outputs(self._nodes)
        self._texts = Table([""])
        self._edges = EdgeColumns(self._nodes)
        self.edges = len(self._edges.source)
        self.facts = Facts(self._nodes, self._edges.numbers)
        paths = [node.scope for node in self._nodes]
        self._tree = whole_tree(graph)
        self._scopes = [*map(Memo(self._tree.place).__getitem__, paths)]

    def block(self) -> dict[str, Any]:
        """Return the block, without the title."""
        graph, nodes, texts = self._graph, self._nodes, self._texts
        saved, sizes = self._measure_saved(), Table([0])
        role_numbers = {role: number for number, role in enumerate(ROLES)}
        roles = [len(ROLES) if node.id in self._unread else role_numbers.get(node.role, len(ROLES)) for node in nodes]
        ops = [texts[node.op] for node in nodes]
        ids, names = self._ids(), self._names()
        changes, numbers, place = self._changes, self._edges.numbers, self._tree.place
        flags, statuses = self._flags(), node_statuses(nodes, numbers, changes, self._tree)
        edges = edge_statuses(self._edges, nodes, {slot for change in changes for slot in change.slots})
        known = NodeColumns(self._kinds(roles, ops, statuses, edges), self._edges)
        equal_modules, layers = _equal_layers(self._tree, self._scopes, known)
        step_roles = [ACCUMULATOR if bits & ACCUMULATES else node.role for bits, node in zip(flags, nodes, strict=True)]
        merged = _EqualSteps(self._tree, self._scopes, known, layers, step_roles, how="")
        if not merged.modules and self._scopes.count(0) > MOST_BOXES:
            # No module around these nodes can be closed, so steps may differ in attributes.
            known = known._replace(kinds=self._kinds(roles, ops, statuses, edges, has_attrs=False))
            merged = _EqualSteps(self._tree, self._scopes, known, layers, step_roles, how="nearly equal")
        return {
            "kind": graph_kind(graph),
            "framework": graph.producer.framework,
            "sides": [escape_unprintable(name) for name, _ in self._sides],
            "figures": _figures([side for _, side in self._sides] or [graph]),
            "scopes": self._scope_block(saved, equal_modules),
            "steps": [[step.parent, step.of, texts[step.name], step.times] for step in merged.modules],
            "nodes": {
                "count": len(nodes),
                "scope": column(steps(self._scopes)),
                "role": column(roles),
                "op": column(ops),
                "id": column(ids),
                "name": column(names),
                "outputs": column(self.facts.outputs),
                "saved": column([sizes[size] for size in saved]),
                "flags": column(flags),
                "status": column(statuses),
                "stands": column(steps(merged.nodes)),
                "home": column([*map(sub, merged.homes, self._scopes)]),
            },
            "sizes": list(sizes),
            "tensors": [(texts[dtype], texts[shape]) for dtype, shape in map(_tensor_texts, self.facts.output_lists)],
            "edges": edge_block(self._edges, edges),
            "cuts": cut_records(graph, numbers, place, changes),
            "lost": find_lost_modules(graph, self._tree, self._scopes, numbers),
            "channels": channels(nodes, texts),
            "changes": change_records(changes, numbers, place),
            "had": self._had_block(),
            "verdict": self._verdict(),
            "texts": list(texts),
        }

    def _verdict(self) -> list[str | int] | None:
        found = find_verdict(self._graph)
        if found is None:
            return None
        place, at = found.place, list[str | int]()
        if isinstance(place, str):
            at = ["node", self._edges.numbers[place]]
        elif place is not None:
            at = ["cut", self._graph.cuts.index(place)]
        return [found.look, escape_unprintable(found.sentence), *at]

    def _ids(self) -> list[int]:
        """Return a code for each id: its ordinal if above 0, 0 for the name, -1 for the accumulator of its input.

        A lower code is -2 minus its place in the table of texts.
        """
        nodes, texts, edges = self._nodes, self._texts, self._edges
        ordinals = Memo(_ordinal)
        found: list[int] = []
        for number, node in enumerate(nodes):
            key, prefix = node.id, function_prefix(node.scope, node.op)
            if node.names and node.names[0] == key and node.role != "module":
                found.append(_NAMED)
            elif key.startswith(prefix) and (ordinal := ordinals[key[len(prefix) :]]):
                found.append(ordinal)
            else:
                source = nodes[edges.source[edges.first[number]]] if edges.counts[number] else None
                is_accumulator = source is not None and key == f"{function_prefix(source.id, node.op)}1"
                found.append(_ACCUMULATOR if is_accumulator else _ACCUMULATOR - 1 - texts[key])
        return found

    def _names(self) -> list[int]:
        texts = self._texts
        found: list[int] = []
        for node in self._nodes:
            if node.id in self._unread:
                found.append(texts[UNREAD])
            elif not node.names:
                found.append(0 if node.op or node.role in ROLES else texts[node.role])
            else:
                # A folded module shows its class with its name.
                is_folded = node.role == "module" and node.native
                name, scope = f"{node.names[0]}: {node.native}" if is_folded else node.names[0], node.scope
                inner = name.removeprefix(f"{scope}.") if scope else name
                found.append(-texts[inner] if inner and inner != name else texts[name])
        return found

    def _flags(self) -> list[int]:
        ops = vocabulary_of(self._graph)
        of_op = dict.fromkeys(ops.shape_operations, REARRANGES) | dict.fromkeys(ops.accumulators, ACCUMULATES)
        return [
            (of_op.get(node.op, 0) if node.op else 0)
            | (OPAQUE if node.opaque else 0)
            | (FAILED if node.ext and failure(node) else 0)
            | (OUTPUT if node.role == "output" and node.id not in self._unread else 0)
            | (BACKWARD if is_backward(node) else 0)
            for node in self._nodes
        ]

    def _measure_saved(self) -> list[int]:
        saved: SavedBytes[int] = SavedBytes(self._graph.nodes)
        for number, node in enumerate(self._nodes):
            if node.saved:
                saved.add(node, number)
        sizes = saved.total_by_account()
        recorded = [bytes_beyond_slots(node) if node.ext or node.role == "module" else 0 for node in self._nodes]
        return [clamp_size(sizes.get(number, 0) + size) for number, size in enumerate(recorded)]

    def _kinds(
        self, roles: Column, ops: Column, statuses: Column, edges: Column, *, has_attrs: bool = True
    ) -> list[int]:
        facts, first, numbers = self.facts, self._edges.first, Table[tuple[object, ...]]()
        opaque = [node.opaque for node in self._nodes]
        slots = (tuple(edges[start:end]) for start, end in pairwise(first))
        into: Iterable[object] = slots if any(statuses) else repeat(())
        attrs: Iterable[object] = facts.attrs if has_attrs else repeat(())
        columns = zip(roles, ops, facts.native, facts.outputs, attrs, facts.saved, opaque, statuses, into)  # noqa: B905 (`repeat` has no end)
        return [numbers[kind] for kind in columns]

    def _had_block(self) -> dict[str, Any] | None:
        if not self._had:
            return None
        parameters, saved = zip(*(self._had.get(scope.path, (0, 0)) for scope in self._tree.scopes), strict=True)
        return {"parameters": column([*parameters]), "saved": column([*map(clamp_size, self._tree.with_below(saved))])}

    def _scope_block(self, saved: Column, first: Column) -> dict[str, Any]:
        tree, texts, scopes = self._tree, self._texts, self._tree.scopes
        own = [0] * len(scopes)
        for node, place, size in zip(self._nodes, self._scopes, saved, strict=True):
            if status(node) != "removed":
                own[place] += size
        return {
            "count": len(scopes),
            "parent": column([place - parent if parent != OUTSIDE else 0 for place, parent in enumerate(tree.parents)]),
            "name": column([texts[name] for name in tree.names]),
            "className": column([texts[class_text(scope)] for scope in scopes]),
            "detail": column([texts[scope.detail] for scope in scopes]),
            "calls": column([scope.calls for scope in scopes]),
            "parameters": column([scope.total for scope in scopes]),
            "own": column([scope.own for scope in scopes]),
            "trainable": column([scope.trainable for scope in scopes]),
            "saved": column([*map(clamp_size, tree.with_below(own))]),
            "alike": column([place - found for place, found in enumerate(first)]),
        }


def _figures(graphs: Sequence[Graph]) -> list[tuple[str | int, ...]]:
    found, cuts = [*map(totals, graphs)], [*map(cut_counts, graphs)]
    rows = {
        "nodes": [each.nodes for each in found],
        "edges": [each.edges for each in found],
        "modules": [len(graph.scopes) for graph in graphs],
        "parameter elements": [each.parameters for each in found],
        "saved for backward": [each.saved_bytes for each in found],
        "cuts": [each.places for each in cuts],
        "parameters without gradient": [each.unreached for each in cuts],
        "parameters hidden": [each.hidden for each in cuts],
    }
    return [(name, *values) for name, values in rows.items() if any(values)]


def _tensor_texts(outputs: tuple[TensorMeta, ...]) -> tuple[str, str]:
    tensor = first_known(outputs)
    return (tensor and tensor.dtype) or "", shape_text(tensor)


def _ordinal(text: str) -> int:
    head, ordinal = split_ordinal(f":{text}")
    return ordinal if head == ":" else 0


class _StepModule(NamedTuple):
    """The frame around a step or the part of a module in it; ``of`` is that module, or the one around the step."""

    parent: int
    of: int
    name: str = ""
    times: int = 1


class _EqualSteps:
    """The representative and the frame of each node; ``modules`` are the frames of steps."""

    def __init__(
        self, tree: ModuleTree, scopes: Column, columns: NodeColumns, layers: Column, roles: Sequence[str], *, how: str
    ) -> None:
        """Find steps among the nodes that represent themselves in ``layers``; ``how`` qualifies their names."""
        self._tree, self._scopes, self._how = tree, scopes, how
        self.homes, self.modules = [*scopes], list[_StepModule]()
        self._taken = Memo[int, set[str]](lambda parent: {tree.names[child] for child in tree.children[parent]})
        self._counts = Counter[tuple[int, str]]()
        columns = columns._replace(edges=columns.edges.standing(layers))
        names = [mask_indices(scope.path) for scope in tree.scopes]
        places = [names[scope] for scope in scopes]
        order = [number for number, role in enumerate(roles) if role == "function" and layers[number] == number]
        numbers: Table[tuple[int, str, int]] = Table()
        kinds = [numbers[columns.kinds[number], places[number], columns.edges.counts[number]] for number in order]
        blocks, runs = find_equal_steps(columns, places, roles, order, kinds)
        representatives = [*range(len(roles))]
        for run in runs:
            first, *others = (blocks.members[step] for step in run)
            for members in others:
                for number, equal in zip(members, first, strict=True):
                    representatives[number] = equal
            self._add_frames(first, others[-1], len(run))
        self.nodes = [representatives[number] for number in layers]

    def _add_frames(self, first: Column, last: Column, times: int) -> None:
        tree, scopes, modules, count = self._tree, self._scopes, self.modules, len(self._tree.scopes)
        parent = _find_common_module(tree, {scopes[number] for number in (*first, *last)})
        plain = name = f"×{times} {self._how}".strip()
        while name in self._taken[parent]:
            self._counts[parent, plain] += 1
            name = f"{plain} ({self._counts[parent, plain] + 1})"
        self._taken[parent].add(name)
        frames = {parent: count + len(modules)}
        modules.append(_StepModule(parent, parent, name, times))
        for node in first:
            missing: list[int] = []
            scope = scopes[node]
            while scope not in frames:
                missing.append(scope)
                scope = tree.parents[scope]
            for inner in reversed(missing):
                frames[inner] = count + len(modules)
                modules.append(_StepModule(frames[tree.parents[inner]], inner))
            self.homes[node] = frames[scopes[node]]


def _find_common_module(tree: ModuleTree, scopes: set[int]) -> int:
    while len(scopes) > 1:
        deepest = max(tree.levels[scope] for scope in scopes)
        scopes = {tree.parents[scope] if tree.levels[scope] == deepest else scope for scope in scopes}
    return scopes.pop()


def _equal_layers(tree: ModuleTree, scopes: Column, columns: NodeColumns) -> tuple[list[int], list[int]]:
    """Return the counterpart of each module and node in the first of equal layers."""
    first, nodes = [*range(len(tree.scopes))], [*range(len(scopes))]
    for level in range(1, min(max(tree.levels), DEEPEST_LAYERS) + 1):
        known = number_layers(tree, level)
        if known is None:
            continue
        blocks = Blocks(columns, [known.below[scope] for scope in scopes], [known.of[at] for at in scopes], known.after)
        # The counterpart of a node in an outer layer may be in an inner layer.
        counterparts = [*range(len(nodes))]
        for run in blocks.runs():
            for layer in run[1:]:
                first[layer] = run[0]
                for number, equal in zip(blocks.members[layer], blocks.members[run[0]], strict=True):
                    counterparts[number] = equal
        nodes = [counterparts[number] for number in nodes]
    return _extend_to_submodules(tree, first), nodes


def _extend_to_submodules(tree: ModuleTree, first: Column) -> list[int]:
    within = {(parent, name): place for place, (parent, name) in enumerate(zip(tree.parents, tree.names, strict=True))}
    found: list[int] = []
    for place, (parent, name) in enumerate(zip(tree.parents, tree.names, strict=True)):
        above = parent if parent == OUTSIDE else found[parent]
        found.append(first[within.get((above, name), place)])
    return found
