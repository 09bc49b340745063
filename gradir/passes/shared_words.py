"""Translate a graph into shared terms, so that graphs of two frameworks can be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from gradir.gcpause import pause_gc
from gradir.ir import Cut, Graph, Node, Ref, TensorMeta
from gradir.ir.edges import postorder
from gradir.ir.head import rename_in_head
from gradir.ir.ids import FreeIds, IdAllocator
from gradir.ir.marks import failure
from gradir.ir.memo import group_by_key
from gradir.ir.module_tree import walk_up
from gradir.passes.rules import Slot
from gradir.passes.translating import Translation, Word, flatten_shape, parameter_shape
from gradir.vocabulary import vocabulary_of
from gradir.vocabulary.shared import NAMES, UNORDERED

_TENSORS: Final = frozenset({"leaf", "parameter", "view_base"})
_BESIDE: Final = frozenset({"buffer", "input", "saved"})
_NUMBERED: Final = re.compile(r"(.+)_(\d+)", re.DOTALL)


def translate_to_shared_terms(graph: Graph, *, with_modules: bool = True) -> Graph:
    """Return the same computation in the terms of `gradir.vocabulary.shared`.

    Several operations may become one, such as a ``layer_norm``. The result has no operations that only rearrange
    elements, no casts, copies, accumulators and saved tensors, and few attributes. Tensors have sizes in elements.
    Names are those that frameworks share (``h_0`` is ``h.0``, ``kernel`` is ``weight``). An operation is in the
    module that ran it, or without ``with_modules`` in that of a parameter that it takes.
    """
    with pause_gc():
        return _Translator(graph, graph.nodes, with_modules=with_modules).make_graph()


def list_words(graph: Graph, nodes: Collection[str]) -> dict[int, Word]:
    """Return a graph by numbers in order, with only these nodes in shared terms."""
    with pause_gc():
        return _Translator(graph, nodes).list_words()


def shared_name(name: str) -> str:
    """Return the name of a parameter in all frameworks."""
    path, dot, last = name.rpartition(".")
    return f"{_shared_path(path)}{dot}{NAMES.get(last, _shared_component(last))}"


def has_scoped_operations(graph: Graph) -> bool:
    """Return whether operations of a graph are in modules."""
    return any(node.scope for node in graph.nodes.values() if node.role == "function")


def _shared_path(path: str) -> str:
    return ".".join(map(_shared_component, path.split(".")))


def _shared_component(text: str) -> str:
    found = _NUMBERED.fullmatch(text)
    return f"{found[1]}.{found[2]}" if found else text


class _Translator:
    def __init__(self, graph: Graph, chosen: Collection[str], *, with_modules: bool = False) -> None:
        self._graph = graph
        self._chosen = chosen
        self._with_modules = with_modules
        tensors = [node for node in graph.nodes.values() if not node.op and node.role != "output" and node.names]
        names = {node.id: shared_name(node.names[0]) for node in tensors}
        counts = Counter(names.values())
        # Tensors that would get the same shared name keep their own.
        self._names = {node.id: names[node.id] if counts[names[node.id]] == 1 else node.names[0] for node in tensors}
        words = vocabulary_of(graph)
        self._left_out = words.shape_operations | words.casts | words.left_out | words.accumulators
        self._parts = words.parts
        self._translation = Translation(words)
        self._slots: dict[str, Slot] = {}
        self._slices: dict[Slot, Slot] = {}
        self._outputs: list[int] = []
        used = {ref.id for node in graph.nodes.values() for ref in node.inputs if ref is not None}
        for node in graph.nodes.values():
            self._translate(node, is_used=node.id in used)
        self._order = self._sort_words()

    def _translate(self, node: Node, *, is_used: bool) -> None:
        if node.role in _BESIDE and not is_used:
            return
        inputs = tuple(map(self._find_slot, node.inputs))
        is_known = node.role == "function" and not node.opaque and not failure(node)
        is_left_out = is_known and node.op in self._left_out and len(node.inputs) == 1 and len(node.outputs) <= 1
        if is_left_out and inputs[0] is not None:
            self._slots[node.id] = inputs[0]
            return
        if is_known and node.id in self._chosen:
            slot = self._translation.translate(node, inputs, self._graph.nodes)
        else:
            slot = self._translation.add_unchanged(node, inputs)
        self._slots[node.id] = slot
        if not is_used:
            self._outputs.append(slot.word)

    def _find_slot(self, ref: Ref | None) -> Slot | None:
        if ref is None or ref.id not in self._slots:
            return None
        node, slot = self._graph.nodes[ref.id], self._slots[ref.id]
        if node.role == "function" and node.op in self._parts and not node.opaque:
            return self._add_slice(node, Slot(slot.word, ref.output_nr))
        return Slot(slot.word, ref.output_nr) if ref.output_nr else slot

    def _add_slice(self, node: Node, slot: Slot) -> Slot:
        # All users of an output share one slice.
        if slot not in self._slices:
            (source,) = self._translation.words[slot.word].inputs[:1] or (None,)
            outputs = node.outputs[slot.output_nr : slot.output_nr + 1]
            part = replace(node, op="slice", outputs=outputs, attrs={}, inputs=())
            self._slices[slot] = self._translation.add_unchanged(part, (source,), node)
        return self._slices[slot]

    def _sort_words(self) -> list[int]:
        """Sort the inputs of commutative operations, and return the words that lead to an output, inputs first."""
        words = self._translation.words

        def sources(word: int) -> list[int]:
            return [slot.word for slot in words[word].inputs if slot is not None]

        depths: dict[int, int] = {}
        for word in postorder(self._outputs, sources):
            depths[word] = 1 + max((depths[each] for each in sources(word)), default=0)

        def sort_key(slot: Slot | None) -> tuple[object, ...]:
            # The values computed first come first, then those first by name, and tensors come last.
            if slot is None:
                return (2, 0, "", "")
            source = words[slot.word]
            return (int(not source.op), depths[slot.word], self._name(source), "")

        # The order of the inputs of a commutative operation must not make graphs differ.
        for word in depths:
            if words[word].op in UNORDERED:
                inputs = words[word].inputs
                words[word] = words[word].with_slots(sorted(range(len(inputs)), key=lambda at: sort_key(inputs[at])))
        return postorder(self._outputs, sources)

    def _name(self, word: Word) -> str:
        return "" if word.op else self._names.get(word.node.id, "")

    @cached_property
    def _modules(self) -> set[str]:
        words = self._translation.words
        paths = {self._name(words[word]).rpartition(".")[0] for word in self._order}
        return {above for path in paths for above in walk_up(path)}

    def _find_scope(self, word: Word) -> str:
        if not word.op:
            return self._name(word).rpartition(".")[0]
        if self._with_modules:
            return next((path for path in walk_up(_shared_path(word.node.scope)) if path in self._modules), "")
        words = self._translation.words
        sources = (words[slot.word] for slot in word.inputs if slot is not None)
        return next((self._find_scope(each) for each in sources if not each.op), "")

    def list_words(self) -> dict[int, Word]:
        return {number: self._translation.words[number] for number in self._order}

    def make_graph(self) -> Graph:
        words = self._translation.words
        slots = ((words[each], number, slot) for each in self._order for number, slot in enumerate(words[each].inputs))
        users = group_by_key((slot.word, (word, number)) for word, number, slot in slots if slot is not None)
        # An output keeps its id, which may also be a shared name.
        allocator, free = IdAllocator(), FreeIds()
        ids: dict[int, str] = {}
        nodes = []
        for number in self._order:
            word = words[number]
            if word.node.role == "output":
                wanted = word.node.id
            elif word.op:
                wanted = allocator.function(self._find_scope(word), word.op)
            else:
                wanted = allocator.tensor(self._name(word))
            ids[number] = free.free(wanted)
            nodes.append(self._make_node(word, ids, users.get(number, ()), number))
        new_ids = {words[number].node.id: id_ for number, id_ in ids.items()}
        head = rename_in_head(self._graph, lambda node_id: new_ids.get(node_id, ""))
        head |= {"cuts": tuple(self._make_cuts()), "producer": replace(self._graph.producer, options={})}
        return replace(self._graph, nodes={node.id: node for node in nodes}, scopes={}, **head)

    def _make_node(self, word: Word, ids: Mapping[int, str], users: Sequence[tuple[Word, int]], number: int) -> Node:
        inputs = tuple(None if slot is None else Ref(ids[slot.word], slot.output_nr) for slot in word.inputs)
        if word.op or word.node.role == "output":
            outputs = tuple(TensorMeta(each.dtype, flatten_shape(each.shape)) for each in word.outputs)
        else:
            shape = parameter_shape(word.node.shape, users)
            outputs = tuple(TensorMeta(each.dtype, shape) for each in word.node.outputs[:1])
        name = self._name(word)
        return Node(
            ids[number],
            role="parameter" if word.node.role in _TENSORS else word.node.role,
            op=word.op,
            native=word.native,
            scope=self._find_scope(word),
            names=(name,) if name else (),
            inputs=inputs,
            outputs=outputs,
            attrs=dict(word.settings),
            opaque=word.node.opaque,
            source=word.node.source,
        )

    def _make_cuts(self) -> Iterable[Cut]:
        seen: set[str] = set()
        for cut in self._graph.cuts:
            name = shared_name(cut.names[0]) if cut.names else ""
            if name and name not in seen and (not cut.is_place or cut.tensor is not None):
                seen.add(name)
                shape = None if cut.tensor is None else parameter_shape(cut.tensor.shape, ())
                tensor = None if cut.tensor is None else TensorMeta(cut.tensor.dtype, shape)
                yield Cut("unreached", (name,), name.rpartition(".")[0], tensor)
