"""Build a graph by hand, as front-ends for other frameworks do."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, Union

import msgspec
from msgspec.structs import replace

from gradir.errors import GraphError
from gradir.ir.edges import postorder
from gradir.ir.frozen import NOTHING, freeze
from gradir.ir.graph import Graph
from gradir.ir.ids import IdAllocator, storage_key
from gradir.ir.model import NO_GRADIENT_ROLES, AttrValue, Cut, Node, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.saved import OWNERS
from gradir.ir.text import is_unicode
from gradir.ir.validate import check_all, fault_in, rule_of

T = TypeVar("T")

SavedSlot = Union[tuple[Saved, "Value | int | None"], tuple[Saved, "Value | int | None", Hashable]]
"""A saved slot, the saved value, and optionally a key of its storage."""


class _Owner:
    """Represent a builder in its values, since a reference to the builder would keep it alive."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """One output of a node of a builder."""

    index: int
    output_nr: int
    owner: _Owner

    def output(self, output_nr: int) -> Value:
        """Return output number ``output_nr`` of the same node, counted from 0."""
        return Value(self.index, output_nr, self.owner)

    def __repr__(self) -> str:
        return f"Value({self.index}, {self.output_nr})"


class _Draft(NamedTuple):
    node: Node
    inputs: tuple[Value | None, ...]
    origins: tuple[Value | None, ...]
    base: Value | None
    name: str
    storages: tuple[Hashable, ...] = ()


class Builder:
    """Collect nodes in any order and give them canonical order and ids.

    `build` checks every field, so the graph can be saved and reads back equal.

    >>> b, three = Builder(), TensorMeta("float32", (3,))
    >>> w = b.tensor("w", three, role="parameter")
    >>> y = b.function("exp", [w], [three], native="Exp", saved=[(Saved("result", "float32", (3,), 12), 0)])
    >>> z = b.function("mul", [y, w], [three], saved=[(Saved("self", "float32", (3,), 12), y)])
    >>> b.output(z)
    >>> graph = b.build()
    >>> list(graph.nodes), graph.nodes["mul:1"].saved[0].origin
    (['w', 'exp:1', 'mul:1', 'output'], Ref(id='exp:1', output_nr=0))
    """

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._outputs: list[Value] = []
        self._cuts: list[tuple[Cut, Value | None, Value | None]] = []
        self._owner = _Owner()

    def tensor(self, name: str, tensor: TensorMeta, *, role: str = "leaf", scope: str = "") -> Value:
        """Add a leaf, parameter or buffer; the name may be empty.

        A named parameter that no output depends on gets a cut ``unused``.

        Raises:
            GraphError: the name is not valid text, or ``tensor`` is not a `TensorMeta`.
        """
        _check_name("the name of a tensor", name)
        # A file would not return a subclass.
        if type(tensor) is not TensorMeta:
            raise GraphError(f"tensor {name!r}: expected a TensorMeta, got {tensor!r}")
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
        saved: Sequence[SavedSlot] = (),
        opaque: bool = False,
        source: Source | None = None,
        ext: Mapping[str, AttrValue] | None = None,
    ) -> Value:
        """Add an operation.

        ``inputs`` has an entry for each input slot, ``None`` without a gradient. ``saved`` pairs each slot with a
        value, the number of an output of this operation, or ``None``. Slots with an equal third item share a storage.

        Raises:
            GraphError: an argument has a wrong type, or a value is of another builder.
        """
        _check_name("an operation", op)
        owner = f"function {op!r}"
        inputs = _to_tuple(inputs, f"{owner}: inputs", "a list of values")
        slots: tuple[Any, ...] = _to_tuple(saved, f"{owner}: saved", "a list of pairs (Saved, value or None)")
        for number, value in enumerate(inputs):
            self._check_value(value, f"{owner}: inputs[{number}]")
        for number, pair in enumerate(slots):
            if not (isinstance(pair, tuple) and len(pair) in (2, 3) and type(pair[0]) is Saved):
                raise GraphError(f"{owner}: saved[{number}] is {pair!r}; expected a pair (Saved, value or None)")
            if type(pair[1]) is not int:
                self._check_value(pair[1], f"{owner}: the value of saved[{number}]")
        node = Node(
            "",
            op=op,
            native=native or op,
            scope=scope,
            names=_to_tuple(names, f"{owner}: names", "a list of text"),
            outputs=_to_tuple(outputs, f"{owner}: outputs", "a list of TensorMeta"),
            attrs=_freeze_attributes(f"{owner}: attrs", attrs),
            ext=_freeze_attributes(f"{owner}: ext", ext),
            saved=tuple(slot for slot, *_ in slots),
            opaque=opaque,
            source=source,
        )
        index = len(self._drafts)
        origins = tuple(Value(index, of, self._owner) if type(of) is int else of for _, of, *_ in slots)
        storages = tuple(storage[0] if storage else None for _, _, *storage in slots)
        return self._add(_Draft(node, inputs, origins, None, "", storages))

    def output(self, value: Value, path: str = "", *, base: Value | None = None) -> None:
        """Add a captured output; ``path`` is its place among several, and ``base`` the value that it is a view of.

        Raises:
            GraphError: a value is not of this builder, ``base`` is another output than 0, or ``path`` is not text.
        """
        _check_name("the path of an output", path)
        if value is None:
            raise GraphError(f"output {path!r}: the value is None; expected a value of this builder")
        self._check_value(value, f"output {path!r}: the value")
        self._check_value(base, f"output {path!r}: the base")
        if base is not None and base.output_nr:
            raise GraphError(
                f"output {path!r}: the base is output {base.output_nr} of its node; only output 0 can be a base"
            )
        outputs = self._drafts[value.index].node.outputs[value.output_nr : value.output_nr + 1]
        node = Node("", role="output", outputs=outputs)
        self._outputs.append(self._add(_Draft(node, (value,), (), base, path)))

    def cut(self, cut: Cut, *, at: Value | None = None, into: Value | None = None) -> None:
        """Add a place where the gradient ends, between the nodes of two values.

        Raises:
            GraphError: a value is not of this builder.
        """
        self._check_value(at, "a cut: the value at it")
        self._check_value(into, "a cut: the value behind it")
        self._cuts.append((cut, at, into))

    def build(
        self,
        *,
        scopes: Iterable[Scope] = (),
        cuts: Iterable[Cut] = (),
        producer: Producer = Producer(),  # noqa: B008 (frozen)
    ) -> Graph:
        """Return the graph of everything that the outputs depend on.

        Raises:
            GraphError: there is no output, an input names a missing one, or a field is invalid, such as a size of -1.
        """
        if not self._outputs:
            raise GraphError("a graph needs an output: call output() first")
        order = postorder([output.index for output in self._outputs], self._find_dependencies)
        allocator = IdAllocator()
        ids: dict[int, str] = {}
        for index in order:
            node, name = self._drafts[index].node, self._drafts[index].name
            if node.role == "output":
                ids[index] = allocator.output(name)
            else:
                ids[index] = allocator.function(node.scope, node.op) if node.op else allocator.tensor(name)

        def find_id(value: Value | None) -> str:
            return "" if value is None else ids.get(value.index, "")

        found = [replace(cut, at=find_id(at) or cut.at, into=find_id(into) or cut.into) for cut, at, into in self._cuts]
        found += cuts
        storages: dict[Hashable, str] = {}
        nodes = [self._make_node(index, ids, storages) for index in order]
        known = {name for node in nodes for name in node.names}
        known.update(name for cut in found for name in cut.names)
        for node, *_ in self._drafts:
            if node.role == "parameter" and node.names and known.isdisjoint(node.names):
                found.append(Cut("unused", node.names, node.scope, node.outputs[0]))
        graph = Graph.of(nodes, scopes, found, producer)
        check_all(graph)
        return graph

    def _check_value(self, value: object, title: str) -> None:
        if value is None:
            return
        if type(value) is not Value:
            raise GraphError(f"{title} is {value!r}; expected a value that a method of this builder returned, or None")
        if value.owner is not self._owner:
            raise GraphError(f"{title} is not of this builder")

    def _add(self, draft: _Draft) -> Value:
        self._drafts.append(draft)
        return Value(len(self._drafts) - 1, 0, self._owner)

    def _find_dependencies(self, index: int) -> list[int]:
        draft = self._drafts[index]
        found = [value.index for value in (*draft.inputs, draft.base) if value is not None]
        origins = [origin.index for origin in draft.origins if origin is not None]
        return found + [index for index in origins if self._drafts[index].node.role in NO_GRADIENT_ROLES]

    def _make_node(self, index: int, ids: Mapping[int, str], known: dict[Hashable, str]) -> Node:
        """Return a node with its id and those of its producers; ``known`` has the keys of earlier storages."""
        node, inputs, origins, base, _, storages = self._drafts[index]

        def make_ref(value: Value | None) -> Ref | None:
            return None if value is None or value.index not in ids else Ref(ids[value.index], value.output_nr)

        def find_storage(slot: Saved, origin: Value | None, storage: Hashable) -> str:
            if storage is None:
                return slot.storage
            is_owned = origin is not None and self._drafts[origin.index].node.role in OWNERS
            owner = ids.get(origin.index, "") if origin is not None and is_owned else ""
            own = storage_key(ids[index], slot.slot)
            key = known.setdefault(storage, owner or own)
            return "" if key == own else key

        saved = tuple(
            replace(slot, origin=make_ref(origin), storage=find_storage(slot, origin, storage))
            for slot, origin, storage in zip(node.saved, origins, storages, strict=True)
        )
        base_id = None if base is None else ids[base.index]
        return replace(node, id=ids[index], inputs=tuple(map(make_ref, inputs)), saved=saved, base=base_id)


def _check_name(title: str, name: object) -> None:
    # `build` makes ids of names before it checks the records.
    if not isinstance(name, str):
        raise GraphError(f"{title} is {name!r}; expected text")
    if not is_unicode(name):
        raise GraphError(f"{title} is {name!r}, with a lone surrogate, which a file cannot contain")


def _to_tuple(values: Iterable[T], title: str, expected: str) -> tuple[T, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise GraphError(f"{title}: expected {expected}, got {values!r}")
    return tuple(values)


def _freeze_attributes(title: str, attributes: Mapping[str, AttrValue] | None) -> Mapping[str, AttrValue]:
    if attributes is None:
        return NOTHING
    owner, _, field = title.rpartition(": ")
    if not isinstance(attributes, Mapping):
        raise GraphError(f"{title}: expected a mapping, got {attributes!r}")
    found = freeze({key: _convert_lists(value) for key, value in attributes.items()})
    fault = fault_in(found, rule_of(Node, "attrs"), field)
    if fault:
        raise GraphError(f"{owner}: {fault}")
    return found


def _convert_lists(value: Any, deep: int = 3) -> Any:
    # An attribute has at most three levels of lists, and the check refuses deeper ones.
    if type(value) not in (list, tuple) or not deep:
        return value
    return tuple([_convert_lists(entry, deep - 1) for entry in value])
