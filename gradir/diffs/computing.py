"""Decide whether two graphs compute the same, even with different operations."""

from __future__ import annotations

from collections import Counter
from math import isfinite, prod
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gradir.diffs.terms import Terms, Value
from gradir.ir import Node
from gradir.ir.marks import failure
from gradir.ir.text import value_text
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from gradir.ir import Graph
    from gradir.vocabulary import Vocabulary

_IN_PLACE: Final = "_"
_FLOATS: Final = frozenset({"float64", "float32", "float16", "bfloat16"})
_OF_ANY_KIND: Final = frozenset({"same", "reshape", "permute", "expand", "literal"})
_VALUES: Final = "values"
# A larger factor, or a smaller one than its inverse, may overflow in an intermediate result.
_LARGEST_FACTOR: Final = 1e6


class Equality(NamedTuple):
    """The conditions under which two graphs compute the same result.

    ``transposed`` are the parameters that the second graph has transposed. ``constants`` counts its tensors without a
    name and ``values``, which must be equal in both programs.
    """

    transposed: tuple[str, ...] = ()
    constants: int = 0


def computes_the_same(a: Graph, b: Graph, matched: Mapping[str, str]) -> Equality | None:
    """Return how the outputs of two graphs of one framework are equal for equal tensors, up to rounding.

    ``matched`` has ids of nodes in the second graph by those in the first. A product is the same in any spelling, and a
    transpose, a view or an expand is no operation by itself. An unknown operation is the same if its name, attributes
    and operands are. The result is ``None`` in doubt. The graphs must contain all operands and settings, as those of a
    forward pass do.
    """
    vocabulary = vocabulary_of(a, b)
    if not vocabulary.meanings or any(_writes(node) for graph in (a, b) for node in graph.nodes.values()):
        return None
    terms = Terms()
    transposed = frozenset(
        new.id
        for old, new in ((a.nodes[old], b.nodes[new]) for old, new in matched.items())
        if old.role == "parameter" == new.role and old.shape != new.shape and _sizes(old) == _sizes(new)[::-1]
    )
    before = _Reader(a, terms, vocabulary, {node_id: node_id for node_id in a.nodes}, frozenset())
    after = _Reader(b, terms, vocabulary, {new: old for old, new in matched.items()}, transposed)
    outputs = before.outputs()
    if not outputs or outputs != after.outputs():
        return None
    return Equality(tuple(sorted(transposed)), after.constants)


def _writes(node: Node) -> bool:
    """Return whether a node failed, or writes to a tensor that other nodes may read."""
    return bool(failure(node)) or node.base is not None or (node.op.endswith(_IN_PLACE) and not node.op.endswith("__"))


def _sizes(node: Node, nr: int = 0) -> tuple[int, ...]:
    shape = node.outputs[nr].shape if nr < len(node.outputs) else None
    return tuple(size for size in shape or () if isinstance(size, int))


class _Reader:
    def __init__(
        self, graph: Graph, terms: Terms, vocabulary: Vocabulary, names: Mapping[str, str], transposed: frozenset[str]
    ) -> None:
        self._graph = graph
        self._terms = terms
        self._vocabulary = vocabulary
        self._names = names
        self._transposed = transposed
        self._values: dict[tuple[str, int], Value] = {}
        self._draw_counts: Counter[str] = Counter()
        # Whether an operation without their values takes each of the tensors without a name.
        self._unnamed: dict[str, bool] = {}

    @property
    def constants(self) -> int:
        """The number of tensors without a known name or values."""
        return sum(self._unnamed.values())

    def outputs(self) -> list[Value]:
        """Return the outputs with one axis for each dimension, or an empty list if a size is not known."""
        found = []
        for node in self._graph.nodes.values():
            shapes = [output.shape for output in node.outputs]
            if any(shape is None or not all(isinstance(size, int) for size in shape) for shape in shapes):
                return []
            if node.role == "output":
                found += [self._terms.normalize(value) for value in self._operands(node)]
            elif node.role != "function":
                self._add_leaf(node)
            elif None in node.inputs:
                return []
            else:
                self._read(node)
        return found

    def _add_leaf(self, node: Node) -> None:
        if not node.names:
            self._unnamed[node.id] = False
        for nr, output in enumerate(node.outputs):
            name: Hashable = ("leaf", self._names.get(node.id, f"\0{node.id}"), output.dtype, nr)
            step = -1 if node.id in self._transposed else 1
            value = self._terms.leaf(name, _sizes(node, nr)[::step])
            self._values[node.id, nr] = value._replace(dims=value.dims[::step])

    def _operands(self, node: Node) -> list[Value]:
        return [self._values[ref.id, ref.output_nr] for ref in node.inputs if ref is not None]

    def _read(self, node: Node) -> None:
        operands = self._operands(node)
        if _VALUES not in node.attrs:
            self._unnamed.update(dict.fromkeys(self._unnamed.keys() & {ref.id for ref in node.inputs if ref}, True))
        value = self._read_known(node, operands)
        for nr in range(len(node.outputs)):
            self._values[node.id, nr] = self._read_unknown(node, operands, nr) if nr or value is None else value

    def _read_unknown(self, node: Node, operands: Sequence[Value], nr: int) -> Value:
        """Return an output of an unknown operation, equal for equal operations of equal operands."""
        plain = tuple(map(self._terms.normalize, operands))
        output = node.outputs[nr]
        draw_number = 0
        draws = any(part in node.op for part in self._vocabulary.draws)
        if draws or not plain or any("dropout" in key and value for key, value in node.attrs.items()):
            # Two equal draws give different values, and the order of all draws counts.
            stream = "" if draws or plain else node.op
            self._draw_counts[stream] += not nr
            draw_number = self._draw_counts[stream]
        name = (node.op, self._settings(node), plain, output.dtype, nr, draw_number)
        return self._terms.leaf(name, _sizes(node, nr))

    def _settings(self, node: Node) -> Hashable:
        return tuple([(key, value_text(node.attrs[key])) for key in sorted(node.attrs)])

    def _read_known(self, node: Node, operands: list[Value]) -> Value | None:
        meaning = self._vocabulary.meanings.get(node.op.strip(_IN_PLACE), "")
        found = _MEANINGS.get(meaning)
        if found is None or node.opaque:
            return None
        refs = (ref for ref in node.inputs if ref is not None)
        kinds = {self._graph.nodes[ref.id].outputs[ref.output_nr].dtype for ref in refs}
        kinds.update(output.dtype for output in node.outputs[:1])
        # An operation on integers, or between dtypes, also rounds.
        if meaning not in _OF_ANY_KIND and not (len(kinds) == 1 and str(*kinds) in _FLOATS):
            return None
        has_others = found.settings is not None and not node.attrs.keys() <= found.settings
        if has_others or len(operands) not in found.operands:
            return None
        value = found.read(_Step(self._terms, node, operands, self._settings(node)))
        return value if value is not None and self._terms.shape(value) == _sizes(node) else None


class _Step(NamedTuple):
    terms: Terms
    node: Node
    operands: list[Value]
    settings: Hashable

    @property
    def attrs(self) -> dict[str, Any]:
        return dict(self.node.attrs)

    @property
    def shape(self) -> Sequence[int]:
        return _sizes(self.node)

    @property
    def op(self) -> str:
        return self.node.op.strip(_IN_PLACE)

    def number(self, key: str, default: float) -> float | None:
        value = self.node.attrs.get(key, default)
        return float(value) if type(value) in {int, float} and isfinite(value) else None  # type: ignore[arg-type]


def _literal(step: _Step) -> Value | None:
    """Return a tensor that the program spells out, which is the same for the same values."""
    name = (_VALUES, step.settings, step.node.outputs[0].dtype)
    return step.terms.leaf(name, step.shape) if _VALUES in step.attrs else None


def _permute(step: _Step) -> Value:
    (value,), attrs = step.operands, step.attrs
    order = [*range(len(value.dims))]
    if "dims" in attrs:
        order = [dim % len(order) for dim in attrs["dims"]]
    elif "dim0" in attrs:
        one, other = (attrs[key] % max(len(order), 1) for key in ("dim0", "dim1"))
        order[one], order[other] = order[other], order[one]
    else:
        order.reverse()
    return value._replace(dims=tuple(value.dims[at] for at in order))


def _add_product(step: _Step) -> Value | None:
    beta, alpha = step.number("beta", 1), step.number("alpha", 1)
    product = step.terms.matmul(*step.operands[1:])
    if beta is None or alpha is None or product is None:
        return None
    return step.terms.add([_scale(step.operands[0], beta), _scale(product, alpha)], step.shape)


def _linear(step: _Step) -> Value | None:
    value, weight, *bias = step.operands
    product = step.terms.matmul(value, weight._replace(dims=weight.dims[::-1]))
    return product and (step.terms.add([product, *bias], step.shape) if bias else product)


def _attention(step: _Step) -> Value | None:
    attrs = step.attrs
    if attrs.get("dropout_p") or attrs.get("is_causal"):
        return None
    q, k, v = step.operands
    width = step.terms.shape(q)[-1]
    scale = step.number("scale", 1) if attrs.get("scale") is not None else width**-0.5
    scores = step.terms.matmul(q, k._replace(dims=(*k.dims[:-2], k.dims[-1], k.dims[-2])))
    if scores is None or scale is None:
        return None
    weights = step.terms.apply_along("softmax", _scale(scores, scale), -1)
    return weights and step.terms.matmul(weights, v)


def _along(step: _Step) -> Value | None:
    attrs = step.attrs
    if "dim" not in attrs or attrs.get("half_to_float") or "dtype" in attrs:
        return None
    return step.terms.apply_along(step.op, step.operands[0], attrs["dim"])


def _sum(step: _Step) -> Value:
    (value,), dims = step.operands, step.attrs.get("dim")
    over = range(len(value.dims)) if dims in (None, ()) else dims if isinstance(dims, tuple) else (dims,)
    return step.terms.sum(value, over, keeps=bool(step.attrs.get("keepdim")))


def _mean(step: _Step) -> Value | None:
    count, left = prod(step.terms.shape(step.operands[0])), prod(step.shape)
    return _scale(_sum(step), left / count) if count and left else None


def _add(step: _Step) -> Value | None:
    (one, other), alpha = step.operands, step.number("alpha", 1)
    if alpha is None:
        return None
    return step.terms.add([one, _scale(other, -alpha if step.op == "sub" else alpha)], step.shape)


def _mul(step: _Step) -> Value | None:
    is_quotient, settings = step.op == "div", step.node.attrs.keys()
    if len(step.operands) > 1:
        one, two = step.operands
        return None if is_quotient or settings else step.terms.multiply(one, two, step.shape)
    other = step.number("other", 0) if settings == {"other"} else None
    if not other or not 1 / _LARGEST_FACTOR <= abs(other) <= _LARGEST_FACTOR:
        return None
    return _scale(step.operands[0], 1 / other if is_quotient else other)


def _scale(value: Value, factor: float) -> Value:
    return value._replace(factor=value.factor * factor)


class _Meaning(NamedTuple):
    """A reader of the operations of one meaning, for these numbers of operands and no other settings."""

    read: Callable[[_Step], Value | None]
    operands: range = range(1, 2)
    settings: frozenset[str] | None = None


_MEANINGS: Final = {
    "literal": _Meaning(_literal),
    "same": _Meaning(lambda step: step.operands[0], range(1, maxsize)),
    "reshape": _Meaning(lambda step: step.terms.reshape(step.operands[0], step.shape), range(1, maxsize)),
    "permute": _Meaning(_permute),
    "expand": _Meaning(lambda step: step.terms.expand(step.operands[0], step.shape)),
    "product": _Meaning(lambda step: step.terms.matmul(*step.operands), range(2, 3)),
    "added product": _Meaning(_add_product, range(3, 4)),
    "linear": _Meaning(_linear, range(2, 4)),
    "attention": _Meaning(_attention, range(3, 4), frozenset({"scale", "dropout_p", "is_causal"})),
    "along": _Meaning(_along),
    "sum": _Meaning(_sum, settings=frozenset({"dim", "keepdim"})),
    "mean": _Meaning(_mean, settings=frozenset({"dim", "keepdim"})),
    "add": _Meaning(_add, range(2, 3), frozenset({"alpha"})),
    "mul": _Meaning(_mul, range(1, 3)),
    "neg": _Meaning(lambda step: _scale(step.operands[0], -1)),
    "by element": _Meaning(
        lambda step: step.terms.apply_elementwise((step.node.op, step.settings), step.operands, step.shape),
        range(maxsize),
    ),
}
