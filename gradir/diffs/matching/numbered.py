"""Both graphs as numbers: nodes by position, labels of what each says and of what stands around it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.matching.renames import Naming, pattern
from gradir.ir import Node, Ref, Saved
from gradir.ir.fields import fields_of, records_in
from gradir.ir.order import postorder

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["FREE", "LOOSE_FIRST", "NOTHING", "TENSOR", "TIGHT_FIRST", "Labels", "Level", "Side", "Tokens"]


NOTHING: Final = -1
"""The position of no node. Lists by position end in an entry for it, which is where Python's index -1 leads."""

FREE: Final = -2
"""What a matching has for a node without a partner, which no reference of the other graph is equal to."""


TENSOR: Final = "\0"
"""Stands in a place between the module and a tensor's own name."""


_LOOSE: Final = frozenset({"role", "op"})
_BLANK: Final = Node("")


class Labels(dict[Hashable, int]):
    """Numbers for values: equal values get one number, in the order in which they are first met.

    >>> labels = Labels()
    >>> labels["relu"], labels["add"], labels["relu"]
    (0, 1, 0)
    """

    def __missing__(self, value: Hashable) -> int:
        number = self[value] = len(self)
        return number


class Odd(NamedTuple):
    """What a reference says beyond the node: an output other than 0, or the name of a node that is not there."""

    output_nr: int
    absent: str = ""


class Side:
    """One of the two graphs.

    ``loose`` labels what survives most edits: role, operation, number of inputs, a tensor's own name. ``tight`` adds
    tensors (``outlined``), attributes and saved slots (``described``), ``full`` all that is no reference. Names by
    module are in none of them.
    ``inputs`` holds the producer's position by input slot and then that of the base; ``kept`` origin and storage owner
    by saved slot, and ``held`` labels what the slots hold; ``odd`` has what references say beyond a position. ``below``
    is what WL tokens look at: the inputs, the base and the buffers that are saved; ``above`` is its reverse.
    """

    def __init__(self, graph: Graph, labels: Labels) -> None:
        self._labels = labels
        self.nodes: list[Node] = list(graph.nodes.values())
        self.ids = list(graph.nodes)
        self.index = {node_id: position for position, node_id in enumerate(self.ids)}
        self.inputs: list[tuple[int, ...]] = []
        self.kept: list[tuple[int, ...]] = []
        self.below: list[tuple[int, ...]] = []
        self.held: dict[int, int] = {}
        self.odd: dict[int, dict[int, Odd]] = {}
        self.loose: list[int] = []
        self.outlined: list[int] = []
        self.described: list[int] = []
        self.tight: list[int] = []
        self.full: list[int] = []
        self.classes = {path: scope.class_name for path, scope in graph.scopes.items()}
        self._buffers = frozenset(place for place, node in enumerate(self.nodes) if node.role == "buffer")
        for place, node in enumerate(self.nodes):
            self._add(place, node, labels)
        self.above = self._consumers()

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def naming(self) -> list[int]:
        """The label of each node's `Naming`."""
        return [self._labels[Naming.of(node)] for node in self.nodes]

    @cached_property
    def modules(self) -> list[str]:
        """The path of the module in which each node stands; what gathers a tensor's gradient stands with the tensor."""
        return [tensor.rpartition(".")[0] if tensor else module for module, tensor in self.standing]

    @cached_property
    def places(self) -> list[str]:
        """As a pattern the module of each node, and a tensor's own name."""
        return [
            f"{pattern(module)}{TENSOR}{pattern(tensor.rpartition('.')[2])}" if tensor else pattern(module)
            for module, (_, tensor) in zip(self.modules, self.standing, strict=True)
        ]

    @cached_property
    def homes(self) -> list[int]:
        """The label of each node's module."""
        return [self._labels[module] for module in self.modules]

    @cached_property
    def spots(self) -> list[int]:
        """The label of each node's place."""
        return [self._labels[place] for place in self.places]

    @cached_property
    def called(self) -> list[int]:
        """The label of all names of each node."""
        return [self._labels[node.id, node.scope, node.names] for node in self.nodes]

    @cached_property
    def keepers(self) -> list[list[int]]:
        """For each node what refers to it in saved slots."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for place, kept in enumerate(self.kept):
            for other in kept:
                if other not in {NOTHING, place}:
                    found[other].append(place)
        return found

    @cached_property
    def standing(self) -> list[tuple[str, str]]:
        """For each node the path of its module, or else that of its tensor."""
        found = []
        for node_id, node in zip(self.ids, self.nodes, strict=True):
            path = node_id.rpartition("/")[0]
            if not node.op:
                found.append(("", node_id))
            elif path in self.index:
                found.append(("", path))
            else:
                found.append((path, ""))
        return found

    def depth_first(self) -> list[int]:
        """Positions in post-order from the outputs, sorted by id, then from what else nothing consumes."""
        ends = [place for place, consumers in enumerate(self.above) if not consumers]
        outputs = sorted((place for place in ends if self.nodes[place].role == "output"), key=self.ids.__getitem__)
        rest = [place for place in ends if self.nodes[place].role != "output"]
        # What is left after these lies on a cycle, which only a graph that breaks the rules has.
        return postorder([*outputs, *rest, *range(len(self))], self._producers)

    def _producers(self, place: int) -> list[int]:
        return [below for below in self.below[place] if below != NOTHING]

    def _add(self, place: int, node: Node, labels: Labels) -> None:
        inputs, odd = self._references(node.inputs)
        base = NOTHING
        if node.base is not None:
            base = self.index.get(node.base, NOTHING)
            if base == NOTHING:
                odd[len(inputs)] = Odd(0, node.base)
        self.inputs.append((*inputs, base))
        below, held = inputs, NOTHING
        if base != NOTHING:
            below = (*below, base)
        if node.saved:
            slots, kept = self._saved(node.saved)
            held = self.held[place] = labels[slots]
            self.kept.append(kept)
            if self._buffers:
                below = (*below, *(origin for origin in kept[::2] if origin in self._buffers))
        else:
            self.kept.append(())
        self.below.append(below)
        own_name = "" if node.op else pattern(node.id.rpartition(".")[2])
        loose = labels[node.role, node.op, len(inputs), own_name]
        outlined = labels[said("type")(node)]
        described = labels[loose, held, said("structure")(node), said("detail")(node)]
        tight = full = labels[outlined, described]
        if odd:
            self.odd[place] = odd
        free = said("free")(node)
        if odd or free != said("free")(_BLANK):
            full = labels[tight, free, tuple(odd.items())]
        self.loose.append(loose)
        self.outlined.append(outlined)
        self.described.append(described)
        self.tight.append(tight)
        self.full.append(full)

    def _references(self, refs: tuple[Ref | None, ...]) -> tuple[tuple[int, ...], dict[int, Odd]]:
        places = []
        odd: dict[int, Odd] = {}
        for slot, ref in enumerate(refs):
            if ref is None:
                places.append(NOTHING)
                continue
            place = self.index.get(ref.id, NOTHING)
            places.append(place)
            if place == NOTHING:
                odd[slot] = Odd(ref.output_nr, ref.id)
            elif ref.output_nr:
                odd[slot] = Odd(ref.output_nr)
        return tuple(places), odd

    def _saved(self, slots: tuple[Saved, ...]) -> tuple[tuple[Hashable, ...], tuple[int, ...]]:
        """What the slots hold, without references, and the positions that they refer to."""
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
                    first, _, storage_slot = slot.storage.rpartition(".")
                    owner = self.index.get(first, NOTHING)
                if owner == NOTHING:
                    storage_slot = slot.storage
            held.append((slot.slot, slot.dtype, slot.shape, slot.bytes, slot.state, output_nr, literal, storage_slot))
            kept += (origin, owner)
        return tuple(held), tuple(kept)

    def _consumers(self) -> list[list[int]]:
        above: list[list[int]] = [[] for _ in self.nodes]
        for place, producers in enumerate(self.below):
            for producer in producers:
                if producer != NOTHING:
                    above[producer].append(place)
        return above


@cache
def said(compared: str) -> Callable[[Node], Hashable]:
    """Reads what a node says in the fields of one kind of comparison, without references and what ``loose`` labels.

    >>> from gradir.ir import TensorMeta
    >>> said("type")(Node("x", outputs=(TensorMeta("float32"),)))
    (TensorMeta(dtype='float32', shape=None, device='cpu', layout='strided'),)
    """
    names = [
        field.name
        for field in fields_of(Node)
        if field.about.compared == compared
        and field.name not in _LOOSE
        and not field.about.refers
        and records_in(field) not in {Ref, Saved}
    ]
    values = attrgetter(*names)
    if not any(isinstance(getattr(_BLANK, name), dict) for name in names):
        return values
    return lambda node: tuple([_frozen(value) if isinstance(value, dict) else value for value in values(node)])


def _frozen(values: Mapping[str, object]) -> Hashable:
    """A value that is equal where the mapping is; text for what the IR's types do not allow."""
    try:
        frozen = frozenset(values.items())
        hash(frozen)
    except TypeError:
        return repr(sorted(values.items()))
    return frozen


_HUB: Final = 8
"""More consumers than this say little of a node, and all of them would change when one is added."""

Level = tuple[str, int]
"""A label and a radius."""

TIGHT_FIRST: Final[tuple[Level, ...]] = (
    ("tight", 2), ("loose", 2), ("tight", 1), ("loose", 1), ("tight", 0), ("loose", 0),
)  # fmt: skip
"""From the token that says most to the one that says least."""

LOOSE_FIRST: Final[tuple[Level, ...]] = (("loose", 2), ("tight", 1), ("loose", 1), ("tight", 0), ("loose", 0))
"""The same for a layer whose sizes changed, which tight tokens would rather remove and add."""


class Tokens:
    """The tokens of both graphs, made when first asked for.

    A token of radius 0 is a label, and the place where both graphs have it; one more round joins it with the tokens of
    the producers by slot and of the consumers. That is the colour refinement of B. Weisfeiler and A. Lehman, "A
    reduction of a graph to a canonical form" (1968); as labels for comparing graphs see N. Shervashidze et al.,
    "Weisfeiler-Lehman graph kernels" (2011).
    """

    def __init__(self, sides: tuple[Side, Side], labels: Labels, anchors: tuple[list[str], list[str]]) -> None:
        self._labels = labels
        self._sides = sides
        self._anchors = anchors
        self._near: tuple[list[list[int]], ...] = tuple(
            [consumers if len(consumers) <= _HUB else [] for consumers in side.above] for side in sides
        )
        self._known: dict[Level, tuple[list[int], list[int]]] = {}

    def at(self, label: str, radius: int) -> tuple[list[int], list[int]]:
        """The tokens of both sides for a label, ``tight`` or ``loose``, and a radius, by position."""
        for rounds in range(radius + 1):
            if (label, rounds) not in self._known:
                self._known[label, rounds] = self._made(label, rounds)
        return self._known[label, radius]

    def _made(self, label: str, radius: int) -> tuple[list[int], list[int]]:
        if not radius:
            labels = self._labels
            before, after = (
                [
                    labels[own, anchor] if anchor else own
                    for own, anchor in zip(getattr(side, label), anchors, strict=True)
                ]
                for side, anchors in zip(self._sides, self._anchors, strict=True)
            )
            return before, after
        colours = self._known[label, radius - 1]
        before, after = (
            self._refined(of, side.below, near) for of, side, near in zip(colours, self._sides, self._near, strict=True)
        )
        return before, after

    def _refined(
        self, colours: Sequence[int], below: Sequence[Sequence[int]], above: Sequence[Sequence[int]]
    ) -> list[int]:
        labels = self._labels
        known = [*colours, -1]
        return [
            labels[
                colour,
                tuple([known[place] for place in producers]),
                (known[consumers[0]],) if len(consumers) == 1 else tuple(sorted([known[place] for place in consumers])),
            ]
            for colour, producers, consumers in zip(colours, below, above, strict=True)
        ]
