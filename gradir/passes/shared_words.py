"""Translate a graph into shared terms, so that graphs of two frameworks can be compared."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from gradir.gcpause import paused_gc
from gradir.ir import Cut, Graph, Node, Ref, TensorMeta
from gradir.ir.edges import postorder
from gradir.ir.head import renamed_head
from gradir.ir.ids import FreeIds, IdAllocator
from gradir.ir.marks import failure
from gradir.passes.terms import Slot
from gradir.passes.translating import Translation, Word, count_of, parameter_shape
from gradir.vocabulary import vocabulary_of
from gradir.vocabulary.shared import NAMES, UNORDERED

_TENSORS: Final = frozenset({"leaf", "parameter", "view_base"})
_BESIDE: Final = frozenset({"buffer", "input", "saved"})
_NUMBERED: Final = re.compile(r"(.+)_(\d+)", re.DOTALL)


def in_shared_words(graph: Graph, *, with_modules: bool = True) -> Graph:
    """Return the same computation in the terms of `gradir.vocabulary.shared`.

    Several operations may become one, such as a ``layer_norm``. Omitted are operations that only rearrange elements,
    casts, copies, accumulators, saved tensors, most attributes and source lines. Tensors have sizes in elements.
    Names are those that frameworks share (``h_0`` is ``h.0``, ``kernel`` is ``weight``). An operation is in the
    module that ran it, or without ``with_modules`` in that of a parameter that it takes.

    >>> from gradir.ir import Builder, Producer
    >>> b = Builder()
    >>> w, x = (b.tensor(name, TensorMeta("float32", (2, 2)), role="parameter") for name in ("fc_1.kernel", "x"))
    >>> y = b.function("dot_general", [x, w], [TensorMeta("float32", (2, 2))])
    >>> z = b.function("logistic", [y], [TensorMeta("float32", (2, 2))])
    >>> b.output(b.function("mul", [y, z], [TensorMeta("float32", (2, 2))]))
    >>> shared = in_shared_words(b.build(producer=Producer(framework="jax")), with_modules=False)
    >>> [(node.id, node.native) for node in shared.nodes.values() if node.op]
    [('fc.1/matmul:1', 'dot_general'), ('silu:1', 'logistic, mul')]
    """
    with paused_gc():
        return _Translator(graph, with_modules=with_modules).graph()


def shared_name(name: str) -> str:
    """Return the name of a parameter in all frameworks.

    >>> shared_name("h_0.ln_1.scale"), shared_name("h.0.ln_1.weight")
    ('h.0.ln.1.weight', 'h.0.ln.1.weight')
    """
    path, dot, last = name.rpartition(".")
    return f"{_path(path)}{dot}{NAMES.get(last, _component(last))}"


def tells_modules(graph: Graph) -> bool:
    """Return whether operations of a graph are in modules."""
    return any(node.scope for node in graph.nodes.values() if node.role == "function")


def _path(path: str) -> str:
    return ".".join(map(_component, path.split(".")))


def _component(text: str) -> str:
    found = _NUMBERED.fullmatch(text)
    return f"{found[1]}.{found[2]}" if found else text


class _Translator:
    def __init__(self, graph: Graph, *, with_modules: bool) -> None:
        self._graph = graph
        self._with_modules = with_modules
        tensors = [node for node in graph.nodes.values() if not node.op and node.role != "output" and node.names]
        names = {node.id: shared_name(node.names[0]) for node in tensors}
        counts = Counter(names.values())
        # A shared name that two tensors would have is no name, so these keep their own.
        self._names = {node.id: names[node.id] if counts[names[node.id]] == 1 else node.names[0] for node in tensors}
        words = vocabulary_of(graph)
        self._gone = words.shape_operations | words.casts | words.left_out | words.accumulators
        self._parts = words.parts
        self._translation = Translation(words)
        self._slots: dict[str, Slot] = {}
        self._slices: dict[Slot, Slot] = {}
        self._outputs: list[tuple[int, str]] = []
        used = {ref.id for node in graph.nodes.values() for ref in node.inputs if ref is not None}
        for node in graph.nodes.values():
            self._translate(node, is_used=node.id in used)
        self._order = self._live()
        self._modules = self._modules_with_parameters()

    def _translate(self, node: Node, *, is_used: bool) -> None:
        if node.role in _BESIDE and not is_used:
            return
        inputs = tuple(map(self._source, node.inputs))
        is_known = node.role == "function" and not node.opaque and not failure(node)
        is_gone = is_known and node.op in self._gone and len(node.inputs) == 1 and len(node.outputs) <= 1
        if is_gone and inputs[0] is not None:
            self._slots[node.id] = inputs[0]
            return
        translation = self._translation
        here = translation.translated(node, inputs, self._graph.nodes) if is_known else translation.kept(node, inputs)
        self._slots[node.id] = here
        if not is_used:
            self._outputs.append((here.word, node.id))

    def _source(self, ref: Ref | None) -> Slot | None:
        if ref is None or ref.id not in self._slots:
            return None
        node, here = self._graph.nodes[ref.id], self._slots[ref.id]
        if node.role == "function" and node.op in self._parts and not node.opaque:
            return self._slice(node, Slot(here.word, ref.output_nr))
        return Slot(here.word, ref.output_nr) if ref.output_nr else here

    def _slice(self, node: Node, slot: Slot) -> Slot:
        # All users of an output share one slice.
        if slot not in self._slices:
            (source,) = self._translation.words[slot.word].inputs[:1] or (None,)
            outputs = node.outputs[slot.output_nr : slot.output_nr + 1]
            made = replace(node, op="slice", outputs=outputs, attrs={}, inputs=())
            self._slices[slot] = self._translation.kept(made, (source,), node.op)
        return self._slices[slot]

    def _live(self) -> list[int]:
        words = self._translation.words

        def sources(word: int) -> list[int]:
            return [slot.word for slot in words[word].inputs if slot is not None]

        roots = [word for word, _ in self._outputs]
        depths: dict[int, int] = {}
        for word in postorder(roots, sources):
            depths[word] = 1 + max((depths[each] for each in sources(word)), default=0)

        def place(slot: Slot | None) -> tuple[object, ...]:
            # The values computed first come first, then those first by name, and tensors come last.
            if slot is None:
                return (2, 0, "", "")
            source = words[slot.word]
            return (int(not source.op), depths[slot.word], self._name(source), "")

        # Reordering the inputs makes graphs equal that wrote a commutative operation in another order.
        for word in depths:
            if words[word].op in UNORDERED:
                inputs = words[word].inputs
                words[word] = words[word].with_slots(sorted(range(len(inputs)), key=lambda at: place(inputs[at])))
        return postorder(roots, sources)

    def _name(self, word: Word) -> str:
        return "" if word.op else self._names.get(word.node.id, "")

    def _modules_with_parameters(self) -> frozenset[str]:
        words = self._translation.words
        found: set[str] = set()
        for word in self._order:
            path = self._name(words[word]).rpartition(".")[0]
            while path and path not in found:
                found.add(path)
                path = path.rpartition(".")[0]
        return frozenset(found)

    def _scope(self, word: Word) -> str:
        if not word.op:
            return self._name(word).rpartition(".")[0]
        if self._with_modules:
            path = _path(word.node.scope)
            while path and path not in self._modules:
                path = path.rpartition(".")[0]
            return path
        words = self._translation.words
        taken = (words[slot.word] for slot in word.inputs if slot is not None)
        return next((self._scope(each) for each in taken if not each.op), "")

    def graph(self) -> Graph:
        words = self._translation.words
        users: defaultdict[int, list[tuple[Word, int]]] = defaultdict(list)
        for taker in self._order:
            for number, slot in enumerate(words[taker].inputs):
                if slot is not None:
                    users[slot.word].append((words[taker], number))
        # An output keeps its id, which a shared name may have too.
        allocator, free = IdAllocator(), FreeIds()
        ids: dict[int, str] = {}
        nodes = []
        for number in self._order:
            word = words[number]
            wanted = word.node.id
            if word.node.role != "output":
                wanted = (
                    allocator.function(self._scope(word), word.op) if word.op else allocator.tensor(self._name(word))
                )
            ids[number] = free.free(wanted)
            nodes.append(self._node(word, ids, users[number], number))
        called = {words[number].node.id: id_ for number, id_ in ids.items()}
        head = renamed_head(self._graph, lambda node_id: called.get(node_id, ""))
        head |= {"cuts": tuple(self._cuts()), "producer": replace(self._graph.producer, options={})}
        return replace(self._graph, nodes={node.id: node for node in nodes}, scopes={}, **head)

    def _node(self, word: Word, ids: Mapping[int, str], users: Sequence[tuple[Word, int]], number: int) -> Node:
        inputs = tuple(None if slot is None else Ref(ids[slot.word], slot.output_nr) for slot in word.inputs)
        if word.op or word.node.role == "output":
            outputs = tuple(TensorMeta(each.dtype, count_of(each.shape)) for each in word.outputs)
        else:
            shape = parameter_shape(word.node.shape, users)
            outputs = tuple(TensorMeta(each.dtype, shape) for each in word.node.outputs[:1])
        name = self._name(word)
        return Node(
            ids[number],
            role="parameter" if word.node.role in _TENSORS else word.node.role,
            op=word.op,
            native=word.native,
            scope=self._scope(word),
            names=(name,) if name else (),
            inputs=inputs,
            outputs=outputs,
            attrs=dict(word.settings),
            opaque=word.node.opaque,
            source=word.node.source,
        )

    def _cuts(self) -> Iterable[Cut]:
        seen: set[str] = set()
        for cut in self._graph.cuts:
            name = shared_name(cut.names[0]) if cut.names else ""
            if name and name not in seen and (not cut.is_place or cut.tensor is not None):
                seen.add(name)
                shape = None if cut.tensor is None else parameter_shape(cut.tensor.shape, ())
                tensor = None if cut.tensor is None else TensorMeta(cut.tensor.dtype, shape)
                yield Cut("unreached", (name,), name.rpartition(".")[0], tensor)
