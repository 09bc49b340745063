"""Graphs as numbers: nodes by position, with labels of their contents and neighbours."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.matching.renames import Naming, pattern
from gradir.ir import Node, Ref, Saved
from gradir.ir.edges import postorder, references
from gradir.ir.fields import fields_of, records_in
from gradir.ir.ids import split_id, split_last
from gradir.ir.memo import Table
from gradir.ir.model import NO_GRADIENT_ROLES

if TYPE_CHECKING:
    from gradir.ir import Graph

# The position of no node. Lists by position have a last entry for it, which Python's index -1 finds.
NOTHING: Final = -1
# The partner of an unmatched node, which equals no reference of the other graph.
FREE: Final = -2
# The separator in an address between the module and a tensor's own name.
TENSOR: Final = "\0"
_LOOSE: Final = frozenset({"role", "op"})
_BLANK: Final = Node("")


class RefDetail(NamedTuple):
    """The details of a reference beyond the node: an output other than 0, or the name of an absent node."""

    output_nr: int
    absent: str = ""


class NumberedGraph:
    """One of the two graphs, with nodes by position.

    ``loose`` labels the parts that survive most edits: role, operation, number of inputs, a tensor's own name.
    ``tight`` adds tensors (``outlined``), attributes and saved slots (``described``). ``full`` adds everything else but
    references.

    ``inputs`` has the producer's position by input slot, then those of other edges, and ``widths`` their numbers by
    field. ``saved_refs`` has origin and storage owner by saved slot, and ``slot_labels`` labels the other contents of
    the slots. ``ref_details`` has the details of references beyond a position. ``producers`` are the neighbours for
    `Surroundings`, including saved buffers, and ``consumers`` the reverse.
    """

    def __init__(self, graph: Graph, labels: Table[Hashable]) -> None:
        self.labels = labels
        self.nodes: list[Node] = list(graph.nodes.values())
        self.ids = list(graph.nodes)
        self.index = {node_id: node for node, node_id in enumerate(self.ids)}
        self.inputs: list[tuple[int, ...]] = []
        self.widths: list[tuple[int, ...]] = []
        self.saved_refs: list[tuple[int, ...]] = []
        self.producers: list[tuple[int, ...]] = []
        self.slot_labels: dict[int, int] = {}
        self.ref_details: dict[int, dict[int, RefDetail]] = {}
        self.loose: list[int] = []
        self.outlined: list[int] = []
        self.described: list[int] = []
        self.tight: list[int] = []
        self.full: list[int] = []
        self.classes = {path: scope.class_name for path, scope in graph.scopes.items()}
        self.details = {path: scope.detail for path, scope in graph.scopes.items()}
        self._blank_free = field_reader("free")(_BLANK)
        self._beside = frozenset(node for node, record in enumerate(self.nodes) if record.role in NO_GRADIENT_ROLES)
        for node, record in enumerate(self.nodes):
            self._add(node, record)
        self.consumers = _reverse(self.producers)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def savers(self) -> list[list[int]]:
        """For each node the nodes that refer to it in saved slots."""
        return _reverse(self.saved_refs)

    @cached_property
    def homes(self) -> list[tuple[str, str]]:
        """For each node the path of its module, or else the name of its tensor."""
        found = []
        for node_id, record in zip(self.ids, self.nodes, strict=True):
            path = split_id(node_id)[0] if record.op else node_id
            found.append(("", path) if path in self.index else (path, ""))
        return found

    @cached_property
    def modules(self) -> list[str]:
        """The path of each node's module; an accumulator of a gradient is in the module of its tensor."""
        return [split_last(tensor)[0] if tensor else module for module, tensor in self.homes]

    @cached_property
    def addresses(self) -> list[str]:
        """The module of each node as a pattern, with a tensor's own name."""
        return [
            f"{pattern(module)}{TENSOR}{pattern(split_last(tensor)[1])}" if tensor else pattern(module)
            for module, (_, tensor) in zip(self.modules, self.homes, strict=True)
        ]

    @cached_property
    def module_labels(self) -> list[int]:
        """The label of each node's module."""
        return [self.labels[module] for module in self.modules]

    @cached_property
    def address_labels(self) -> list[int]:
        """The label of each node's address."""
        return [self.labels[address] for address in self.addresses]

    @cached_property
    def name_labels(self) -> list[int]:
        """The label of all names of each node."""
        return [self.labels[record.id, record.scope, record.names] for record in self.nodes]

    @cached_property
    def naming_labels(self) -> list[int]:
        """The label of each node's `Naming`."""
        return [self.labels[Naming.of(record)] for record in self.nodes]

    def depth_first(self) -> list[int]:
        """Return positions in post-order from the outputs, sorted by id, then from other ends."""
        ends = [node for node, consumers in enumerate(self.consumers) if not consumers]
        outputs = sorted((node for node in ends if self.nodes[node].role == "output"), key=self.ids.__getitem__)
        rest = [node for node in ends if self.nodes[node].role != "output"]
        # Other nodes are on a cycle, which only an invalid graph has.
        return postorder(
            [*outputs, *rest, *range(len(self))],
            lambda node: [producer for producer in self.producers[node] if producer != NOTHING],
        )

    def _add(self, node: int, record: Node) -> None:
        labels, slots = self.labels, len(record.inputs)
        fields = references(record)
        inputs, details = self._references(chain.from_iterable(fields))
        widths = tuple(map(len, fields))
        self.inputs.append(inputs)
        self.widths.append(widths)
        producers = inputs[:slots] + tuple([producer for producer in inputs[slots:] if producer != NOTHING])
        refs: tuple[int, ...] = ()
        slot_label = NOTHING
        if record.saved:
            contents, refs = self._read_slots(record.saved)
            slot_label = self.slot_labels[node] = labels[contents]
            if self._beside:
                producers = (*producers, *(origin for origin in refs[::2] if origin in self._beside))
        self.saved_refs.append(refs)
        self.producers.append(producers)
        own_name = "" if record.op else pattern(split_last(record.id)[1])
        loose = labels[record.role, record.op, slots, own_name]
        outlined = labels[field_reader("type")(record)]
        described = labels[loose, widths, slot_label, field_reader("structure")(record), field_reader("detail")(record)]
        tight = full = labels[outlined, described]
        if details:
            self.ref_details[node] = details
        free = field_reader("free")(record)
        if details or free != self._blank_free:
            full = labels[tight, free, tuple(details.items())]
        self.loose.append(loose)
        self.outlined.append(outlined)
        self.described.append(described)
        self.tight.append(tight)
        self.full.append(full)

    def _references(self, refs: Iterable[Ref | None]) -> tuple[tuple[int, ...], dict[int, RefDetail]]:
        producers: list[int] = []
        details: dict[int, RefDetail] = {}
        for slot, ref in enumerate(refs):
            producer = NOTHING if ref is None else self.index.get(ref.id, NOTHING)
            producers.append(producer)
            if ref is not None and (ref.output_nr or producer == NOTHING):
                details[slot] = RefDetail(ref.output_nr, ref.id if producer == NOTHING else "")
        return tuple(producers), details

    def _read_slots(self, slots: tuple[Saved, ...]) -> tuple[tuple[Hashable, ...], tuple[int, ...]]:
        """Return the contents of the slots without references, and the positions of references."""
        contents: list[Hashable] = []
        refs: list[int] = []
        for slot in slots:
            origin, output_nr, literal, storage_slot = NOTHING, NOTHING, "", ""
            if slot.origin is not None:
                origin, output_nr = self.index.get(slot.origin.id, NOTHING), slot.origin.output_nr
                literal = slot.origin.id if origin == NOTHING else ""
            owner = NOTHING
            if slot.storage:
                owner = self.index.get(slot.storage, NOTHING)
                if owner == NOTHING:
                    first, storage_slot = split_last(slot.storage)
                    owner = self.index.get(first, NOTHING)
                if owner == NOTHING:
                    storage_slot = slot.storage
            contents.append(
                (slot.slot, slot.dtype, slot.shape, slot.bytes, slot.state, output_nr, literal, storage_slot)
            )
            refs += (origin, owner)
        return tuple(contents), tuple(refs)


def _reverse(references: Sequence[Iterable[int]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in references]
    for node, targets in enumerate(references):
        for target in targets:
            if node != target != NOTHING:
                found[target].append(node)
    return found


@cache
def own_fields(compared: str) -> tuple[str, ...]:
    """Return the fields of a node with one kind of comparison, without references and fields in ``loose``."""
    return tuple(
        field.name
        for field in fields_of(Node)
        if field.about.compared == compared
        and field.name not in _LOOSE
        and not field.about.refers
        and records_in(field) not in {Ref, Saved}
    )


@cache
def field_reader(compared: str) -> Callable[[Node], Hashable]:
    """Return a function that reads the `own_fields` of one kind of comparison."""
    values = attrgetter(*own_fields(compared))
    if not any(isinstance(getattr(_BLANK, name), dict) for name in own_fields(compared)):
        return values
    return lambda node: tuple([_freeze(value) if isinstance(value, dict) else value for value in values(node)])


def _freeze(values: Mapping[str, object]) -> Hashable:
    """Return a value that is equal for equal mappings, as text if the values cannot be hashed."""
    try:
        frozen = frozenset(values.items())
        hash(frozen)
    except TypeError:
        return repr(sorted(values.items()))
    return frozen


# The consumers of a node with more of them do not count: they say little, and a new one would change all labels.
_HUB: Final = 8
# A label and a radius.
Level = tuple[str, int]
# From exact surroundings to vague ones.
LEVELS: Final[tuple[Level, ...]] = (
    ("tight", 2), ("loose", 2), ("tight", 1), ("loose", 1), ("tight", 0), ("loose", 0),
)  # fmt: skip


class Surroundings:
    """Labels of the neighbours of nodes in both graphs, computed on demand.

    For radius 0, it labels the node itself, with its address if both graphs have it. Each round joins a label with
    those of the producers by slot and of the consumers. That is the colour refinement of B. Weisfeiler and A. Lehman,
    "A reduction of a graph to a canonical form" (1968).
    """

    def __init__(self, graphs: tuple[NumberedGraph, NumberedGraph], addresses: tuple[list[str], list[str]]) -> None:
        self._labels = graphs[0].labels
        self._graphs = graphs
        self._addresses = addresses
        self._consumers = [[each if len(each) <= _HUB else [] for each in graph.consumers] for graph in graphs]
        self._cache: dict[Level, tuple[list[int], list[int]]] = {}

    def find_labels(self, label: str, radius: int) -> tuple[list[int], list[int]]:
        """Return the labels of both graphs by position, for ``tight`` or ``loose`` and a radius."""
        if (label, radius) not in self._cache:
            if radius:
                before, after = map(self._refine, self.find_labels(label, radius - 1), self._graphs, self._consumers)
            else:
                before, after = (
                    [
                        self._labels[own, address] if address else own
                        for own, address in zip(getattr(graph, label), addresses, strict=True)
                    ]
                    for graph, addresses in zip(self._graphs, self._addresses, strict=True)
                )
            self._cache[label, radius] = before, after
        return self._cache[label, radius]

    def _refine(self, inner: Sequence[int], graph: NumberedGraph, consumers: Sequence[Sequence[int]]) -> list[int]:
        labels = self._labels
        known = [*inner, -1]
        return [
            labels[
                own,
                tuple([known[node] for node in sources]),
                (known[users[0]],) if len(users) == 1 else tuple(sorted([known[node] for node in users])),
            ]
            for own, sources, users in zip(inner, graph.producers, consumers, strict=True)
        ]
