from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from gradir_exporters.plain import PlainExporter
from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs

import gradir
from gradir.ir import (
    AttrValue,
    Builder,
    Cut,
    Graph,
    Node,
    NonFinite,
    Producer,
    Ref,
    Saved,
    Scope,
    Source,
    TensorMeta,
)
from gradir.ir.model import Shape
from gradir.protocols import NoOptions

DOCS = Path(__file__).parents[1] / "docs" / "plain.md"


def plain(graph: Graph) -> str:
    return PlainExporter().export(graph, NoOptions())


def fenced(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def content(graph: Graph) -> bytes:
    """What a graph says, its producer apart, in the exact types of its values."""
    return gradir.dumps(msgspec.structs.replace(graph, producer=Producer()))


def replaced(graph: Graph, node_id: str, **fields: object) -> Graph:
    nodes = dict(graph.nodes)
    nodes[node_id] = msgspec.structs.replace(nodes[node_id], **fields)
    return msgspec.structs.replace(graph, nodes=nodes)


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


GRAMMAR = re.compile(Grammar(fenced("ebnf")).expression("text"))


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
        device = self._name() if self._take(" device ") else "cpu"
        layout = self._name() if self._take(" layout ") else "strided"
        return TensorMeta(dtype, shape, device, layout)

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
            fields[word] = self._name() if word == "scope" else self._tensor()
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
        assert word == "source"
        file = self._name()
        assert self._take(" line ")
        return {"source": Source(file, self._integer(), self._name() if self._take(" in ") else "")}

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


def test_everything_has_a_golden(golden: Callable[[str, str], None]) -> None:
    golden("plain/everything.txt", plain(everything()))


def test_it_is_registered_without_options() -> None:
    assert gradir.export(everything(), "plain") == plain(everything())
    with pytest.raises(gradir.ExportError, match="no options"):
        gradir.export(everything(), "plain", deep=1)


def test_the_example_of_the_docs_is_what_gradir_writes() -> None:
    b = Builder()
    x = b.tensor("x", TensorMeta("float32", (2, 3)))
    weight = b.tensor("fc.weight", TensorMeta("float32", (4, 3)), role="parameter", scope="fc")
    t = b.function("t", [weight], [TensorMeta("float32", (3, 4))], native="TBackward0", scope="fc")
    saved = Saved("mat1", "float32", (2, 3), 24, storage="x")
    addmm = b.function(
        "addmm",
        [None, x, t],
        [TensorMeta("float32", (2, 4))],
        native="AddmmBackward0",
        scope="fc",
        attrs={"alpha": 1},
        saved=[(saved, x)],
        source=Source("model.py", 12, "forward"),
    )
    b.output(addmm, "0")
    graph = b.build(scopes=[Scope("fc", "Linear", "in_features=3, out_features=4", 1, 16, 16, 16, training=True)])
    assert fenced("text") == plain(graph)


@pytest.mark.parametrize("graph", [everything(), hostile(), Graph.of([])], ids=["everything", "hostile", "empty"])
def test_the_samples_follow_the_grammar_and_read_back(graph: Graph) -> None:
    text = plain(graph)
    assert follows_the_grammar(text)
    assert content(Reader(text).graph()) == content(graph)


@given(graphs())
def test_every_graph_follows_the_grammar_and_reads_back(graph: Graph) -> None:
    text = plain(graph)
    assert follows_the_grammar(text)
    assert text.replace("\n", "").isprintable()
    assert content(Reader(text).graph()) == content(graph)


@given(graphs(), st.text(max_size=4), st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3))
def test_what_made_a_graph_is_not_in_the_text(graph: Graph, version: str, options: dict[str, AttrValue]) -> None:
    other = msgspec.structs.replace(graph, producer=Producer(version, version, version, options))
    assert plain(other) == plain(graph)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gradir plain 1",
        "gradir plain 2\n",
        "gradir plain 1\n    native early\n",
        "gradir plain 1\nleaf x\n    opaque\n    native late\n",
        "gradir plain 1\nleaf x y\n",
        "gradir plain 1\nleaf x = f(a,b)\n",
        "gradir plain 1\nleaf x\nscope late\n",
        "gradir plain 1\nleaf x\n    attr a = [[[1]]]\n",
        'gradir plain 1\nleaf "\\x"\n',
        'gradir plain 1\nleaf "a\nb"\n',
    ],
)
def test_the_grammar_refuses_other_text(text: str) -> None:
    assert not follows_the_grammar(text)


@pytest.mark.parametrize("role", ["scope", "cut", "scope.x", "", "a b"])
def test_a_role_is_never_taken_for_another_block(role: str) -> None:
    graph = Graph.of([Node("x", role=role)])
    assert follows_the_grammar(plain(graph))
    assert content(Reader(plain(graph)).graph()) == content(graph)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"attrs": {"a": 1}}, {"attrs": {"a": True}}),
        ({"attrs": {"a": 1}}, {"attrs": {"a": 1.0}}),
        ({"attrs": {"a": 1}}, {"attrs": {"a": "1"}}),
        ({"attrs": {"a": 0.0}}, {"attrs": {"a": -0.0}}),
        ({"attrs": {"a": None}}, {"attrs": {"a": "null"}}),
        ({"attrs": {"a": NonFinite("inf")}}, {"attrs": {"a": "inf"}}),
        ({"attrs": {"a": ()}}, {"attrs": {"a": ((),)}}),
        ({"attrs": {"a": 1}}, {"ext": {"a": 1}}),
        ({"outputs": (TensorMeta("f", (1,)),)}, {"outputs": (TensorMeta("f", ("1",)),)}),
        ({"outputs": (TensorMeta("f", ()),)}, {"outputs": (TensorMeta("f", None),)}),
        ({"outputs": (TensorMeta(None, ()),)}, {"outputs": (TensorMeta("?", ()),)}),
        ({"inputs": (None,)}, {"inputs": (Ref("-", 0),)}),
        ({"inputs": (Ref("a", 2),)}, {"inputs": (Ref("a[2]", 0),)}),
        ({"inputs": (Ref("a, b", 0),)}, {"inputs": (Ref("a", 0), Ref("b", 0))}),
        ({"op": ""}, {"op": "function"}),
        ({"names": ("a b",)}, {"names": ("a", "b")}),
        ({"names": ("x\\n",)}, {"names": ("x\n",)}),
        ({"source": Source("a", 1, "2")}, {"source": Source("a line 1 in 2", 1)}),
        ({"saved": (Saved("s", storage="k state freed"),)}, {"saved": (Saved("s", storage="k", state="freed"),)}),
    ],
)
def test_what_looks_alike_is_told_apart(one: dict[str, object], other: dict[str, object]) -> None:
    texts = [plain(Graph.of([Node("x", **fields)])) for fields in (one, other)]  # type: ignore[arg-type]
    assert texts[0] != texts[1]


def test_hostile_text_stays_on_its_line() -> None:
    graph = hostile()
    text = plain(graph)
    lines = text.splitlines()
    assert lines == text.split("\n")[:-1]
    assert all(line.isprintable() for line in lines)
    heads = [line for line in lines[1:] if not line.startswith("    ")]
    assert len(heads) == len(graph.nodes) + len(graph.scopes)
    assert len(graph.scopes) == len(HOSTILE_LABELS)


def test_a_lone_surrogate_does_not_break_the_text() -> None:
    text = plain(Graph.of([Node("x", names=("a\ud800b",))]))
    assert text.encode() == b'gradir plain 1\nfunction x\n    name "a\\ud800b"\n'


def test_a_long_chain_takes_three_lines_a_node() -> None:
    assert plain(chain(20_000)).count("\n") == 1 + 3 * 20_002 - 1


def git_diff(folder: Path, before: Graph, after: Graph) -> list[str]:
    """The lines of git's own diff of two plain texts, without its file header."""
    git = shutil.which("git")
    assert git is not None
    paths = [folder / "before.txt", folder / "after.txt"]
    for path, graph in zip(paths, (before, after), strict=True):
        path.write_bytes(plain(graph).encode())
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        [git, "diff", "--no-index", "--no-color", "--no-ext-diff", *[path.name for path in paths]],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.decode().splitlines()[4:]


def changed(lines: list[str]) -> list[str]:
    return [line for line in lines if line[0] in "+-"]


def places(lines: list[str]) -> list[str]:
    return [line.split("@@ ")[-1] for line in lines if line.startswith("@@")]


def test_git_shows_the_changed_fact_and_names_its_node(tmp_path: Path) -> None:
    before = everything()
    after = replaced(before, "fc/addmm:1", attrs={"alpha": 2, "beta": 1, "mat1_sym_sizes": (2, 3)})
    lines = git_diff(tmp_path, before, after)
    assert changed(lines) == ["-    attr alpha = 1", "+    attr alpha = 2"]
    assert places(lines) == ["function fc/addmm:1 = addmm(-, x, fc/t:1)"]


def test_git_shows_an_added_node_as_one_block(tmp_path: Path) -> None:
    before = everything()
    meta = (TensorMeta("float32", (2, 4)),)
    relu = Node(
        "fc/relu:1", op="relu", native="ReluBackward0", scope="fc", inputs=(Ref("fc/addmm:1", 0),), outputs=meta
    )
    nodes: dict[str, Node] = {}
    for node in before.nodes.values():
        nodes[node.id] = node
        if node.id == "fc/addmm:1":
            nodes[relu.id] = relu
    after = msgspec.structs.replace(before, nodes=nodes)
    norm = after.nodes["norm/native_batch_norm:1"]
    after = replaced(after, norm.id, inputs=(Ref(relu.id, 0), None, None))
    lines = git_diff(tmp_path, before, after)
    assert changed(lines) == [
        "+function fc/relu:1 = relu(fc/addmm:1)",
        "+    native ReluBackward0",
        "+    scope fc",
        "+    out float32[2, 4]",
        "-function norm/native_batch_norm:1 = native_batch_norm(fc/addmm:1, -, -)",
        "+function norm/native_batch_norm:1 = native_batch_norm(fc/relu:1, -, -)",
    ]
    assert places(lines)[0] == "function fc/addmm:1 = addmm(-, x, fc/t:1)"


def test_git_sees_no_difference_when_only_the_producer_changed(tmp_path: Path) -> None:
    before = everything()
    after = msgspec.structs.replace(before, producer=Producer("9.9.9", "torch", "9.9.9"))
    assert before != after
    assert git_diff(tmp_path, before, after) == []
