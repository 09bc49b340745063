"""The plain text by docs/plain.ebnf and docs/plain.md, and a reader that shares no code with the exporter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from gradir.ir import (
    AttrValue,
    Cut,
    Graph,
    Node,
    NonFinite,
    Ref,
    Saved,
    Scope,
    Source,
    TensorMeta,
)
from gradir.ir.model import Shape

__all__ = ["DOCS", "Reader", "follows_the_grammar", "shown"]

DOCS = Path(__file__).parents[2] / "docs" / "plain.md"


def shown() -> str:
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


class Reader:
    """Reads plain text back: written from the grammar alone, so that nothing the text lacks can come back."""

    def __init__(self, text: str) -> None:
        head, *self._lines, last = text.split("\n")
        assert (head, last) == ("gradir plain 1", "")
        self._rest = ""

    def graph(self) -> Graph:
        scopes: list[Scope] = []
        cuts: list[Cut] = []
        nodes: list[Node] = []
        for head, facts in self._blocks():
            if head.startswith("scope "):
                scopes.append(self._scope(head, facts))
            elif head.startswith("cut "):
                cuts.append(self._cut(head, facts))
            else:
                nodes.append(self._node(head, facts))
        return Graph.of(nodes, scopes, cuts)

    def _blocks(self) -> Iterator[tuple[str, list[str]]]:
        blocks: list[tuple[str, list[str]]] = []
        for line in self._lines:
            if line.startswith("    "):
                blocks[-1][1].append(line[4:])
            else:
                blocks.append((line, []))
        yield from blocks

    def _take(self, literal: str) -> bool:
        found = self._rest.startswith(literal)
        self._rest = self._rest[len(literal) * found :]
        return found

    def _match(self, pattern: str) -> str:
        match = re.match(pattern, self._rest)
        assert match is not None, self._rest
        self._rest = self._rest[match.end() :]
        return match[0]

    def _name(self) -> str:
        return self._string() if self._rest.startswith('"') else self._match(r"[A-Za-z0-9_.:/%~+*@-]+")

    def _string(self) -> str:
        return str(json.loads(self._match(r'"(?:[^"\\]|\\.)*"')))

    def _integer(self) -> int:
        return int(self._match(r"-?\d+"))

    def _output(self) -> Ref:
        name, number = self._name(), 0
        if self._take("["):
            number = self._integer()
            assert self._take("]")
        return Ref(name, number)

    def _tensor(self) -> TensorMeta:
        dtype = None if self._take("?") else self._name()
        assert self._take("[")
        shape = None if self._take("?]") else self._sizes()
        device = (None if self._take("?") else self._name()) if self._take(" device ") else "cpu"
        layout = self._name() if self._take(" layout ") else "strided"
        placements = self._texts() if self._take(" placements ") else ()
        return TensorMeta(dtype, shape, device, layout, placements)

    def _texts(self) -> tuple[str, ...]:
        return tuple(json.loads(self._match(r'\[(?:"(?:[^"\\]|\\.)*",?)*\]')))

    def _sizes(self) -> Shape:
        sizes: list[int | str] = []
        while not self._take("]"):
            self._take(", ")
            sizes.append(self._integer() if self._rest[0] in "-0123456789" else self._name())
        return tuple(sizes)

    def _value(self) -> AttrValue:
        if self._take("["):
            found: list[AttrValue] = []
            while not self._take("]"):
                self._take(", ")
                found.append(self._value())
            return tuple(found)  # type: ignore[arg-type]
        if self._rest.startswith('"'):
            return self._string()
        word = self._match(r"[^,\]]+")
        if word in {"nan", "inf", "-inf"}:
            return NonFinite(word)  # type: ignore[arg-type]
        value: AttrValue = json.loads(word)
        return value

    def _scope(self, head: str, facts: list[str]) -> Scope:
        self._rest = head.removeprefix("scope ")
        path = self._name()
        fields: dict[str, object] = {"class_name": self._name()} if self._take(" ") else {}
        for fact in facts:
            word, _, self._rest = fact.partition(" ")
            if word == "mode":
                fields["training"] = {"train": True, "eval": False}[self._name()]
            else:
                fields[word] = self._string() if word == "detail" else self._integer()
        return Scope(path, **fields)  # type: ignore[arg-type]

    def _cut(self, head: str, facts: list[str]) -> Cut:
        self._rest = head.removeprefix("cut ")
        kind, names, fields = self._name(), [], {}
        while self._take(" "):
            names.append(self._name())
        for fact in facts:
            word, _, self._rest = fact.partition(" ")
            if word in {"source", "via"}:
                fields[word] = self._source()
            elif word == "slot":
                fields[word] = self._integer()
            else:
                fields[word] = self._tensor() if word == "tensor" else self._name()
            assert not self._rest
        return Cut(kind, tuple(names), **fields)  # type: ignore[arg-type]

    def _node(self, head: str, facts: list[str]) -> Node:
        self._rest = head
        role = self._name()
        assert self._take(" ")
        node_id, op, inputs = self._name(), "", []
        if self._take(" = "):
            op = "" if self._rest.startswith("(") else self._name()
            assert self._take("(")
            while not self._take(")"):
                self._take(", ")
                inputs.append(None if self._take("-") else self._output())
        assert not self._rest
        node = Node(node_id, role, op, inputs=tuple(inputs))
        for fact in facts:
            node = msgspec.structs.replace(node, **self._node_fact(node, fact))
            assert not self._rest
        return node

    def _node_fact(self, node: Node, fact: str) -> dict[str, object]:
        word, _, self._rest = fact.partition(" ")
        if word in {"native", "scope", "base"}:
            return {word: self._name()}
        if word == "name":
            return {"names": (*node.names, self._name())}
        if word == "out":
            return {"outputs": (*node.outputs, self._tensor())}
        if word in {"attr", "ext"}:
            key = self._name()
            assert self._take(" = ")
            field = "attrs" if word == "attr" else "ext"
            return {field: {**getattr(node, field), key: self._value()}}
        if word == "saved":
            return {"saved": (*node.saved, self._saved())}
        if word == "opaque":
            return {"opaque": True}
        if word == "kinds":
            return {"kinds": self._texts()}
        assert word == "source"
        return {"source": self._source()}

    def _source(self) -> Source:
        file = self._name()
        assert self._take(" line ")
        return Source(file, self._integer(), self._name() if self._take(" in ") else "")

    def _saved(self) -> Saved:
        slot = self._name()
        assert self._take(" ")
        tensor = self._tensor()
        return Saved(
            slot,
            tensor.dtype,
            tensor.shape,
            self._integer() if self._take(" bytes ") else None,
            self._output() if self._take(" of ") else None,
            self._name() if self._take(" storage ") else "",
            self._name() if self._take(" state ") else "held",
        )
