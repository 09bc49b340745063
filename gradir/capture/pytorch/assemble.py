"""From captured tensors to a Graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from gradir.capture.pytorch.anatomy import Anatomies, read_attributes
from gradir.capture.pytorch.keepalive import protect
from gradir.capture.pytorch.metadata import MetadataReader
from gradir.capture.pytorch.outputs import Captured, flatten
from gradir.capture.pytorch.saved import SavedReader
from gradir.capture.pytorch.scopes import cuts, is_trainable, module_paths, scope_table
from gradir.capture.pytorch.sources import SourceLog
from gradir.capture.pytorch.tensors import NamedTensors, Owned, TensorNodes, modules_of, owned_tensors
from gradir.capture.pytorch.walk import GradFn, Walk, walk
from gradir.errors import CaptureError
from gradir.gcpause import paused_gc
from gradir.ir import Graph, Node, Producer, Ref
from gradir.ir.ids import IdAllocator
from gradir.protocols import Verification
from gradir.version import __version__

__all__ = ["LiveGraph", "assemble", "capture"]

_HIDING = frozenset({"CheckpointFunctionBackward"})
"""Functions through which gradient reaches tensors that are not their inputs."""


def capture(outputs: object, *, model: object = None, params: Mapping[str, Any] | None = None) -> LiveGraph:
    """Capture the graph behind tensors; see `gradir.capture`."""
    return assemble(flatten(outputs), modules_of(model), params=params)


class LiveGraph(NamedTuple):
    """A graph together with the live objects it was made of.

    ``grad_fns`` maps each grad_fn to its node's id, ``leaves`` the id of each leaf's node to its tensor. ``unreached``
    are the parameters that the graph's cuts name, in their order.
    """

    graph: Graph
    captured: list[Captured]
    grad_fns: dict[GradFn, str]
    leaves: dict[str, torch.Tensor]
    unreached: list[torch.Tensor]
    hides: bool

    def verify(self) -> Verification:
        """Run a real backward and compare it with the graph; see `gradir.verify`."""
        from gradir.capture.pytorch.verify import verify

        return verify(self)


def assemble(
    captured: list[Captured],
    roots: Mapping[str, nn.Module],
    *,
    params: Mapping[str, Any] | None = None,
    scope_of: Callable[[GradFn], str] | None = None,
    calls: Mapping[nn.Module, int] | None = None,
    sources: SourceLog | None = None,
) -> LiveGraph:
    """Make the graph of the captured tensors.

    When the forward was recorded, ``scope_of`` gives the module path of a grad_fn, ``calls`` how often each module
    ran, and ``sources``, if they were noted, the source lines.

    Raises:
        CaptureError: called inside torch.compile, or ``params`` holds something else than tensors.
    """
    if torch.compiler.is_compiling():
        raise CaptureError("capture inside torch.compile sees no grad_fn: capture outside the compiled function")
    # What is dropped before the collector runs again need not be looked at by it.
    with paused_gc():
        return _assemble(captured, roots, params, scope_of=scope_of, calls=calls or {}, sources=sources)


def _assemble(
    captured: list[Captured],
    roots: Mapping[str, nn.Module],
    params: Mapping[str, Any] | None,
    *,
    scope_of: Callable[[GradFn], str] | None,
    calls: Mapping[nn.Module, int],
    sources: SourceLog | None,
) -> LiveGraph:
    owned = owned_tensors(roots)
    walked = walk(captured)
    assembly = _Assembly(captured, walked, NamedTensors(owned, params), TensorNodes(owned), scope_of, sources=sources)
    nodes = assembly.nodes()
    protect(walked)
    grad_fns, leaves = assembly.live()
    reached = {id(tensor) for tensor in leaves.values()}
    unreached = [entry for entry in owned if is_trainable(entry.tensor) and id(entry.tensor) not in reached]
    hides = any(node.native in _HIDING for node in nodes)
    graph = Graph.of(
        nodes,
        scope_table(module_paths(roots), owned, calls),
        cuts(unreached, hides=hides),
        Producer(
            __version__,
            "torch",
            str(torch.__version__),
            {"scopes": scope_of is not None, "sources": sources is not None},
        ),
    )
    return LiveGraph(graph, captured, grad_fns, leaves, [entry.tensor for entry in unreached], hides)


class _Assembly:
    """The state of one capture: first every id, then every node, both in canonical order."""

    def __init__(
        self,
        captured: list[Captured],
        walked: Walk,
        named: NamedTensors,
        tensors: TensorNodes,
        scope_of: Callable[[GradFn], str] | None,
        *,
        sources: SourceLog | None,
    ) -> None:
        self._captured = captured
        self._walked = walked
        self._named = named
        self._tensors = tensors
        self._scope_of = scope_of
        self._sources = sources
        self._allocator = IdAllocator()
        self._anatomies = Anatomies()
        self._metadata = MetadataReader()
        self._ids: dict[GradFn | int, str] = {}
        self._scopes: dict[GradFn, str] = {}
        self._leaves: dict[GradFn, torch.Tensor] = {}
        self._nodes: list[Node] = []

    def nodes(self) -> list[Node]:
        """Every node of the graph."""
        for key in self._walked.order:
            self._ids[key] = self._captured_id(key) if isinstance(key, int) else self._function_id(key)
        names = self._intermediate_names()
        saved = SavedReader(self._ids, self._tensors, self._metadata, self._add_buffer)
        written: set[str] = set()
        for key in self._walked.order:
            if type(key) is int:
                self._add_captured(key)
            elif key in self._leaves:
                self._add_leaf(key, written)
            else:
                self._add_function(key, saved, tuple(names.get(key, ())))
        return self._nodes

    def live(self) -> tuple[dict[GradFn, str], dict[str, torch.Tensor]]:
        """The id of every grad_fn, and every leaf tensor by the id of its node."""
        grad_fns = {fn: node_id for fn, node_id in self._ids.items() if not isinstance(fn, int)}
        return grad_fns, {self._tensors.id_of(tensor) or "": tensor for tensor in self._leaves.values()}

    def _captured_id(self, index: int) -> str:
        role, path, tensor, _, _ = self._captured[index]
        if role == "output":
            return self._allocator.output(path)
        return self._tensors.id_of(tensor) or self._allocator.base(path)

    def _function_id(self, fn: GradFn) -> str:
        anatomy = self._anatomies.of(fn)
        if not anatomy.accumulates:
            scope = self._scopes[fn] = self._scope_of(fn) if self._scope_of else ""
            return self._allocator.function(scope, anatomy.op)
        tensor = self._leaves[fn] = fn.variable
        tensor_id = self._tensors.id_of(tensor)
        if tensor_id is None:
            names = self._named.names(tensor)
            tensor_id = self._allocator.tensor(names[0] if names else "")
            self._tensors.place(tensor, tensor_id)
        return self._allocator.accumulator(tensor_id)

    def _intermediate_names(self) -> dict[GradFn, list[str]]:
        names: defaultdict[GradFn, list[str]] = defaultdict(list)
        for tensor, name in self._named.intermediates:
            names[tensor.grad_fn].append(name)
        return names

    def _add_function(self, fn: GradFn, reader: SavedReader, names: tuple[str, ...]) -> None:
        anatomy = self._anatomies.of(fn)
        outputs = self._metadata.of_node(fn)
        source = None
        if self._sources is not None:
            number = fn._sequence_nr()
            source = self._sources.source(number)
            variable = self._sources.variable(number)
            names = names or (() if variable is None else (variable,))
        saved = reader.read(fn, anatomy, outputs) if anatomy.tensors else ()
        ids = self._ids
        self._nodes.append(
            Node(
                ids[fn],
                "function",
                anatomy.op,
                anatomy.native,
                self._scopes[fn],
                names,
                tuple([None if child is None else Ref(ids[child], nr) for child, nr in self._walked.edges[fn]]),
                outputs,
                read_attributes(fn, anatomy),
                saved,
                None,
                anatomy.opaque,
                source,
            )
        )

    def _add_leaf(self, accumulator: GradFn, written: set[str]) -> None:
        tensor = self._leaves[accumulator]
        tensor_id = self._tensors.id_of(tensor) or ""
        owner = self._named.owner(tensor)
        scope = owner.scope if owner else ""
        meta = self._metadata.of_tensor(tensor)
        if tensor_id not in written:
            written.add(tensor_id)
            role = "parameter" if isinstance(tensor, nn.Parameter) else "leaf"
            names = self._named.names(tensor)
            self._nodes.append(Node(tensor_id, role, scope=scope, names=names, outputs=(meta,)))
        anatomy = self._anatomies.of(accumulator)
        self._nodes.append(
            Node(
                self._ids[accumulator],
                op=anatomy.op,
                native=anatomy.native,
                scope=scope,
                inputs=(Ref(tensor_id, 0),),
                outputs=(meta,),
            )
        )

    def _add_buffer(self, owned: Owned) -> str:
        node_id = self._allocator.tensor(owned.names[0])
        self._tensors.place(owned.tensor, node_id)
        meta = self._metadata.of_tensor(owned.tensor)
        self._nodes.append(Node(node_id, "buffer", scope=owned.scope, names=owned.names, outputs=(meta,)))
        return node_id

    def _add_captured(self, index: int) -> None:
        role, _, tensor, producer, base = self._captured[index]
        if role == "view_base" and self._tensors.id_of(tensor) is not None:
            return
        self._nodes.append(
            Node(
                self._ids[index],
                role,
                names=self._named.names(tensor),
                inputs=() if producer is None else (Ref(self._ids[producer[0]], producer[1]),),
                outputs=(self._metadata.of_tensor(tensor),),
                base=None if base is None else self._ids[base],
            )
        )
