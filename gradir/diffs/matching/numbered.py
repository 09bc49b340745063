"""Graphs as numbers: nodes by position, with labels of what each says and of what stands around it."""

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
from gradir.ir.model import BESIDE

if TYPE_CHECKING:
    from gradir.ir import Graph

# The position of no node. Lists by position end in an entry for it, which is where Python's index -1 leads.
NOTHING: Final = -1
# What a matching has for a node without a partner, which no reference of the other graph is equal to.
FREE: Final = -2
# Stands in an address between the module and a tensor's own name.
TENSOR: Final = "\0"
_LOOSE: Final = frozenset({"role", "op"})
_BLANK: Final = Node("")


class RefDetail(NamedTuple):
    """What a reference says beyond the node: an output other than 0, or the name of a node that is not there."""

    output_nr: int
    absent: str = ""


class NumberedGraph:
    """One of the two graphs, its nodes by position.

    ``loose`` labels what survives most edits: role, operation, number of inputs, a tensor's own name. ``tight`` adds
    tensors (``outlined``), attributes and saved slots (``described``), ``full`` all that is no reference. Names by
    module are in none of them.
    ``inputs`` holds the producer's position by input slot and then those of other edges, and ``widths`` how many these
    are by field; ``kept`` origin and storage owner by saved slot, and ``held`` labels what the slots hold; ``odd`` has
    what references say beyond a position. ``below`` is what `Surroundings` look at: the producers and the buffers that
    are saved; ``above`` is its reverse.
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
        self._nothing_free = field_reader("free")(_BLANK)
        self._beside = frozenset(node for node, record in enumerate(self.nodes) if record.role in BESIDE)
        for node, record in enumerate(self.nodes):
            self._add(node, record)
        self.consumers = _reverse(self.producers)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def savers(self) -> list[list[int]]:
        """For each node what refers to it in saved slots."""
        return _reverse(self.saved_refs)

    @cached_property
    def homes(self) -> list[tuple[str, str]]:
        """For each node the path of its module, or else that of its tensor."""
        found = []
        for node_id, record in zip(self.ids, self.nodes, strict=True):
            path, _ = split_id(node_id)
            if not record.op:
                found.append(("", node_id))
            else:
                found.append(("", path) if path in self.index else (path, ""))
        return found

    @cached_property
    def modules(self) -> list[str]:
        """The path of the module in which each node stands; what gathers a tensor's gradient stands with the tensor."""
        return [split_last(tensor)[0] if tensor else module for module, tensor in self.homes]

    @cached_property
    def addresses(self) -> list[str]:
        """As a pattern the module of each node, and a tensor's own name."""
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
        # What is left after these lies on a cycle, which only a graph that breaks the rules has.
        return postorder(
            [*outputs, *rest, *range(len(self))],
            lambda node: [below for below in self.producers[node] if below != NOTHING],
        )

    def _add(self, node: int, record: Node) -> None:
        labels, slots = self.labels, len(record.inputs)
        fields = references(record)
        inputs, odd = self._references(chain.from_iterable(fields))
        widths = tuple(map(len, fields))
        self.inputs.append(inputs)
        self.widths.append(widths)
        below, others, held = inputs[:slots], inputs[slots:], NOTHING
        if others.count(NOTHING) != len(others):
            below += tuple([producer for producer in others if producer != NOTHING])
        kept: tuple[int, ...] = ()
        if record.saved:
            contents, kept = self._saved(record.saved)
            held = self.slot_labels[node] = labels[contents]
            if self._beside:
                below = (*below, *(origin for origin in kept[::2] if origin in self._beside))
        self.saved_refs.append(kept)
        self.producers.append(below)
        own_name = "" if record.op else pattern(split_last(record.id)[1])
        loose = labels[record.role, record.op, slots, own_name]
        outlined = labels[field_reader("type")(record)]
        described = labels[loose, widths, held, field_reader("structure")(record), field_reader("detail")(record)]
        tight = full = labels[outlined, described]
        if odd:
            self.ref_details[node] = odd
        free = field_reader("free")(record)
        if odd or free != self._nothing_free:
            full = labels[tight, free, tuple(odd.items())]
        self.loose.append(loose)
        self.outlined.append(outlined)
        self.described.append(described)
        self.tight.append(tight)
        self.full.append(full)

    def _references(self, refs: Iterable[Ref | None]) -> tuple[tuple[int, ...], dict[int, RefDetail]]:
        producers: list[int] = []
        odd: dict[int, RefDetail] = {}
        for slot, ref in enumerate(refs):
            producer = NOTHING if ref is None else self.index.get(ref.id, NOTHING)
            producers.append(producer)
            if ref is not None and (ref.output_nr or producer == NOTHING):
                odd[slot] = RefDetail(ref.output_nr, ref.id if producer == NOTHING else "")
        return tuple(producers), odd

    def _saved(self, slots: tuple[Saved, ...]) -> tuple[tuple[Hashable, ...], tuple[int, ...]]:
        """Return the content of the slots without references, and the positions that they refer to."""
        held: list[Hashable] = []
        kept: list[int] = []
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
            held.append((slot.slot, slot.dtype, slot.shape, slot.bytes, slot.state, output_nr, literal, storage_slot))
            kept += (origin, owner)
        return tuple(held), tuple(kept)


def _reverse(references: Sequence[Iterable[int]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in references]
    for node, targets in enumerate(references):
        for target in targets:
            if node != target != NOTHING:
                found[target].append(node)
    return found


@cache
def own_fields(compared: str) -> tuple[str, ...]:
    """Return the fields of a node of one kind of comparison, without references and those in ``loose``."""
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
    """Return a value that is equal if the mapping is; text if the values cannot be hashed."""
    try:
        frozen = frozenset(values.items())
        hash(frozen)
    except TypeError:
        return repr(sorted(values.items()))
    return frozen


# More consumers than this say little of a node, and all of them would change when one is added.
_HUB: Final = 8
# A label and a radius.
Level = tuple[str, int]
# From the surroundings that say most to those that say least.
LEVELS: Final[tuple[Level, ...]] = (
    ("tight", 2), ("loose", 2), ("tight", 1), ("loose", 1), ("tight", 0), ("loose", 0),
)  # fmt: skip


class Surroundings:
    """Labels of what stands around the nodes of both graphs, made when first asked for.

    Of radius 0 it is a label of the node itself, and its address where both graphs have that; one more round joins it
    with the labels of the producers by slot and of the consumers. That is the colour refinement of B. Weisfeiler and A.
    Lehman, "A reduction of a graph to a canonical form" (1968); as labels for comparing graphs see N. Shervashidze et
    al., "Weisfeiler-Lehman graph kernels" (2011).
    """

    def __init__(self, graphs: tuple[NumberedGraph, NumberedGraph], anchors: tuple[list[str], list[str]]) -> None:
        self._labels = graphs[0].labels
        self._graphs = graphs
        self._anchors = anchors
        self._near = [[each if len(each) <= _HUB else [] for each in graph.consumers] for graph in graphs]
        self._known: dict[Level, tuple[list[int], list[int]]] = {}

    def at(self, label: str, radius: int) -> tuple[list[int], list[int]]:
        """Return the labels of both graphs by position, for ``tight`` or ``loose`` and a radius."""
        if (label, radius) not in self._known:
            labels = self._labels
            if radius:
                before, after = map(self._refined, self.at(label, radius - 1), self._graphs, self._near)
            else:
                before, after = (
                    [labels[own, anchor] if anchor else own for own, anchor in zip(of, anchors, strict=True)]
                    for of, anchors in zip(
                        (getattr(graph, label) for graph in self._graphs), self._anchors, strict=True
                    )
                )
            self._known[label, radius] = before, after
        return self._known[label, radius]

    def _refined(self, inner: Sequence[int], graph: NumberedGraph, above: Sequence[Sequence[int]]) -> list[int]:
        labels = self._labels
        known = [*inner, -1]
        return [
            labels[
                own,
                tuple([known[node] for node in producers]),
                (known[consumers[0]],) if len(consumers) == 1 else tuple(sorted([known[node] for node in consumers])),
            ]
            for own, producers, consumers in zip(inner, graph.producers, above, strict=True)
        ]
