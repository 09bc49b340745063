"""The plain text by docs/plain.ebnf and docs/plain.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

DOCS = Path(__file__).parents[2] / "docs" / "plain.md"


def read_example() -> str:
    """Return the text of the page."""
    (text,) = re.findall(r"^```text\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(text)


class Grammar:
    """An EBNF grammar without recursion, as one regular expression per rule."""

    TOKEN = re.compile(r"""\s*("[^"]*"|'[^']*'|\?[^?]*\?|[A-Za-z]\w*|[=,|\[\]{}()\-;])""")
    SPECIAL: ClassVar[Mapping[str, str]] = {
        "a printable character other than '\"' and '\\'": r'[^\n"\\]',
        "a line feed": r"\n",
        "A to Z or a to z": "[A-Za-z]",
        "0 to 9": "[0-9]",
        "0 to 9 or a to f": "[0-9a-f]",
    }

    def __init__(self, source: str) -> None:
        self._rules: dict[str, list[str]] = {}
        self._expressions: dict[str, str] = {}
        tokens = []
        place = 0
        while source[place:].strip():
            match = self.TOKEN.match(source, place)
            assert match is not None, source[place:]
            tokens.append(match[1])
            place = match.end()
        while tokens:
            name, equals, *rest = tokens
            assert equals == "="
            end = rest.index(";")
            self._rules[name], tokens = rest[:end], rest[end + 1 :]

    def expression(self, rule: str) -> str:
        if rule not in self._expressions:
            tokens = list(self._rules[rule])
            self._expressions[rule] = self._choice(tokens)
            assert not tokens
        return self._expressions[rule]

    def _choice(self, tokens: list[str]) -> str:
        choices = [self._sequence(tokens)]
        while tokens[:1] == ["|"]:
            tokens.pop(0)
            choices.append(self._sequence(tokens))
        return f"(?:{'|'.join(choices)})"

    def _sequence(self, tokens: list[str]) -> str:
        terms = [self._term(tokens)]
        while tokens[:1] == [","]:
            tokens.pop(0)
            terms.append(self._term(tokens))
        return "".join(terms)

    def _term(self, tokens: list[str]) -> str:
        term = self._factor(tokens)
        if tokens[:1] == ["-"]:
            tokens.pop(0)
            # The grammar excepts only whole words that a space follows.
            return f"(?!{self._factor(tokens)} ){term}"
        return term

    def _factor(self, tokens: list[str]) -> str:
        token = tokens.pop(0)
        if token[0] in "\"'":
            return re.escape(token[1:-1])
        if token[0] == "?":
            return self.SPECIAL[token[1:-1].strip()]
        if token in "[{(":
            inner = self._choice(tokens)
            assert tokens.pop(0) == {"[": "]", "{": "}", "(": ")"}[token]
            return inner + {"[": "?", "{": "*", "(": ""}[token]
        return self.expression(token)


GRAMMAR = re.compile(Grammar(DOCS.with_suffix(".ebnf").read_text(encoding="utf-8")).expression("text"))


def follows_the_grammar(text: str) -> bool:
    return GRAMMAR.fullmatch(text) is not None
