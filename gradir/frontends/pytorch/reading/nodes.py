"""Make the nodes of a graph from a walk."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import repeat
from typing import Any, Final, Protocol, TypeAlias

import torch
from msgspec.structs import replace

from gradir.frontends.pytorch.private import output_metadata, sequence_number
from gradir.frontends.pytorch.reading.attributes import MetadataReader, NodeType, NodeTypes, Symbols, bare_name
from gradir.frontends.pytorch.reading.distributed import Groups
from gradir.frontends.pytorch.reading.outputs import Captured
from gradir.frontends.pytorch.reading.saved import SavedReader
from gradir.frontends.pytorch.reading.tensors import NamedTensors, Owned, TensorNodes
from gradir.frontends.pytorch.reading.walk import GradFn, Walk
from gradir.ir import AttrValue, Node, Ref, Source, TensorMeta
from gradir.ir.frozen import NOTHING, freeze
from gradir.ir.ids import IdAllocator
from gradir.progress import stage

# torch computes only those outputs of a derivative that are needed.
_DERIVATIVE: Final = re.compile(r"BackwardBackward\d*$")
_OPEN_SCOPE: Final[Mapping[str, AttrValue]] = freeze({"scope": "ambiguous"})
_OUTSIDE_SCOPE: Final[Mapping[str, AttrValue]] = freeze({"scope": "caller"})


class _Caller(str):
    __slots__ = ()


# The scope of nodes that the model's caller made, if a recording can tell them from nodes of the model.
CALLER: Final = _Caller()


# Ids, node types and scopes in canonical order. The scope of an accumulator is the id of its leaf.
_Steps: TypeAlias = tuple[list[str], list[NodeType | None], list[str | None]]


class Assembly:
    """The state of one capture: first every id, then every node, both in canonical order."""

    def __init__(
        self,
        captured: list[Captured],
        walked: Walk,
        named: NamedTensors,
        tensors: TensorNodes,
        scope_of: Callable[[Sequence[GradFn]], Sequence[str | None]] | None,
        *,
        sources: RecordedSources | None,
        placements: Mapping[int, tuple[str, ...]],
        groups: Groups | None = None,
    ) -> None:
        self._captured, self._walked = captured, walked
        self._named, self._tensors = named, tensors
        self._scope_of, self._sources = scope_of, sources
        self._allocator = IdAllocator()
        self._symbols = Symbols()
        self._types = NodeTypes(self._symbols, groups)
        self._metadata = MetadataReader(self._symbols, placements)
        self.ids: dict[GradFn, str] = {}
        self._captured_ids: dict[int, str] = {}
        self._leaves: dict[str, Owned] = {}
        self._nodes: list[Node] = []

    def nodes(self) -> list[Node]:
        """Return every node of the graph."""
        total = len(self._walked.order)
        with stage("naming the nodes", total, self.ids.__len__):
            steps = self._assign_ids()
        with stage("reading the nodes", total, self._nodes.__len__):
            self._write(steps)
        return self._nodes

    def leaves(self) -> dict[str, torch.Tensor]:
        """Return every leaf tensor by the id of its node."""
        return {node_id: leaf.tensor for node_id, leaf in self._leaves.items()}

    def _assign_ids(self) -> _Steps:
        # Local variables for methods and fields, since the ids take 16 % of the time of a large capture.
        steps: _Steps = [], [], []
        node_ids, node_types, scopes = steps
        ids, scope_of = self.ids, self._scope_of
        function, accumulator = self._allocator.function, self._allocator.accumulator
        leaf_ids = self._tensors.ids
        known, type_of = self._types.by_type, self._types.of
        node_type: NodeType | None
        place: str | None
        key: Any
        order = self._walked.order
        fns = list(filter(self._walked.edges.__contains__, order))
        found = iter(repeat("", len(fns)) if scope_of is None else scope_of(fns))
        for key in order:
            if type(key) is int:
                node_type, place = None, None
                role, path, tensor, _, _ = self._captured[key]
                if role == "output":
                    node_id = self._allocator.output(path)
                else:
                    node_id = leaf_ids.get(id(tensor)) or self._allocator.base(path)
                self._captured_ids[key] = node_id
            else:
                node_type, place = known.get(type(key)) or type_of(key), next(found)
                if node_type.accumulates:
                    tensor = key.variable
                    place = leaf_ids.get(id(tensor))
                    if not place:
                        leaf = self._named.of(tensor)
                        place = self._allocator.tensor(leaf.names[0] if leaf.names else "")
                        leaf_ids[id(tensor)], self._leaves[place] = place, leaf
                    node_id = accumulator(place)
                else:
                    node_id = function(place or "", node_type.op)
                ids[key] = node_id
            node_ids.append(node_id)
            node_types.append(node_type)
            scopes.append(place)
        self._tensors.place(self.leaves())
        return steps

    def _write(self, steps: _Steps) -> None:
        reader = SavedReader(self.ids, self._tensors, self._add_buffer, self._symbols)
        ids, edges, outputs_of, add = self.ids, self._walked.edges, self._metadata.read_outputs, self._nodes.append
        names, sources = self._intermediate_names(), self._sources
        written: set[str] = set()
        key: Any
        for key, node_id, node_type, scope in zip(self._walked.order, *steps, strict=True):
            if node_type is None:
                self._add_captured(key)
                continue
            if node_type.accumulates:
                self._add_leaf(node_id, node_type, scope or "", written)
                continue
            outputs = outputs_of(key)
            # In Python 3.11 a comprehension is a call, which takes longer than one or two inputs.
            inputs: list[Ref | None] = []
            for child, number in edges[key]:
                inputs.append(None if child is None else Ref(ids[child], number))
            attrs = node_type.attributes(key) if node_type.attributes else NOTHING
            saved = reader.read(key, node_type, node_id) if node_type.slots else ()
            if reader.numbers:
                attrs = dict(sorted({**attrs, **reader.numbers}.items()))
                reader.numbers.clear()
            # Fields by position, since keywords are slow in a loop over all nodes.
            add(
                Node(
                    node_id,
                    "function",
                    node_type.op,
                    node_type.native,
                    scope or "",
                    tuple(names[key]) if key in names else (),
                    tuple(inputs),
                    outputs,
                    attrs,
                    saved,
                    None,
                    node_type.opaque,
                    None if sources is None else sources.source(sequence_number(key)),
                    _OPEN_SCOPE if scope is None else _OUTSIDE_SCOPE if scope is CALLER else NOTHING,
                )
            )
        self._complete(reader)

    def _intermediate_names(self) -> dict[GradFn, list[str]]:
        names: defaultdict[GradFn, list[str]] = defaultdict(list)
        for tensor, name in self._named.intermediates:
            names[tensor.grad_fn].append(name)
        if self._sources is not None:
            for fn in self._walked.edges:
                variable = self._sources.variable(sequence_number(fn))
                if variable is not None and fn not in names:
                    names[fn].append(variable)
        return names

    def _add_leaf(self, node_id: str, node_type: NodeType, tensor_id: str, written: set[str]) -> None:
        leaf = self._leaves[tensor_id]
        tensor, names, scope, _ = leaf
        add, outputs = self._nodes.append, (self._metadata.read_tensor(tensor),)
        if tensor_id not in written:
            written.add(tensor_id)
            role = "parameter" if leaf.is_parameter else "leaf"
            add(Node(tensor_id, role, "", "", scope, names, (), (self._metadata.read_owned(tensor),)))
        add(Node(node_id, "function", node_type.op, node_type.native, scope, (), (Ref(tensor_id, 0),), outputs))

    def _add_buffer(self, owned: Owned) -> str:
        node_id = self._allocator.tensor(owned.names[0])
        self._tensors.place({node_id: owned.tensor})
        meta = self._metadata.read_owned(owned.tensor)
        self._nodes.append(Node(node_id, "buffer", scope=owned.scope, names=owned.names, outputs=(meta,)))
        return node_id

    def _add_captured(self, index: int) -> None:
        role, _, tensor, producer, base = self._captured[index]
        if role == "view_base" and id(tensor) in self._tensors.ids:
            return
        self._nodes.append(
            Node(
                self._captured_ids[index],
                role,
                names=self._named.of(tensor).names,
                inputs=() if producer is None else (Ref(self.ids[producer[0]], producer[1]),),
                outputs=(self._metadata.read_tensor(tensor),),
                base=None if base is None else self._captured_ids[base],
            )
        )

    def _complete(self, reader: SavedReader) -> None:
        """Set the layouts of outputs, which only saved and captured tensors show."""
        layouts = reader.layouts
        for _, _, tensor, producer, _ in self._captured:
            if producer is not None and tensor.layout is not torch.strided:
                layouts[Ref(self.ids[producer[0]], producer[1])] = bare_name(tensor.layout)
        undefined = self._find_undefined_outputs()
        if not (layouts or undefined):
            return
        places = {node.id: index for index, node in enumerate(self._nodes)}
        # torch shows these values for an undefined tensor.
        nothing = TensorMeta(bare_name(torch.get_default_dtype()), ())
        for ref in (*layouts, *undefined):
            node = self._nodes[places[ref.id]]
            outputs = list(node.outputs)
            if ref in layouts:
                outputs[ref.output_nr] = replace(outputs[ref.output_nr], layout=layouts[ref])
            if ref in undefined and outputs[ref.output_nr] == nothing:
                outputs[ref.output_nr] = TensorMeta()
            self._nodes[places[ref.id]] = replace(node, outputs=tuple(outputs))

    def _find_undefined_outputs(self) -> Set[Ref]:
        """Return the outputs of derivatives that nothing in the graph needs, and torch may not have computed."""
        kinds = {kind for kind, node_type in self._types.by_type.items() if _DERIVATIVE.search(node_type.native)}
        # Few graphs have any, and the search is as slow as a walk.
        if not kinds:
            return frozenset()
        edges = self._walked.edges
        used = {edge for inputs in edges.values() for edge in inputs if type(edge[0]) in kinds}
        used.update(producer for _, _, _, producer, _ in self._captured if producer is not None)
        outputs = ((fn, number) for fn in edges if type(fn) in kinds for number in range(len(output_metadata(fn))))
        return {Ref(self.ids[fn], number) for fn, number in outputs if (fn, number) not in used}


class RecordedSources(Protocol):
    """The recorded source lines, by autograd sequence number."""

    def source(self, number: int) -> Source | None:
        """Return the line that made the node with this number."""

    def variable(self, number: int) -> str | None:
        """Return the variable to which the program assigned the result of the node with this number."""
