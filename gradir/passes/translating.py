"""Translate operations of a framework into shared terms, and join several into one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from gradir.ir import Node, NonFinite, TensorMeta
from gradir.ir.memo import group_by_key
from gradir.ir.model import AttrValue, Shape
from gradir.ir.totals import count_elements
from gradir.passes.rules import Found, Matcher, Rule, Slot, Term, parse_condition, parse_rule, parse_term
from gradir.vocabulary import Vocabulary
from gradir.vocabulary.shared import COMMUTATIVE, KEEPS_DIMENSIONS, PRODUCT, RULES, TWO_SIDED

# A bound for a faulty rule; correct rules end long before.
_MOST_TURNS: Final = 8
_MOST_NATIVE: Final = 6
# A bound for a chain of factors, so that it takes linear time.
_MOST_PARTS: Final = 32
# Words of terms whose first input has the shape of their output.
_BY_ELEMENT: Final = frozenset({"add", "neg", "sqrt", "square", "sub"})


class Word(NamedTuple):
    """A word, its inputs, and the node of the graph that it represents.

    ``parts`` are the nodes of the framework's operations, ``axes`` the summed dimensions, ``operands`` the sizes of a
    product's operands, and ``constants`` the numbers in empty slots.
    """

    op: str
    inputs: tuple[Slot | None, ...]
    node: Node
    outputs: tuple[TensorMeta, ...] = ()
    parts: tuple[Node, ...] = ()
    settings: tuple[tuple[str, AttrValue], ...] = ()
    axes: str = ""
    operands: tuple[tuple[int, ...] | None, ...] = ()
    constants: tuple[float | None, ...] = ()

    @property
    def native(self) -> str:
        """Return the framework's operations, each once."""
        names = list(dict.fromkeys(part.op for part in self.parts))
        return ", ".join([*names[:_MOST_NATIVE], "…"] if len(names) > _MOST_NATIVE else names)

    def with_slots(self, order: Sequence[int]) -> Word:
        """Return the word with its inputs and their properties in another order."""
        return self._replace(
            inputs=tuple([self.inputs[at] for at in order]),
            operands=tuple([self.operands[at] for at in order if len(self.operands) == len(order)]),
            constants=tuple([self.constants[at] for at in order if len(self.constants) == len(order)]),
        )


class Translation:
    """Create words, each after all its inputs."""

    def __init__(self, words: Vocabulary) -> None:
        self.words: list[Word] = []
        self._matcher = Matcher(self.words)
        self._literal = words.literal
        self._contraction = words.contraction
        self._axes = words.axes
        self._shared: defaultdict[str, list[tuple[Mapping[str, str], str]]] = defaultdict(list)
        for key, term in words.shared.items():
            op, condition = parse_condition(key)
            self._shared[op].append((condition, term))
        for found in self._shared.values():
            # The entry with the most conditions wins.
            found.sort(key=lambda pair: -len(pair[0]))
        self._settings: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for key, name in words.settings.items():
            op, _, attribute = key.partition(".")
            self._settings[op].append((attribute, name))

    def add_unchanged(self, node: Node, inputs: tuple[Slot | None, ...], part: Node | None = None) -> Slot:
        """Add a node under its own name."""
        return self._add(Word(node.op, inputs, node, node.outputs, (part or node,) if node.op else ()))

    def translate(self, node: Node, inputs: tuple[Slot | None, ...], nodes: Mapping[str, Node]) -> Slot:
        """Translate an operation, together with its input if both are one word."""
        word = Word(
            node.op,
            inputs,
            node,
            node.outputs,
            (node,),
            tuple((name, node.attrs[key]) for key, name in self._settings.get(node.op, ()) if key in node.attrs),
            _describe_axes(node.attrs.get(self._axes), _input_shapes(node, nodes)),
            _operand_sizes(node.attrs[self._contraction], _input_shapes(node, nodes))
            if self._contraction in node.attrs
            else (),
            tuple(self._constant(node, slot) for slot in range(len(inputs))) if None in inputs else (),
        )
        slot = self._apply_vocabulary(word)
        for _ in range(_MOST_TURNS):
            replaced = self._apply_rule(slot)
            if replaced is None:
                break
            slot = replaced
        return slot

    def _constant(self, node: Node, slot: int) -> float | None:
        value = node.attrs.get(self._literal.format(slot)) if self._literal else None
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def _apply_vocabulary(self, word: Word) -> Slot:
        for condition, text in self._shared.get(word.op, ()):
            if not all(_text(word.node.attrs.get(key)) == value for key, value in condition.items()):
                continue
            if "(" not in text:
                return self._add(word._replace(op=text))
            values = {str(slot): value for slot, value in enumerate(word.inputs)}
            return self._add_replacement(parse_term(text), Found(values), word)
        return self._add(word)

    def _apply_rule(self, slot: Slot) -> Slot | None:
        word = self.words[slot.word]
        for rule in _parse_rules().get(word.op, ()) if not slot.output_nr else ():
            for found in self._matcher.match(rule.pattern, slot, None, Found()):
                if self._meets(rule.condition, word, found):
                    parts = {part.id: part for each in sorted(set(found.words)) for part in self.words[each].parts}
                    axes = next((axes for each in found.words if (axes := self.words[each].axes)), "")
                    blank = Word("", (), word.node, word.outputs, tuple(parts.values())[:_MOST_PARTS], (), axes)
                    return self._add_replacement(rule.replacement, found, blank)
        return None

    def _meets(self, condition: str, word: Word, found: Found) -> bool:
        if condition == "mean":
            return self._is_mean(word, found)
        return not condition or condition in {self.words[each].axes for each in found.words}

    def _is_mean(self, word: Word, found: Found) -> bool:
        (sum_,) = (slot.word for name, slot in found.values.items() if name == "s" and slot is not None)
        source = found.values["x"]
        constant = next((each for each in word.constants if each is not None), None)
        if constant is None or source is None:
            return False
        tensors = (self.words[source.word].outputs[source.output_nr : source.output_nr + 1], self.words[sum_].outputs)
        before, after = (count_elements(found[0].shape) if found else None for found in tensors)
        if not before or not after:
            return False
        wanted = before / after if word.op == "div" else after / before
        return abs(constant - wanted) <= 1e-6 * wanted

    def _add_replacement(self, term: Term, found: Found, word: Word) -> Slot:
        slot = self._add_term(term, found, word, word.outputs)
        # The term may be a value of an empty slot.
        return self._add(word) if slot is None else slot

    def _add_term(self, term: Term, found: Found, word: Word, outputs: tuple[TensorMeta, ...]) -> Slot | None:
        if term.kind != "word":
            return found.values.get(term.name) if term.kind == "value" else None
        dtype = word.outputs[0].dtype if word.outputs else None
        below = outputs if term.name in _BY_ELEMENT else (TensorMeta(dtype),)
        inputs = tuple([self._add_term(each, found, word, below) for each in term.inputs])
        return self._add(
            Word(term.name, inputs, word.node, outputs, word.parts, (*word.settings, *term.settings), word.axes)
        )

    def _add(self, word: Word) -> Slot:
        if word.op in TWO_SIDED and len(word.inputs) == 1:
            word = word._replace(inputs=(*word.inputs, None))
        # The constant comes last, so that a rule needs one form only.
        if word.op in COMMUTATIVE | {"where"} and len(word.inputs) == 2 and word.inputs[0] is None:
            word = word.with_slots((1, 0))
        self.words.append(word)
        return Slot(len(self.words) - 1)


@cache
def _parse_rules() -> Mapping[str, tuple[Rule, ...]]:
    found = group_by_key((rule.pattern.name, rule) for rule in map(parse_rule, RULES))
    return {op: tuple(rules) for op, rules in found.items()}


def _input_shapes(node: Node, nodes: Mapping[str, Node]) -> list[Shape | None]:
    found = []
    for ref in node.inputs:
        outputs = nodes[ref.id].outputs[ref.output_nr : ref.output_nr + 1] if ref is not None else ()
        found.append(outputs[0].shape if outputs else None)
    return found


def _describe_axes(value: AttrValue, shapes: Sequence[Shape | None]) -> str:
    axes = value if isinstance(value, tuple) else (value,)
    if not (axes and shapes and shapes[0]) or not all(type(axis) is int for axis in axes):
        return ""
    dimensions = len(shapes[0])
    summed = {axis % dimensions for axis in axes if isinstance(axis, int)}
    if dimensions - 1 in summed and len(summed) < dimensions:
        return "last" if len(summed) == dimensions - min(summed) else "some"
    return "lead" if dimensions - 1 not in summed else "all"


def _text(value: AttrValue) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.float if isinstance(value, NonFinite) else str(value)


def flatten_shape(shape: Shape | None) -> Shape | None:
    """Return a shape of one dimension with as many elements."""
    count = count_elements(shape)
    return None if count is None else (count,)


def _operand_sizes(value: AttrValue, shapes: Sequence[Shape | None]) -> tuple[tuple[int, ...] | None, ...]:
    """Return the summed, shared and other size of both operands of a product."""
    # A file may have any value in this attribute.
    axes: Any = value
    try:
        summed, together = axes
        return tuple([_group_sizes(*each) for each in zip(summed, together, shapes, strict=True)])
    except (TypeError, ValueError, IndexError):
        return (None, None)


def _group_sizes(summed: Sequence[int], together: Sequence[int], shape: Shape | None) -> tuple[int, ...] | None:
    if shape is None or count_elements(shape) is None:
        return None
    rest = [at for at in range(len(shape)) if at not in summed and at not in together]
    groups = ([shape[at] for at in summed], [shape[at] for at in together], [shape[at] for at in rest])
    return tuple(count_elements(tuple(group)) or 0 for group in groups)


def parameter_shape(shape: Shape | None, users: Sequence[tuple[Word, int]]) -> Shape | None:
    """Return a parameter's shape without the order of dimensions that its framework chose.

    ``users`` are its consumers, each with the slot. Dimensions that a product sums together count as one.
    """
    if shape is None:
        return None
    known = {word.operands[slot] for word, slot in users if word.op == PRODUCT and slot < len(word.operands)}
    sizes = known.pop() if len(known) == 1 and all(word.op == PRODUCT for word, _ in users) else None
    if sizes is not None and count_elements(sizes) == count_elements(shape):
        return tuple(sorted(size for size in sizes if size != 1)) or (1,)
    if users and not any(word.op in KEEPS_DIMENSIONS for word, _ in users):
        return flatten_shape(shape) or shape
    # Numbers come before symbols, which do not compare with them.
    return tuple(sorted((size for size in shape if size != 1), key=lambda size: (isinstance(size, str), size))) or (1,)
