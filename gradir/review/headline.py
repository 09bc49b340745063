"""The lines above all else: counts, how much the graph grew, and what many changes come to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.cuts import cut_text, lacking_flow
from gradir.ir.name_ranges import ranges
from gradir.ir.text import amount, counted, printable, short_bytes
from gradir.review.frozen_parameters import freezing
from gradir.review.lost_inputs import lost_inputs_text
from gradir.review.wording import SIGNS, nesting, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gradir.diffs.changes import Change, Diff, FieldChange
    from gradir.ir import Cut, Graph
    from gradir.review.comparison import Comparison

__all__ = ["common", "headline", "new_cuts", "new_places", "notes", "uniform", "unknown_sizes"]

_HOW: Final = ("renamed", "wrapped", "unwrapped")
_ALWAYS: Final = ("added", "removed", "changed")

_FEWEST: Final = 5
"""Fewer changed nodes are read as they are."""

_PROPERTIES: Final = ("dtype", "device", "layout", "shape")

_OF_OUTPUT: Final = 3
"""Keys in the path of a property of an output."""

_MOST: Final = 4

_KINDS: Final = (("parameter", "parameter"), ("operation", "function"))


def headline(comparison: Comparison) -> str:
    """How much changed, in one line; cuts first, since they are parameters that lost their gradient.

    >>> from gradir.ir import Cut, Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = Graph.of([Node("x")]), Graph.of([], [], [Cut("unreached", ("x",))])
    >>> headline(Comparison(a, b))
    '+1 -0 ~0 cuts; +0 -1 ~0 nodes'
    """
    diff = comparison.diff
    counts: Counter[tuple[str, str]] = Counter((change.subject, change.kind) for change in diff.changes)
    texts = [*new_cuts(new_places(diff.changes))]
    for subject in ("cut", "node", "scope"):
        for what, slots in (("lost", comparison.lost_inputs), ("gained", comparison.gained_inputs)):
            if subject == "node" and slots:
                texts.append(f"{counted(len(slots), f'{what} input')}: {lost_inputs_text(slots)}")
        if subject == "node" and comparison.unowned.parameters:
            count = counted(comparison.unowned.parameters, "parameter")
            texts.append(f"{count} not in the model: {comparison.unowned.text()}")
        numbers = [
            (sign, counts[subject, kind]) for kind, sign in SIGNS.items() if kind in _ALWAYS or counts[subject, kind]
        ]
        if subject == "node" or any(number for _, number in numbers):
            texts.append(f"{' '.join(f'{sign}{number}' for sign, number in numbers)} {subject}s")
    modules = Counter(nesting(change) or change.kind for change in diff.changes if change.subject == "module")
    texts += [f"{modules[how]} module{'s'[: modules[how] != 1]} {how}" for how in _HOW if modules[how]]
    texts += _growth(comparison)
    if any(change.id == "order" for change in diff.changes if change.subject == "graph"):
        texts.append("order changed")
    return "; ".join(texts)


def new_places(changes: Iterable[Change]) -> list[Cut]:
    """The places that newly cut what nothing means to be cut, or that nothing means any more."""
    return [
        change.cut
        for change in changes
        if change.cut is not None
        and not change.cut.meant
        and (change.kind == "added" or any(field.path == ("meant",) for field in change.fields))
    ]


def new_cuts(places: Sequence[Cut]) -> Iterator[str]:
    """One phrase for new places, if there are any; it tells the first.

    >>> from gradir.ir import Cut, Source
    >>> list(new_cuts([Cut("detach", ("a", "b"), op="detach", source=Source("net.py", 41))] * 2))
    ['2 new cuts: detach at net.py:41 (2 parameters), and 1 more']
    """
    if places:
        more = f", and {len(places) - 1:,} more" if len(places) > 1 else ""
        count = f"{len(places):,} new cuts" if more else "a new cut"
        yield f"{count}: {cut_text(places[0], count=True)}{more}"


def _growth(comparison: Comparison) -> Iterator[str]:
    before, after = comparison.diff.before, comparison.diff.after
    for what, grown in (("edges", after.edges - before.edges), ("parameters", after.parameters - before.parameters)):
        if grown:
            yield f"{what} {amount(grown, signed=True)}"
    grown = after.saved_bytes - before.saved_bytes
    slots = comparison.unknown_slots
    if grown or slots[0] != slots[1]:
        share = f" ({100 * grown / before.saved_bytes:+,.1f} %)" if before.saved_bytes and grown else ""
        figure = f"saved bytes {short_bytes(grown, signed=True) if grown else 'as before'}{share}"
        yield ", ".join(filter(None, (figure, unknown_sizes(*slots))))


def unknown_sizes(before: int, after: int) -> str:
    """How many saved slots a figure of saved bytes leaves out; nothing where it leaves out none.

    >>> unknown_sizes(0, 0), unknown_sizes(0, 3), unknown_sizes(1, 1), unknown_sizes(58, 0)
    ('', 'unknown for 3 slots', 'unknown for 1 slot', 'unknown for 58 slots before')
    """
    if before and not after:
        return f"unknown for {before:,} slot{'s'[: before != 1]} before"
    if before != after and before:
        return f"unknown for {before:,} -> {after:,} slots"
    return f"unknown for {after:,} slot{'s'[: after != 1]}" if after else ""


def notes(comparison: Comparison) -> Iterator[str]:
    """Which side has no data or no flow, what was frozen or tied, and what makes up most of the changed nodes.

    >>> from gradir.ir import Graph, Node, TensorMeta
    >>> from gradir.review.comparison import Comparison
    >>> def cast(dtype): return Graph.of([Node(f"exp:{n}", outputs=(TensorMeta(dtype, (2,)),)) for n in range(1, 6)])
    >>> list(notes(Comparison(cast("float32"), cast("bfloat16"))))
    ['all 5 changed nodes: dtype float32 -> bfloat16']
    """
    if comparison.in_shared_words:
        yield f"in shared words: {common(comparison)}"
    elif found := other_framework(comparison):
        yield found
    fake = [graph.producer.options.get("fake") is True for graph in comparison.graphs]
    if fake[0] != fake[1]:
        nth, graph = ("first", comparison.before) if fake[0] else ("second", comparison.after)
        framework = graph.producer.framework or "the framework"
        yield f"without data: the {nth} graph (--fake), where {framework} runs some operations in other ways"
    if comparison.are_two_models:
        sizes = " -> ".join(f"{len(graph.nodes):,}" for graph in comparison.graphs)
        yield f"two different models: {comparison.nodes_in_common:,} of {sizes} nodes in common"
    lacking = lacking_flow(*comparison.graphs)
    facts = {change.id for change in comparison.diff.changes if change.subject == "graph"}
    if lacking is not None and "flow" in facts:
        nth = "first" if lacking is comparison.before else "second"
        yield f"without flow: the {nth} graph (no --flow), so no place where gradient ends is known to be new or gone"
    yield from freezing(comparison)
    yield from ties(comparison)
    dimensions = list(uniform(comparison.diff))
    yield from dimensions
    whole = comparison.whole_change
    if whole.sizes and not any(" changed nodes: dimension " in text for text in dimensions):
        yield whole.sizes
    if whole.casts:
        yield whole.casts


class _Same(NamedTuple):
    """One change of a node's outputs: of a property, or of the size of one dimension."""

    what: str
    before: str | int
    after: str | int

    def text(self) -> str:
        before, after = (words((self.what,), value) for value in (self.before, self.after))
        if self.what.startswith("dimension"):
            return f"{self.what} is {after}, was {before}"
        return f"{self.what} {before} -> {after}"


def uniform(diff: Diff) -> Iterator[str]:
    """Each change of outputs that more than half of the changed nodes have; a node counts only where it has no other.

    A node has a change when the property is another for one or more of its outputs, and became the same other for all
    of these. Of shapes, only those count that differ in one dimension alone. Where that is most of them, nodes in which
    other sizes changed in the same ratio, as those of a batch that is folded into another dimension, are counted apart.

    >>> from gradir.diffs.changes import Change, Diff, FieldChange, Totals
    >>> field = FieldChange(("out", 0, "shape"), (2, 8), (4, 8))
    >>> changes = tuple(Change("changed", "node", f"exp:{n}", fields=(field,)) for n in range(1, 7))
    >>> list(uniform(Diff(Totals(), Totals(), changes)))
    ['all 6 changed nodes: dimension 0 is 4, was 2']
    """
    changed = [change for change in diff.changes if (change.subject, change.kind) == ("node", "changed")]
    if len(changed) < _FEWEST:
        return
    counts: Counter[_Same] = Counter()
    for change in changed:
        counts.update(_of_a_node(change))
    for same, count in counts.items():
        if 2 * count > len(changed):
            which = f"all {count:,}" if count == len(changed) else f"{count:,} of {len(changed):,}"
            yield f"{which} changed nodes: {same.text()}{_in_ratio_text(same, changed)}"


def _of_a_node(change: Change) -> Iterator[_Same]:
    found: dict[str, set[_Same | None]] = {}
    for field in change.fields:
        what = _property(field)
        if what == "shape":
            found.setdefault(what, set()).add(_dimension(_sizes(field.before), _sizes(field.after)))
        elif what:
            known = isinstance(field.before, str) and isinstance(field.after, str)
            found.setdefault(what, set()).add(_Same(what, field.before, field.after) if known else None)
    for values in found.values():
        if len(values) == 1:
            yield from filter(None, values)


def _in_ratio_text(same: _Same, changed: Iterable[Change]) -> str:
    before, after = same.before, same.after
    if not (isinstance(before, int) and isinstance(after, int) and before and after):
        return ""
    count = sum(same not in _of_a_node(change) and _is_in_ratio(change, before, after) for change in changed)
    return f"; in {count:,} more, other sizes changed in that ratio" if count else ""


def _is_in_ratio(change: Change, before: int, after: int) -> bool:
    """Whether every size of a node's outputs that changed is a multiple, and as many times another as this one."""
    shapes = [(_sizes(field.before), _sizes(field.after)) for field in change.fields if _property(field) == "shape"]
    return bool(shapes) and all(
        len(was) == len(now) > 0
        and all(
            old % before == 0 and old * after == new * before for old, new in zip(was, now, strict=True) if old != new
        )
        for was, now in shapes
    )


def _property(field: FieldChange) -> str:
    """The property of an output that a field is; nothing for any other field."""
    if len(field.path) != _OF_OUTPUT or field.path[0] != "out":
        return ""
    return str(field.path[-1]) if field.path[-1] in _PROPERTIES else ""


def _sizes(shape: object) -> tuple[int, ...]:
    """The sizes of a shape of numbers; none for any other value."""
    return shape if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape) else ()


def _dimension(before: tuple[int, ...], after: tuple[int, ...]) -> _Same | None:
    """The only dimension in which two shapes differ, with both sizes."""
    if len(before) != len(after):
        return None
    other = [at for at, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    return _Same(f"dimension {other[0]}", before[other[0]], after[other[0]]) if len(other) == 1 else None


def ties(comparison: Comparison) -> Iterator[str]:
    """One line for the parameters that were tied, and one for those that were untied.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> def weight(*names): return Node(names[0], role="parameter", names=names)
    >>> a, b = Graph.of([weight("a.w"), weight("b.w")]), Graph.of([weight("a.w", "b.w")])
    >>> [*ties(Comparison(a, b)), *ties(Comparison(b, a))]
    ['tied: {a,b}.w', 'untied: {a,b}.w']
    """
    tied, untied = [], []
    fields = [
        field
        for change in comparison.diff.changes
        if change.subject == "node" and change.what == "parameter"
        for field in change.fields
        if field.path == ("names",)
    ]
    known = [_parameter_names(graph) for graph in comparison.graphs] if fields else []
    for field in fields:
        before, after = (value if isinstance(value, tuple) else () for value in (field.before, field.after))
        if len(after) > 1 and known[0].intersection(after).difference(before):
            tied.append(ranges(after))
        if len(before) > 1 and known[1].intersection(before).difference(after):
            untied.append(ranges(before))
    for what, found in (("tied", tied), ("untied", untied)):
        if found:
            more = f" and {len(found) - _MOST:,} more" if len(found) > _MOST else ""
            yield f"{what}: {', '.join(found[:_MOST])}{more}"


def _parameter_names(graph: Graph) -> frozenset[str]:
    return frozenset(name for node in graph.nodes.values() if node.role == "parameter" for name in node.names)


def common(comparison: Comparison) -> str:
    """How many parameters and operations are the same in both graphs, of how many.

    >>> from gradir.ir import Graph, Node, Producer
    >>> from gradir.review.comparison import Comparison
    >>> a = Graph.of([Node("exp:1", op="exp")], producer=Producer(framework="torch"))
    >>> b = Graph.of([Node("exp:1", op="exp"), Node("neg:1", op="neg")], producer=Producer(framework="jax"))
    >>> common(Comparison(a, b, vocabulary=True))
    'torch and jax have 1 of 1 -> 2 operations in common'
    """
    changes = [change for change in comparison.diff.changes if change.subject == "node"]
    other = {change.id for change in changes if change.kind in ("added", "changed")}
    after = comparison.after.nodes
    texts = []
    for word, role in _KINDS:
        numbers = [sum(node.role == role for node in graph.nodes.values()) for graph in comparison.graphs]
        if any(numbers):
            same = sum(after[node].role == role and node not in other for node in comparison.matching.nodes.values())
            of = f"{numbers[0]:,}" if numbers[0] == numbers[1] else f"{numbers[0]:,} -> {numbers[1]:,}"
            texts.append(f"{same:,} of {of} {counted(numbers[1], word).partition(' ')[2]}")
    names = " and ".join(map(_framework, comparison.graphs))
    return f"{names} have {' and '.join(texts) or 'nothing'} in common"


def other_framework(comparison: Comparison) -> str:
    """That the frameworks differ, and what to do; nothing where they are the same or not known.

    >>> from gradir.ir import Graph, Producer
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([], producer=Producer(framework=name)) for name in ("torch", "jax"))
    >>> other_framework(Comparison(a, b))
    'the frameworks differ: torch and jax have other words; --vocabulary compares in words that both share'
    """
    names = [graph.producer.framework for graph in comparison.graphs]
    if not all(names) or names[0] == names[1]:
        return ""
    both = " and ".join(map(_framework, comparison.graphs))
    return f"the frameworks differ: {both} have other words; --vocabulary compares in words that both share"


def _framework(graph: Graph) -> str:
    made = graph.producer
    return printable(f"{made.framework} {made.framework_version}".strip() or "a graph made by hand")
