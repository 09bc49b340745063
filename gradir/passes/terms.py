"""Parse terms and rewrite rules, and match them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gradir.vocabulary.shared import COMMUTATIVE

if TYPE_CHECKING:
    from gradir.passes.translating import Word

_TOKEN: Final = re.compile(r"\s*([A-Za-z0-9_.]+|[-~%@?:,()\[\]=])")
# A match skips at most this many factors and masks, so that a long chain of them takes linear time.
_MOST_SKIPPED: Final = 8
# A plug-in's vocabulary may have any text, and the parser is recursive.
_DEPTH: Final = 16
_FACTORS: Final = frozenset({"div", "mul"})
_MASKS: Final = frozenset({"add", "where"})


class Slot(NamedTuple):
    """One output of a word, by the word's place in the list."""

    word: int
    output_nr: int = 0


class Term(NamedTuple):
    """A pattern, or its replacement.

    ``name`` is the operation of a ``word``, the variable of a ``value``, or the number of a ``constant``. ``around``
    is ``~`` if factors may surround it, and ``%`` if also masks and added values may.
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
    """Parse a term."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()):
        raise ValueError(f"{text!r} is not a term")
    reader = _Reader(tokens)
    term = reader.read_term(_DEPTH)
    if reader.next():
        raise ValueError(f"{text!r} continues after its term")
    return term


@lru_cache(maxsize=512)
def parse_condition(key: str) -> tuple[str, Mapping[str, str]]:
    """Return the operation and attribute values in a key of `Vocabulary.shared`."""
    op, _, rest = key.partition(".")
    return op, dict(part.partition("=")[::2] for part in rest.split(",") if part)


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens[::-1]

    def next(self) -> str:
        """Return the next token, or an empty text at the end."""
        return self._tokens[-1] if self._tokens else ""

    def take(self) -> str:
        if not self._tokens:
            raise ValueError("a term ends too early")
        return self._tokens.pop()

    def read_term(self, depth: int) -> Term:
        if not depth:
            raise ValueError("a term is nested too deep")
        first = self.take()
        if first == "-":
            return Term("constant")
        if first == "@":
            return self.read_term(depth - 1)._replace(is_parameter=True)
        if first in "~%":
            return self.read_term(depth - 1)._replace(around=first)
        following = self.next()
        if following in ("(", "["):
            settings = tuple(self._read_settings())
            return Term("word", first, tuple(self._read_inputs(depth)), settings)
        if following == ":":
            self.take()
            return self.read_term(depth - 1)._replace(alias=first)
        if following == "?":
            self.take()
        return Term("value", first, is_optional=following == "?")

    def _read_settings(self) -> Iterator[tuple[str, str]]:
        end = "[" if self.next() == "[" else ""
        while end and end != "]":
            self.take()
            key, _, value = self.take(), self.take(), self.take()
            yield key, value
            end = self.next()
        if end:
            self.take()

    def _read_inputs(self, depth: int) -> Iterator[Term]:
        end = self.take()
        while end != ")":
            yield self.read_term(depth - 1)
            end = self.take()
            if end not in ",)":
                raise ValueError(f"inputs end in {end!r}")


class Matcher:
    """Match patterns in a list of words, which may grow."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words

    def match(self, term: Term, at: Slot | None, constant: float | None, found: Found) -> Iterator[Found]:
        """Return the few matches of a pattern at a place, or at an empty slot, that extend the one ``found`` so far."""
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
        for place, skipped in reversed([*self._skip(at, masks=term.around == "%")]):
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
