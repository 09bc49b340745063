"""Contract sets of nodes, such as those of a module, to one node each.

A set that flow leaves and enters again, as in an unrolled recurrent network, becomes several nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from gradir.ir import AttrValue, Graph, Node, Ref, Scope, TensorMeta
from gradir.ir.edges import DATA, Edge, edges_into, move_edges, number_into, postorder, sources
from gradir.ir.head import rename_in_head
from gradir.ir.ids import FreeIds, module_id, part_name
from gradir.ir.marks import CARRIED, STATUS, TIMES, combine_marks, get_marked_slots, is_backward, status, times
from gradir.ir.memo import group_by_key
from gradir.ir.model import NO_GRADIENT_ROLES, clamp_size
from gradir.ir.module_tree import Ancestors, rounds_of
from gradir.ir.saved import bytes_beyond_slots, bytes_of_omitted, mark_omitted_slots, whole_number
from gradir.ir.totals import parameter_elements
from gradir.vocabulary import vocabulary_of


def find_containers(scopes: Mapping[str, Scope]) -> Callable[[str], bool]:
    """Return a function that finds modules without a call but with a called submodule, such as a ``ModuleList``."""
    called = {path for path, scope in scopes.items() if scope.calls}
    above = Ancestors(called)
    return lambda path: bool(path) and path not in called and path in above


def contract_modules(
    graph: Graph, places: Sequence[str | None], calls: Sequence[str] | None = None
) -> tuple[Graph, Callable[[str], str]]:
    """Return a graph with one node for each of ``places``, and a function from the id of a member to that of its node.

    ``places`` has the module of each node, or ``None`` to keep the node. With ``calls``, each call of a module is a
    node.
    """
    contraction = _Contraction(graph, list(graph.nodes.values()), places, calls)
    nodes = _sort_nodes(contraction.make_nodes())
    inside = {
        node.id: contraction.find_id(node.id)
        for node, place in zip(graph.nodes.values(), places, strict=True)
        if place is not None
    }
    found = mark_omitted_slots(graph.nodes, {node.id: node for node in nodes}, {}, inside, lambda node: node.scope)
    for key in {*inside.values()}:
        attrs = found[key].attrs
        size = clamp_size(whole_number(attrs, "saved_bytes") + bytes_of_omitted(found[key]))
        found[key] = replace(found[key], attrs={**attrs, "saved_bytes": size})
    return replace(graph, nodes=found, **rename_in_head(graph, contraction.find_id)), contraction.find_id


class _Contraction:
    def __init__(
        self, graph: Graph, nodes: Sequence[Node], places: Sequence[str | None], calls: Sequence[str] | None
    ) -> None:
        self._graph, self._nodes, self._places = graph, nodes, places
        self._is_container = find_containers(graph.scopes)
        self._number = {node.id: number for number, node in enumerate(nodes)}
        self._sources = [[self._number[src] for src in sources(node)] for node in nodes]
        # The key of a node is its module, or its own number.
        vertices: dict[object, int] = {}
        keys = [
            vertices.setdefault(number if place is None else (place, calls and calls[number]), len(vertices))
            for number, place in enumerate(places)
        ]
        self._groups, parts = _group_without_cycles(self._sources, keys, places, [*map(is_backward, nodes)])
        self._group_of = [0] * len(nodes)
        for group, members in enumerate(self._groups):
            for number in members:
                self._group_of[number] = group
        self._names = self._make_names(parts)
        self._accumulators = vocabulary_of(graph).accumulators
        self._weights = set[int]() if calls is None else self._find_weights()
        self._outputs: dict[int, list[TensorMeta]] = {}
        self._slots: dict[tuple[int, int], int] = {}
        self._number_outputs()

    def make_nodes(self) -> Iterator[Node]:
        for group, (first, *_) in enumerate(self._groups):
            path = self._places[first]
            yield self._rewire(self._nodes[first]) if path is None else self._make_module(group, path)

    def find_id(self, node_id: str) -> str:
        return self._names[self._group_of[self._number[node_id]]][0] if node_id in self._number else ""

    def _make_names(self, parts: Sequence[int]) -> list[tuple[str, str]]:
        # A node outside of all groups may have the id that a module would get.
        ids = FreeIds(node.id for node, place in zip(self._nodes, self._places, strict=True) if place is None)
        names: list[tuple[str, str]] = []
        for members, part in zip(self._groups, parts, strict=True):
            path = self._places[members[0]]
            if path is None:
                names.append((self._nodes[members[0]].id, ""))
                continue
            name = part_name(path or find_class_name(self._graph, path) or "module", part)
            names.append((ids.free(module_id(path, part)), name))
        return names

    def _number_outputs(self) -> None:
        """Number the tensors that leave each group, in the order of their producers."""
        leaving: dict[int, set[int]] = {}
        places, group_of = self._places, self._group_of
        for number, (node, tails) in enumerate(zip(self._nodes, self._sources, strict=True)):
            if not tails:
                continue
            for (_, output_nr, _, input_nr, _), source in zip(edges_into(node), tails, strict=True):
                if places[source] is None or group_of[source] == group_of[number] or self._owns(source, number):
                    continue
                if input_nr >= 0 or places[number] is not None:
                    leaving.setdefault(source, set()).add(output_nr)
        for source, node in enumerate(self._nodes):
            for output_nr in sorted(leaving.get(source, ())):
                outputs = self._outputs.setdefault(self._group_of[source], [])
                self._slots[source, output_nr] = len(outputs)
                outputs.append(node.outputs[output_nr] if output_nr < len(node.outputs) else TensorMeta())

    def _find_weights(self) -> set[int]:
        """Return the parameters and their accumulators, which all calls of a layer share."""
        weights = set[int]()
        for number, (node, tails) in enumerate(zip(self._nodes, self._sources, strict=True)):
            if node.role == "parameter" or (node.op in self._accumulators and tails and weights.issuperset(tails)):
                weights.add(number)
        return weights

    def _owns(self, source: int, number: int) -> bool:
        """Return whether the source is a weight of the node's own module."""
        return source in self._weights and self._places[source] == self._places[number]

    def _move(self, ref: Ref) -> Ref:
        source = self._number[ref.id]
        if self._places[source] is None:
            return ref
        return Ref(self._names[self._group_of[source]][0], self._slots[source, ref.output_nr])

    def _rewire(self, node: Node) -> Node:
        def move_origin(ref: Ref | None) -> Ref | None:
            if ref is None or self._places[self._number[ref.id]] is None:
                return ref
            return self._move(ref) if (self._number[ref.id], ref.output_nr) in self._slots else None

        return replace(
            node,
            saved=tuple(replace(slot, origin=move_origin(slot.origin)) for slot in node.saved),
            # An edge without a slot, such as from a view base, comes from the module as a whole.
            **move_edges(node, lambda ref, kind: self._move(ref) if kind == DATA else Ref(self.find_id(ref.id), 0)),
        )

    def _make_module(self, group: int, path: str) -> Node:
        members = [self._nodes[number] for number in self._groups[group]]
        used = (edge for node in members for edge in edges_into(node))
        edges = [edge for edge in used if self._group_of[self._number[edge.src]] != group]
        outside = [edge.ref for edge in edges]
        edges = [e for e in edges if not self._owns(self._number[e.src], self._number[e.dst])]
        inputs = tuple(dict.fromkeys(self._move(edge.ref) for edge in edges))
        shared = sum(map(parameter_elements, self._find_parameters(outside, path)))
        marks = combine_marks(members)
        statuses = set(map(status, members))
        if any(statuses):
            marks = {STATUS: statuses.pop() if len(statuses) == 1 else "changed", **marks}
        above = path.rpartition(".")[0]
        while self._is_container(above):
            above = above.rpartition(".")[0]
        return Node(
            self._names[group][0],
            role="module",
            op="module",
            native=find_class_name(self._graph, path),
            scope=above,
            names=(self._names[group][1],),
            inputs=inputs,
            outputs=tuple(self._outputs.get(group, ())),
            attrs={
                "nodes": clamp_size(sum(map(_count_nodes, members))),
                "parameters": clamp_size(sum(map(parameter_elements, members))),
                # `contract_modules` adds the bytes in the marks of members.
                "saved_bytes": sum(
                    bytes_beyond_slots(node) - bytes_of_omitted(node) for node in members if node.role == "module"
                ),
                **({"shared_parameters": clamp_size(shared)} if shared else {}),
            },
            opaque=any(node.opaque for node in members),
            ext={**self._mark_rounds(path, members, edges, inputs), **marks},
        )

    def _mark_rounds(
        self, path: str, members: Sequence[Node], edges: Sequence[Edge], inputs: Sequence[Ref]
    ) -> dict[str, AttrValue]:
        number = rounds_of(path)
        # A hostile file may state numbers that do not match.
        if number < 2 or any(times(node) % number for node in members):
            return {}
        not_carried = {
            self._move(edge.ref)
            for edge in edges
            if edge.input_nr not in get_marked_slots(self._graph.nodes[edge.dst], CARRIED)
        }
        carried = tuple(slot for slot, ref in enumerate(inputs) if ref not in not_carried)
        return {TIMES: number, **({CARRIED: carried} if carried else {})}

    def _find_parameters(self, refs: Sequence[Ref], path: str) -> Iterator[Node]:
        """Yield the parameters of earlier parts of the module among these, also those that feed an accumulator."""
        numbers = dict.fromkeys(self._number[ref.id] for ref in refs)
        earlier = [number for number in numbers if self._places[number] == path]
        accumulators = [number for number in earlier if self._nodes[number].op in self._accumulators]
        leaves = chain.from_iterable(self._sources[number] for number in accumulators)
        yield from (self._nodes[number] for number in dict.fromkeys([*earlier, *leaves]))


def find_class_name(graph: Graph, path: str) -> str:
    """Return the class of a module, or an empty text if it is unknown."""
    return graph.scopes[path].class_name if path in graph.scopes else ""


def _group_without_cycles(
    predecessors: Sequence[Sequence[int]], keys: Sequence[int], places: Sequence[str | None], late: Sequence[bool]
) -> tuple[list[list[int]], list[int]]:
    """Return groups of equal keys whose contraction makes no cycle, and the part number of each node."""
    contracted: list[list[int]] = [[] for _ in range(max(keys) + 1)]
    for key, known in zip(keys, predecessors, strict=True):
        contracted[key] += map(keys.__getitem__, known)
    levels = _find_levels(predecessors, keys, _find_components(contracted), late)
    groups = group_by_key(((key, levels[number]), number) for number, key in enumerate(keys))
    parts: dict[tuple[int, int], int] = {}
    counts = Counter[object]()
    for key, level in sorted(groups):
        place = places[groups[key, level][0]]
        counts[place] += 1
        parts[key, level] = counts[place]
    return list(groups.values()), [parts[group] for group in groups]


def _find_levels(
    predecessors: Sequence[Sequence[int]], keys: Sequence[int], components: Sequence[int], late: Sequence[bool]
) -> list[int]:
    """Return each node's level within the strongly connected component of its key.

    The level is the largest over predecessors in the component: theirs, plus one if they are in another module. In the
    backward (``late``) it is no lower than in the forward of the module. Some nodes depend on nothing outside their
    module, or in the backward only on the forward. They get the level of their first use, or one less for a use in
    another module. An edge within a component never lowers the level, and one between parts of modules raises it, so
    no cycle is left.
    """
    levels, forward_levels = [0] * len(keys), [0] * (max(keys) + 1)
    # Whether a node may wait for its first use.
    can_wait = [False] * len(keys)
    for number, key in enumerate(keys):
        if not predecessors[number]:
            can_wait[number] = True
            continue
        component = components[key]
        same = [source for source in predecessors[number] if components[keys[source]] == component]
        level = max([levels[source] + (keys[source] != key) for source in same], default=0)
        levels[number] = max(level, forward_levels[key] if late[number] else 0)
        forward_levels[key] = max(forward_levels[key], 0 if late[number] else level)
        can_wait[number] = all(
            (keys[source] == key and can_wait[source]) or late[source] < late[number] for source in predecessors[number]
        )
    used: dict[int, int] = {}
    for number in reversed(range(len(keys))):
        key = keys[number]
        if can_wait[number]:
            levels[number] = used.pop(number, levels[number])
        for source in predecessors[number]:
            if can_wait[source] and components[keys[source]] == components[key]:
                level = levels[number] - (keys[source] != key)
                used[source] = min(level, used.get(source, level))
    return levels


def _find_components(adjacency: Sequence[Sequence[int]]) -> list[int]:
    """Return each vertex's strongly connected component (Kosaraju and Sharir)."""
    reverse: list[list[int]] = [[] for _ in adjacency]
    for vertex, children in enumerate(adjacency):
        for child in children:
            reverse[child].append(vertex)
    components = [-1] * len(adjacency)
    for root in reversed(postorder(range(len(adjacency)), adjacency.__getitem__)):
        stack = [root]
        while stack:
            vertex = stack.pop()
            if components[vertex] < 0:
                components[vertex] = root
                stack += reverse[vertex]
    return components


def _sort_nodes(nodes: Iterator[Node]) -> list[Node]:
    by_id = {node.id: node for node in nodes}

    def find_dependencies(key: str) -> list[str]:
        node = by_id[key]
        origins = [by_id[slot.origin.id] for slot in node.saved if slot.origin is not None]
        # A buffer without edges comes right before the node that saved it.
        return sources(node) + [each.id for each in origins if each.role in NO_GRADIENT_ROLES and not number_into(each)]

    outputs = [key for key, node in by_id.items() if node.role == "output"]
    return [by_id[key] for key in postorder([*outputs, *by_id], find_dependencies)]


def _count_nodes(node: Node) -> int:
    number = node.attrs.get("nodes") if node.role == "module" else None
    return number if isinstance(number, int) else times(node)
