"""Terms of words, and rules that replace one by another: how they are written, and what they match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple, Protocol

__all__ = ["Found", "Rule", "Slot", "Term", "Words", "condition_of", "matches", "parsed_rule", "parsed_term"]

_TOKEN: Final = re.compile(r"\s*([A-Za-z0-9_.]+|[-~%@?:,()\[\]=])")
_MOST_BEHIND: Final = 8
"""No more factors and masks are looked behind, so that a long chain of them costs no more than its length."""

_DEPTH: Final = 16


class Slot(NamedTuple):
    """One output of a word, by its place in the list of words."""

    word: int
    output_nr: int = 0


class Term(NamedTuple):
    """A pattern, or what replaces one.

    ``name`` is the word of a ``word``, the variable of a ``value``, the number of a ``constant`` (nothing for any);
    ``behind`` says what may stand around it: ``~`` factors, ``%`` masks and what is added, too.
    """

    kind: Literal["word", "value", "constant"]
    name: str = ""
    inputs: tuple[Term, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    behind: str = ""
    called: str = ""
    is_parameter: bool = False
    is_optional: bool = False


class Rule(NamedTuple):
    """What to look for, what to put in its place, and the condition; see `gradir.vocabulary.shared`."""

    pattern: Term
    replacement: Term
    condition: str = ""


class Found(NamedTuple):
    """What a pattern matched: values by variable, and the words that it went through."""

    values: Mapping[str, Slot | None] = {}
    words: tuple[int, ...] = ()


class Words(Protocol):
    """What a pattern is looked for in."""

    def op(self, word: int) -> str:
        """The word; nothing for a tensor that nothing computes."""

    def inputs(self, word: int) -> tuple[Slot | None, ...]:
        """Its inputs by slot."""

    def constant(self, word: int, slot: int) -> float | None:
        """The constant that an empty slot is known to hold."""


@lru_cache(maxsize=512)
def parsed_rule(text: str) -> Rule:
    """A rule as it is written.

    Raises:
        ValueError: it is written in another way.

    >>> rule = parsed_rule("mul(x, sigmoid(x)) -> silu(x)")
    >>> rule.pattern.name, [each.name for each in rule.pattern.inputs], rule.replacement.name
    ('mul', ['x', 'sigmoid'], 'silu')
    """
    pattern, arrow, rest = text.partition("->")
    replacement, _, condition = rest.partition(" if ")
    if not arrow:
        raise ValueError(f"{text!r} has no '->'")
    return Rule(parsed_term(pattern), parsed_term(replacement), condition.strip())


@lru_cache(maxsize=512)
def parsed_term(text: str) -> Term:
    """A term as it is written.

    Raises:
        ValueError: it is written in another way.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()):
        raise ValueError(f"{text!r} is no term")
    term, end = _term(tokens, 0, _DEPTH)
    if end != len(tokens):
        raise ValueError(f"{text!r} goes on after its term")
    return term


@lru_cache(maxsize=512)
def condition_of(key: str) -> tuple[str, Mapping[str, str]]:
    """An operation and the values of attributes that a key of `Vocabulary.shared` asks for.

    >>> condition_of("clamp.max=None,min=0")
    ('clamp', {'max': 'None', 'min': '0'})
    """
    op, _, rest = key.partition(".")
    return op, dict(part.partition("=")[::2] for part in rest.split(",") if part)


def _term(tokens: list[str], at: int, depth: int) -> tuple[Term, int]:
    if at >= len(tokens) or not depth:
        raise ValueError("a term ends too early, or is nested too deep")
    token = tokens[at]
    if token in "~%":
        term, end = _term(tokens, at + 1, depth - 1)
        return term._replace(behind=token), end
    if token == "-":
        return Term("constant"), at + 1
    if token == "@":
        term, end = _term(tokens, at + 1, depth - 1)
        return term._replace(is_parameter=True), end
    following = tokens[at + 1] if at + 1 < len(tokens) else ""
    if following == ":":
        term, end = _term(tokens, at + 2, depth - 1)
        return term._replace(called=token), end
    if following == "?":
        return Term("value", token, is_optional=True), at + 2
    if following in ("(", "["):
        return _word(tokens, at, depth)
    # In a pattern a number is a constant; in what is made of an operation it is a slot of that.
    return Term("value", token), at + 1


def _word(tokens: list[str], at: int, depth: int) -> tuple[Term, int]:
    settings: list[tuple[str, str]] = []
    name, at = tokens[at], at + 1
    if tokens[at] == "[":
        end = tokens.index("]", at)
        settings = [(tokens[here], tokens[here + 2]) for here in range(at + 1, end, 4)]
        at = end + 1
    inputs: list[Term] = []
    if at >= len(tokens) or tokens[at] != "(":
        raise ValueError(f"{name} has no inputs")
    while tokens[at] != ")":
        term, at = _term(tokens, at + 1, depth - 1)
        inputs.append(term)
        if at >= len(tokens) or tokens[at] not in ",)":
            raise ValueError(f"the inputs of {name} do not end")
    return Term("word", name, tuple(inputs), tuple(settings)), at + 1


def matches(term: Term, words: Words, at: Slot | None, commutative: Callable[[str], bool]) -> Iterator[Found]:
    """All that a pattern matches at a place, at most a few; the depth is that of the pattern."""
    yield from _matches(term, words, at, None, commutative, Found())


def _matches(
    term: Term, words: Words, at: Slot | None, constant: float | None, commutative: Callable[[str], bool], found: Found
) -> Iterator[Found]:
    if at is None:
        if term.kind == "constant" or term.is_optional:
            yield _with(found, term.name, None) if term.is_optional else found
        elif term.kind == "value" and term.name.isdecimal() and constant == float(term.name):
            yield found
        return
    if term.kind == "constant" or (term.kind == "value" and term.name.isdecimal()):
        return
    if term.behind:
        # The innermost first: what is left of a factor has to be more than a factor.
        for place, through in reversed([*_behind(words, at, masks=term.behind == "%")]):
            gone = found._replace(words=(*found.words, *through))
            yield from _matches(term._replace(behind=""), words, place, None, commutative, gone)
        return
    if term.kind == "value":
        if term.is_parameter and words.op(at.word):
            return
        if term.name not in found.values:
            yield _with(found, term.name, at)
        elif found.values[term.name] == at:
            yield found
        return
    if words.op(at.word) != term.name or at.output_nr:
        return
    yield from _inputs_match(term, words, at.word, commutative, found)


def _inputs_match(
    term: Term, words: Words, word: int, commutative: Callable[[str], bool], found: Found
) -> Iterator[Found]:
    inputs = words.inputs(word)
    if len(inputs) != len(term.inputs):
        return
    found = found._replace(words=(*found.words, word))
    if term.called:
        found = _with(found, term.called, Slot(word))
    slots = range(len(inputs))
    for order in (slots, slots[::-1]) if len(inputs) == 2 and commutative(term.name) else (slots,):
        partial = [found]
        for pattern, slot in zip(term.inputs, order, strict=True):
            constant = words.constant(word, slot) if inputs[slot] is None else None
            partial = [
                further
                for each in partial
                for further in _matches(pattern, words, inputs[slot], constant, commutative, each)
            ]
            if not partial:
                break
        yield from partial


def _behind(words: Words, at: Slot, *, masks: bool) -> Iterator[tuple[Slot, tuple[int, ...]]]:
    """A value and what it is made of by factors (and masks) alone, each with what was gone through."""
    through: tuple[int, ...] = ()
    yield at, through
    around = {"mul", "div", "where", "add"} if masks else {"mul", "div"}
    for _ in range(_MOST_BEHIND):
        inputs = words.inputs(at.word)
        if at.output_nr or words.op(at.word) not in around or len(inputs) != 2 or inputs[1] is not None:
            return
        source = inputs[0]
        if source is None:
            return
        through = (*through, at.word)
        at = source
        yield at, through


def _with(found: Found, name: str, at: Slot | None) -> Found:
    return found._replace(values={**found.values, name: at})
