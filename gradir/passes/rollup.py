"""Show a stack of equal layers once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from gradir.gcpause import pause_gc
from gradir.ir import AttrValue, Graph, Node, Ref, Saved, Scope
from gradir.ir.edges import move_edges
from gradir.ir.head import rename_in_head
from gradir.ir.ids import FreeIds, encode_component, replace_prefix, split_index
from gradir.ir.marks import CARRIED, TIMES, combine_marks, times
from gradir.ir.model import clamp_size
from gradir.ir.module_tree import ModuleTree, whole_tree
from gradir.ir.saved import mark_omitted_slots, owner, whole_number
from gradir.options import Options
from gradir.passes.blocks import OUTSIDE, Blocks, number_nodes
from gradir.passes.wiring import add_slots, make_switch

_ModuleOf: TypeAlias = "Callable[[Node], str]"
_COUNTS: Final = ("calls", "own", "total", "trainable")
# Deeper modules are not searched, which bounds the time.
DEEPEST_LAYERS: Final = 16


class RollupPass:
    """One of the equal layers of a stack."""

    order: ClassVar[int] = 70
    options: ClassVar[type[Options]] = make_switch("rollup", "show a stack of equal layers once, with its number")

    def run(self, graph: Graph, options: Options) -> Graph:  # noqa: ARG002 (the option only turns it on)
        """See `rollup`."""
        return rollup(graph)


def rollup(graph: Graph) -> Graph:
    """Show one of the equal blocks ``layers.0`` to ``layers.11`` in a row.

    Blocks are submodules of one module with consecutive numbers in their names. They are equal if their nodes agree
    in wiring, role, operation, attributes, ``ext``, shapes and saved slots. Each block feeds only the next.

    The first block remains, under the path ``layers.0-11``, with the class ``Block ×12``. docs/passes.md describes its
    ``ext``. The time is linear in nodes and edges for each of the first 16 levels of the module tree.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> value = b.tensor("x", TensorMeta())
    >>> for number in range(12):
    ...     value = b.function("tanh", [value], [TensorMeta()], scope=f"layers.{number}")
    >>> b.output(value)
    >>> rolled = rollup(b.build())
    >>> [(edge.src, edge.dst) for edge in rolled.edges]
    [('x', 'layers.0-11/tanh:1'), ('layers.0-11/tanh:1', 'output')]
    >>> dict(rolled.nodes["layers.0-11/tanh:1"].ext)
    {'times': 12, 'carried_inputs': (0,)}
    """
    with pause_gc():
        tree = whole_tree(graph)
        # From the inside out, since rolled-up lists in equal layers are equal too.
        for level in range(min(max(tree.levels), DEEPEST_LAYERS), 0, -1):
            found, paths = _find_stacks(graph, tree, level)
            if found:
                graph = RollUp(graph, found, paths).apply()
                tree = whole_tree(graph)
    return graph


class Stack(NamedTuple):
    """The ids of the nodes of blocks in a row or in parallel; equal nodes have equal places.

    ``carried`` has the input slots that the previous block feeds, by place.
    """

    before: str
    path: str
    blocks: list[list[str]]
    carried: dict[int, list[int]]


class Layers(NamedTuple):
    """Entries of module lists, by module number.

    ``after`` maps an entry to the next one in its list. ``of`` has each module's entry, and ``below`` its path in it.
    """

    after: dict[int, int]
    of: list[int]
    below: list[str]


def number_layers(tree: ModuleTree, level: int) -> Layers | None:
    """Return the modules on a level of the tree that follow each other in a list."""
    entries = {
        place: (tree.parents[place], *found)
        for place, at in enumerate(tree.levels)
        if at == level and (found := split_index(tree.names[place]))
    }
    after = {
        one: other
        for one, other in pairwise(sorted(entries, key=entries.__getitem__))
        if (*entries[one][:2], entries[one][2] + 1) == entries[other]
    }
    if not after:
        return None
    of, below = [place if place in entries else OUTSIDE for place in range(len(tree.scopes))], [""] * len(tree.scopes)
    for place, parent in enumerate(tree.parents):
        if of[place] == OUTSIDE and parent != OUTSIDE and of[parent] != OUTSIDE:
            of[place] = of[parent]
            below[place] = f"{below[parent]}.{tree.names[place]}"
    return Layers(after, of, below)


def _find_stacks(graph: Graph, tree: ModuleTree, level: int) -> tuple[list[Stack], dict[str, str]]:
    entries, found, paths = number_layers(tree, level), list[Stack](), dict[str, str]()
    if entries is None:
        return found, paths
    scopes, ids = [tree.place(node.scope) for node in graph.nodes.values()], [*graph.nodes]
    places, own = [entries.below[scope] for scope in scopes], [entries.of[scope] for scope in scopes]
    blocks = Blocks(number_nodes(graph), places, own, entries.after)
    stack_of: dict[int, str] = {}
    # Sorted by the name of the list, since modules that the scope table lacks have no order of their own.
    for run in sorted(blocks.runs(), key=lambda run: tree.scopes[run[0]].path.rstrip("0123456789")):
        if carried := blocks.find_carried(run):
            first, (_, last) = tree.scopes[run[0]].path, split_index(tree.names[run[-1]]) or ("", 0)
            members = [[ids[number] for number in blocks.members[block]] for block in run]
            found.append(Stack(first, f"{first}-{last}", members, carried))
            stack_of.update(dict.fromkeys(run, found[-1].path))
    for scope, own_layer, below in zip(tree.scopes, entries.of, entries.below, strict=True):
        if own_layer in stack_of:
            paths[scope.path] = stack_of[own_layer] + below
    return found, paths


class RollUp:
    """Show one block of each stack of a graph.

    ``paths`` has the new path of each module that is in a stack.
    """

    def __init__(
        self, graph: Graph, stacks: Sequence[Stack], paths: Mapping[str, str], module_of: _ModuleOf | None = None
    ) -> None:
        self._graph, self._stacks, self._paths, self._module_of = graph, stacks, paths, module_of
        # By id of a removed node: the equal node in the first block.
        self._removed = {
            key: first
            for stack in stacks
            for block in stack.blocks[1:]
            for key, first in zip(block, stack.blocks[0], strict=True)
        }
        self._shown = {key: (stack, place) for stack in stacks for place, key in enumerate(stack.blocks[0])}
        self._ids = self._make_ids()

    def apply(self) -> Graph:
        """Return the graph with one block of each stack."""
        rest = [self._move(node) for node in self._graph.nodes.values() if node.id not in self._removed]
        nodes = mark_omitted_slots(
            self._graph.nodes, {node.id: node for node in rest}, self._removed, self._ids, self._module_of
        )
        head = rename_in_head(self._graph, lambda key: self._ids.get(key, "" if key in self._removed else key))
        return replace(self._graph, nodes=nodes, scopes=self._merge_scopes(), **head)

    def _make_ids(self) -> dict[str, str]:
        free = FreeIds(self._graph.nodes.keys() - self._removed - self._shown.keys())
        ids: dict[str, str] = {}
        for stack in self._stacks:
            old, new = encode_component(stack.before), encode_component(stack.path)
            # Blocks in a row feed each other, so other nodes use only the outputs of the last one.
            others = stack.blocks[-1:] if stack.carried else stack.blocks[1:]
            for place, first in enumerate(stack.blocks[0]):
                # A file may have another node of this id.
                ids[first] = free.free(replace_prefix(first, old, new))
                ids.update((block[place], ids[first]) for block in others)
        return ids

    def _move(self, node: Node) -> Node:
        saved = tuple(map(self._move_slot, node.saved))
        moved = replace(node, saved=saved, **move_edges(node, lambda ref, _: self._move_ref(ref)))
        if node.id not in self._shown:
            return moved
        stack, place = self._shown[node.id]
        old, new = stack.before, stack.path
        equal = [self._graph.nodes[block[place]] for block in stack.blocks]
        ext: dict[str, AttrValue] = {**node.ext, TIMES: clamp_size(sum(map(times, equal)))}
        carried = add_slots(ext, CARRIED, stack.carried.get(place, []))
        ext = carried if carried[CARRIED] else ext
        return replace(
            moved,
            id=self._ids[node.id],
            scope=replace_prefix(node.scope, old, new),
            names=tuple(replace_prefix(name, old, new) for name in node.names),
            ext={**ext, **combine_marks(equal)},
            attrs=_add_attributes(equal) if node.role == "module" else node.attrs,
        )

    def _move_ref(self, ref: Ref) -> Ref:
        return Ref(self._ids[ref.id], ref.output_nr) if ref.id in self._ids else ref

    def _is_lost(self, key: str) -> bool:
        return key in self._removed and key not in self._ids

    def _move_slot(self, slot: Saved) -> Saved:
        origin, size = slot.origin, slot.bytes
        if origin is not None:
            origin = None if self._is_lost(origin.id) else self._move_ref(origin)
        if self._is_lost(slot.storage) and owner(slot.storage, self._graph.nodes):
            # Without its owner, the storage would count as memory that exists for backward alone.
            size = None
        return replace(slot, origin=origin, bytes=size, storage=self._ids.get(slot.storage, slot.storage))

    def _merge_scopes(self) -> dict[str, Scope]:
        scopes: dict[str, Scope] = {}
        for scope in self._graph.scopes.values():
            path = self._paths.get(scope.path, scope.path)
            first = scopes.get(path)
            sums = {name: clamp_size(getattr(first, name) + getattr(scope, name)) for name in _COUNTS} if first else {}
            scopes[path] = replace(first or scope, path=path, **sums)
        for stack in self._stacks:
            scope = scopes.get(stack.path, Scope(stack.path))
            scopes[stack.path] = replace(scope, class_name=f"{scope.class_name} ×{len(stack.blocks)}".lstrip())
        return scopes


def _add_attributes(modules: Sequence[Node]) -> dict[str, AttrValue]:
    return {
        name: clamp_size(sum(whole_number(node.attrs, name) for node in modules)) if isinstance(value, int) else value
        for name, value in modules[0].attrs.items()
    }
