"""Build a graph by hand: what a front-end for another framework needs, and nothing private."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gradir.errors import GraphError
from gradir.ir.graph import Graph
from gradir.ir.ids import IdAllocator
from gradir.ir.model import AttrValue, Cut, Node, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.order import postorder
from gradir.ir.validate import check

__all__ = ["Builder", "Value"]


class Value(msgspec.Struct, frozen=True, gc=False):
    """One output of a node under construction."""

    index: int
    output_nr: int = 0

    def output(self, output_nr: int) -> Value:
        """The node's output number ``output_nr``, counted from 0."""
        return Value(self.index, output_nr)


class _Draft(NamedTuple):
    node: Node
    inputs: tuple[Value | None, ...]
    origins: tuple[Value | None, ...]
    base: Value | None
    name: str


class Builder:
    """Collects nodes in any order and gives them canonical order and ids.

    >>> b = Builder()
    >>> w = b.tensor("w", TensorMeta("float32", (3,)), role="parameter")
    >>> y = b.function("exp", [w], [TensorMeta("float32", (3,))], native="Exp")
    >>> b.output(y)
    >>> list(b.build().nodes)
    ['w', 'exp:1', 'output']
    """

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._outputs: list[Value] = []

    def tensor(self, name: str, tensor: TensorMeta, *, role: str = "leaf", scope: str = "") -> Value:
        """Add a tensor that nothing in the graph computes: a leaf, parameter or buffer. The name may be empty."""
        node = Node("", role=role, scope=scope, names=(name,) if name else (), outputs=(tensor,))
        return self._add(_Draft(node, (), (), None, name))

    def function(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: Iterable[TensorMeta],
        *,
        native: str = "",
        scope: str = "",
        names: Iterable[str] = (),
        attrs: Mapping[str, AttrValue] | None = None,
        saved: Sequence[tuple[Saved, Value | None]] = (),
        opaque: bool = False,
        source: Source | None = None,
    ) -> Value:
        """Add an operation.

        ``inputs`` has one entry per input slot, ``None`` where no gradient flows. ``saved`` pairs each saved slot
        with the value that was saved, ``None`` when the graph does not hold it.

        Raises:
            GraphError: an attribute is not an `AttrValue`.
        """
        node = Node(
            "",
            op=op,
            native=native or op,
            scope=scope,
            names=tuple(names),
            outputs=tuple(outputs),
            attrs=dict(attrs or {}),
            saved=tuple(slot for slot, _ in saved),
            opaque=opaque,
            source=source,
        )
        _check_attributes(node)
        return self._add(_Draft(node, tuple(inputs), tuple(origin for _, origin in saved), None, ""))

    def output(self, value: Value, path: str = "", *, base: Value | None = None) -> None:
        """Declare a captured output; ``path`` is its place among the outputs, empty for a lone one.

        ``base`` is the value that the output is a view of.

        Raises:
            GraphError: ``value`` does not belong to this builder.
        """
        for known in (value, base):
            if known is not None and not 0 <= known.index < len(self._drafts):
                raise GraphError(f"output {path!r}: the value is not of this builder")
        outputs = self._drafts[value.index].node.outputs[value.output_nr : value.output_nr + 1]
        node = Node("", role="output", outputs=outputs)
        self._outputs.append(self._add(_Draft(node, (value,), (), base, path)))

    def build(
        self,
        *,
        scopes: Iterable[Scope] = (),
        cuts: Iterable[Cut] = (),
        producer: Producer = Producer(),  # noqa: B008 (frozen)
    ) -> Graph:
        """Make the graph of everything the outputs depend on.

        Raises:
            GraphError: there is no output, an input is not of this builder, or the nodes form a cycle.
        """
        if not self._outputs:
            raise GraphError("a graph needs an output: call output() first")
        order = postorder([output.index for output in self._outputs], self._dependencies)
        allocator = IdAllocator()
        ids: dict[int, str] = {index: self._allocate(allocator, self._drafts[index]) for index in order}
        graph = Graph.of((self._finish(index, ids) for index in order), scopes, cuts, producer)
        check(graph)
        return graph

    def _add(self, draft: _Draft) -> Value:
        self._drafts.append(draft)
        return Value(len(self._drafts) - 1)

    def _dependencies(self, index: int) -> list[int]:
        draft = self._drafts[index]
        found = [value.index for value in draft.inputs if value is not None]
        if draft.base is not None:
            found.append(draft.base.index)
        for dependency in found:
            if not 0 <= dependency < len(self._drafts):
                raise GraphError(f"an input of {draft.node.op!r} is not of this builder")
        found.extend(
            origin.index
            for origin in draft.origins
            if origin is not None and self._drafts[origin.index].node.role == "buffer"
        )
        return found

    @staticmethod
    def _allocate(ids: IdAllocator, draft: _Draft) -> str:
        if draft.node.role == "output":
            return ids.output(draft.name)
        return ids.function(draft.node.scope, draft.node.op) if draft.node.op else ids.tensor(draft.name)

    def _finish(self, index: int, ids: Mapping[int, str]) -> Node:
        node, inputs, origins, base, _ = self._drafts[index]

        def ref(value: Value | None) -> Ref | None:
            return None if value is None or value.index not in ids else Ref(ids[value.index], value.output_nr)

        saved = tuple(
            msgspec.structs.replace(slot, origin=ref(origin)) for slot, origin in zip(node.saved, origins, strict=True)
        )
        return msgspec.structs.replace(
            node,
            id=ids[index],
            inputs=tuple(map(ref, inputs)),
            saved=saved,
            base=None if base is None else ids[base.index],
        )


def _check_attributes(node: Node) -> None:
    try:
        msgspec.convert(node.attrs, dict[str, AttrValue])
    except msgspec.ValidationError as error:
        raise GraphError(f"an attribute of {node.op!r} cannot be kept: {error}") from error
