"""Parse rewrite rules and their terms, and match them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gradir.vocabulary.shared import COMMUTATIVE

if TYPE_CHECKING:
    from gradir.passes.translating import Word

# A match skips at most this many factors and masks, so that a long chain of them takes linear time.
_MOST_SKIPPED: Final = 8
_CONSTANT: Final = "_"
_FACTORS: Final = frozenset({"div", "mul"})
_MASKS: Final = frozenset({"add", "where"})


class Slot(NamedTuple):
    """One output of a word, by the word's place in the list."""

    word: int
    output_nr: int = 0


class Term(NamedTuple):
    """A pattern, or its replacement.

    ``name`` is the operation of a ``word``, or the variable or input slot of a ``value``. ``around`` is ``~`` if
    factors may surround it, and ``+`` if also masks and added values may.
    """

    kind: Literal["word", "value", "constant"]
    name: str = ""
    inputs: tuple[Term, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    around: str = ""
    alias: str = ""
    is_parameter: bool = False
    is_optional: bool = False


class Rule(NamedTuple):
    """A pattern, its replacement, and a condition; see `gradir.vocabulary.shared`."""

    pattern: Term
    replacement: Term
    condition: str = ""


class Found(NamedTuple):
    """The match of a pattern: values by variable, and the matched words."""

    values: Mapping[str, Slot | None] = {}
    words: tuple[int, ...] = ()


@lru_cache(maxsize=512)
def parse_rule(text: str) -> Rule:
    """Parse a rule.

    >>> rule = parse_rule("mul(x, sigmoid(x)) -> silu(x)")
    >>> rule.pattern.name, [each.name for each in rule.pattern.inputs], rule.replacement.name
    ('mul', ['x', 'sigmoid'], 'silu')
    """
    pattern, arrow, rest = text.partition("->")
    replacement, _, condition = rest.partition(" if ")
    if not arrow:
        raise ValueError(f"{text!r} has no '->'")
    return Rule(parse_term(pattern), parse_term(replacement), condition.strip())


@lru_cache(maxsize=512)
def parse_term(text: str) -> Term:
    """Parse a term, which is a Python expression."""
    try:
        return _read_term(ast.parse(text.strip(), mode="eval").body)
    except (MemoryError, RecursionError, SyntaxError, ValueError) as error:
        raise ValueError(f"{text!r} is not a term") from error


def _read_term(node: ast.expr) -> Term:
    match node:
        case ast.Name(name):
            return Term("constant") if name == _CONSTANT else Term("value", name, is_parameter=name.isupper())
        case ast.Constant(int(slot)):
            return Term("value", str(slot))
        case ast.List([ast.Name(name)]):
            return Term("value", name, is_optional=True)
        case ast.NamedExpr(ast.Name(alias), inner):
            return _read_term(inner)._replace(alias=alias)
        case ast.UnaryOp(ast.Invert() | ast.UAdd() as sign, inner):
            return _read_term(inner)._replace(around="~" if isinstance(sign, ast.Invert) else "+")
        case ast.Call(operation, inputs, keywords):
            settings = tuple((str(each.arg), ast.unparse(each.value)) for each in keywords)
            return Term("word", ast.unparse(operation), tuple(map(_read_term, inputs)), settings)
    raise ValueError(ast.unparse(node))


@lru_cache(maxsize=512)
def parse_condition(key: str) -> tuple[str, Mapping[str, str]]:
    """Return the operation and attribute values in a key of `Vocabulary.shared`."""
    op, _, rest = key.partition(".")
    return op, dict(part.partition("=")[::2] for part in rest.split(",") if part)


class Matcher:
    """Match patterns in a list of words, which may grow."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words

    def match(self, term: Term, at: Slot | None, constant: float | None, found: Found) -> Iterator[Found]:
        """Return the few matches of a pattern at a place or an empty slot that extend ``found``."""
        if at is None:
            return self._match_nothing(term, constant, found)
        if term.around:
            return self._match_around(term, at, found)
        if term.kind == "word":
            is_it = self._words[at.word].op == term.name and not at.output_nr
            return self._match_word(term, at.word, found) if is_it else iter(())
        return self._match_value(term, at, found)

    @staticmethod
    def _match_nothing(term: Term, constant: float | None, found: Found) -> Iterator[Found]:
        if term.is_optional:
            yield _bind(found, term.name, None)
        elif term.kind == "constant" or (_is_number(term) and constant == float(term.name)):
            yield found

    def _match_value(self, term: Term, at: Slot, found: Found) -> Iterator[Found]:
        if term.kind == "constant" or _is_number(term) or (term.is_parameter and self._words[at.word].op):
            return
        if term.name not in found.values:
            yield _bind(found, term.name, at)
        elif found.values[term.name] == at:
            yield found

    def _match_around(self, term: Term, at: Slot, found: Found) -> Iterator[Found]:
        inner = term._replace(around="")
        # The place after the most factors comes first, so that a rule includes them all.
        for place, skipped in reversed([*self._skip(at, masks=term.around == "+")]):
            yield from self.match(inner, place, None, found._replace(words=(*found.words, *skipped)))

    def _match_word(self, term: Term, word: int, found: Found) -> Iterator[Found]:
        inputs, constants = self._words[word].inputs, self._words[word].constants
        if len(inputs) != len(term.inputs):
            return
        found = found._replace(words=(*found.words, word))
        if term.alias:
            found = _bind(found, term.alias, Slot(word))
        slots = range(len(inputs))
        for order in (slots, slots[::-1]) if len(inputs) == 2 and term.name in COMMUTATIVE else (slots,):
            partial = [found]
            for pattern, slot in zip(term.inputs, order, strict=True):
                constant = constants[slot] if inputs[slot] is None and slot < len(constants) else None
                partial = [more for each in partial for more in self.match(pattern, inputs[slot], constant, each)]
                if not partial:
                    break
            yield from partial

    def _skip(self, at: Slot, *, masks: bool) -> Iterator[tuple[Slot, tuple[int, ...]]]:
        """Yield a place, and the places before its factors and masks, each with the skipped words."""
        skipped: tuple[int, ...] = ()
        yield at, skipped
        operations = _FACTORS | _MASKS if masks else _FACTORS
        for _ in range(_MOST_SKIPPED):
            inputs = self._words[at.word].inputs
            if at.output_nr or self._words[at.word].op not in operations or len(inputs) != 2:
                return
            source, other = inputs
            if source is None or other is not None:
                return
            skipped = (*skipped, at.word)
            at = source
            yield at, skipped


def _is_number(term: Term) -> bool:
    return term.kind == "value" and term.name.isdecimal()


def _bind(found: Found, name: str, at: Slot | None) -> Found:
    return found._replace(values={**found.values, name: at})
