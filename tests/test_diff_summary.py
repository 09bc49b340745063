"""One sentence says what a change was for, the same in every form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from diff_pairs import valid_pairs
from hypothesis import given
from reports import findings_of_kinds

import gradir
from gradir.ir import Builder, Cut, Graph, Node, Scope, Source, TensorMeta
from gradir.ir.marks import overlay_verdict
from gradir.review.summary import sentence

SENTENCES = {
    "detached-residual": "6 lost inputs: in[0] of add:1 in blocks.{0..5}; nothing else.",
    "dropout": "p=0.1 → p=0.2 in blocks.{0..5}{,.attn}.drop; nothing else.",
    "swapped": "other inputs in blocks.{0..5}.{norm1,norm2,drop}; nothing else.",
    "added-constant": "add put into blocks.{0..5}; nothing else.",
    "wrapped-linears": "blocks.*.{attn.{q,k,v},mlp.down} are now blocks.*.{attn.{q,k,v},mlp.down}.base, in Wrapped; "
    "nothing else.",
    "autocast": "341 of 342 changed nodes: dtype float32 -> bfloat16; casts: 99 put in; nothing else.",
    "norm": "LayerNorm((16,), eps=1e-05, elementwise_affine=True, bias=True) became RMSNorm in "
    "blocks.{0..5}.{norm1,norm2}; nothing else.",
    "tied": "tied: {tokens,head}.weight; parameter left out of head; nothing else.",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_it_says_what_was_done(name: str) -> None:
    pytest.importorskip("torch")
    from edited_gpt import capture_edit, plain

    assert gradir.diff(plain(), capture_edit(name)).findings[0].text == SENTENCES[name]


@pytest.mark.parametrize(("size", "padding"), [((7, 7), (3, 3)), ((3, 5), (1, 2))])
def test_settings_are_reported_without_their_consequences(size: tuple[int, ...], padding: tuple[int, ...]) -> None:
    def graph(size: tuple[int, ...], padding: tuple[int, ...]) -> Graph:
        b = Builder()
        weight = b.tensor("stem.weight", TensorMeta("float32", (8, 3, *size)), role="parameter", scope="stem")
        scaled = b.function("div", [weight], [TensorMeta("float32", (8, 3, *size))], scope="stem")
        b.output(b.function("convolution", [scaled], [], scope="stem", attrs={"padding": padding}))
        detail = f"3, 8, kernel_size={size}, stride=(1, 1), padding={padding}, bias=False"
        return b.build(scopes=[Scope(""), Scope("stem", "Conv2d", detail)])

    found = gradir.diff(graph((3, 3), (1, 1)), graph(size, padding))
    assert found.findings[0].text == (
        f"kernel_size=(3, 3), padding=(1, 1) → kernel_size={size}, padding={padding} in stem; nothing else."
    )


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("3, 8, kernel_size=3, padding=1", "3, 8, kernel_size=1", "kernel_size=3, padding=1 → kernel_size=1"),
        ("3, 8, padding=1", "3, 8", "padding=1 → default"),
        ("8, eps=1", "8, 8, eps=1, p=0", "8, eps=1 → 8, 8, eps=1, p=0"),
    ],
)
def test_a_setting_that_only_one_description_has_is_reported(before: str, after: str, text: str) -> None:
    one, other = (Graph.of([], scopes=[Scope(""), Scope("stem", "Conv2d", each)]) for each in (before, after))
    assert sentence(gradir.diff(one, other)) == f"{text} in stem; nothing else."


def test_a_setting_of_several_operations_is_named_once() -> None:
    def graph(value: float) -> Graph:
        b = Builder()
        x = b.tensor("x", TensorMeta("float32", (4,)), role="parameter")
        for _ in range(2):
            x = b.function("add", [x], [TensorMeta("float32", (4,))], scope="norm", attrs={"other": value})
        b.output(x)
        return b.build(scopes=[Scope(""), Scope("norm", "Norm")])

    assert sentence(gradir.diff(graph(1), graph(1.0))) == "add other: 1 → 1.0 in norm; nothing else."


def test_a_setting_that_modules_of_several_sizes_share_is_reported() -> None:
    def graph(*, has_bias: bool) -> Graph:
        b, scopes = Builder(), []
        for name, rows in (("one", 2), ("two", 3)):
            weight = b.tensor(f"{name}.weight", TensorMeta("float32", (4, 4)), role="parameter", scope=name)
            given = [b.tensor(f"x:{rows}", TensorMeta("float32", (rows, 4))), weight]
            if has_bias:
                given.append(b.tensor(f"{name}.bias", TensorMeta("float32", (4,)), role="parameter", scope=name))
            b.output(b.function("linear", given, [TensorMeta("float32", (rows, 4))], scope=name))
            scopes.append(Scope(name, "Linear", f"4, 4{'' if has_bias else ', bias=False'}"))
        return b.build(scopes=scopes)

    said = sentence(gradir.diff(graph(has_bias=True), graph(has_bias=False)))
    assert said == "default → bias=False (parameter left out) in {one,two}; nothing else."


@pytest.mark.parametrize("variable", ["", "v{}"])
def test_lines_that_moved_are_no_edit_beside_one(variable: str) -> None:
    def graph(line: int, op: str) -> Graph:
        names = ["fc/a:1", "fc/b:1", "act/c:1", "out/d:1"]
        ops = {"act/c:1": op}
        variables = [variable.format(line)] if variable else []
        nodes = [
            Node(
                name,
                op=ops.get(name, name[-3]),
                scope=name.split("/")[0],
                names=tuple(variables),
                source=Source("net.py", line + at),
            )
            for at, name in enumerate(names)
        ]
        return Graph.of(nodes, scopes=[Scope(path, "M") for path in ("", "fc", "act", "out")])

    moved = sentence(gradir.diff(graph(1, "c"), graph(9, "c")))
    assert moved == "other source lines or variables in {fc,act,out}; nothing else."
    assert sentence(gradir.diff(graph(1, "c"), graph(9, "d"))) == "c became d in act; nothing else."


def test_a_module_around_operations_of_others_is_reported_as_a_module() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, *, is_whole: bool) -> None:
            super().__init__()
            layer = torch.nn.Linear(2, 2)
            self.fc = torch.nn.Sequential(layer, torch.nn.ReLU()) if is_whole else layer
            self.is_whole = is_whole

        def forward(self, x: Any) -> Any:
            return self.fc(x) if self.is_whole else self.fc(x).relu()

    plain, whole = (gradir.capture(Net(is_whole=whole), torch.ones(1, 2)) for whole in (False, True))
    assert "ReLU put in as fc.1" in gradir.diff(plain, whole).findings[0].text
    assert "relu moved into (top level)" in gradir.diff(whole, plain).findings[0].text


def test_sizes_that_follow_from_a_new_module_are_no_edit() -> None:
    def graph(first: str, *wide: str) -> Graph:
        b = Builder()
        value, width = b.tensor("x", TensorMeta("float32", (4,))), 4
        for number in range(2):
            value = b.function(first, [value], [TensorMeta("float32", (width,))], scope=f"h.{number}")
        for op in wide:
            width = 8
            value = b.function(op, [value], [TensorMeta("float32", (width,))], scope="wide")
        b.output(b.function("tanh", [value], [TensorMeta("float32", (width,))]))
        names = ["", "h", "h.0", "h.1", *(["wide"] if wide else [])]
        return b.build(scopes=[Scope(name, "Layer") for name in names])

    found = gradir.diff(graph("exp"), graph("sin", "cos", "cos"))
    assert found.findings[0].text == "exp became sin in h.{0,1}; Layer put in as wide; nothing else."


@pytest.mark.parametrize(
    ("details", "left_out", "put_in"),
    [
        (["8", "8", "8"], "Norm(8) {m0,m1,m2} left out", "Norm(8) put in as {m0,m1,m2}"),
        (["8", "16", "32"], "Norm {m0,m1,m2} left out", "Norm put in as {m0,m1,m2}"),
        (["p=0.1", "p=0.5", "p=0.5"], "Norm(p=0.1) m0 left out", "Norm(p=0.1) put in as m0"),
    ],
)
def test_added_and_removed_modules_are_reported_together_but_for_sizes(
    details: list[str], left_out: str, put_in: str
) -> None:
    def graph(*details: str) -> Graph:
        b = Builder()
        value = b.tensor("x", TensorMeta("float32", (4,)))
        for at in range(len(details)):
            value = b.function("norm", [value], [TensorMeta("float32", (4,))], scope=f"m{at}")
        b.output(b.function("tanh" if details else "exp", [value], [TensorMeta("float32", (4,))]))
        return b.build(scopes=[Scope(""), *(Scope(f"m{at}", "Norm", each) for at, each in enumerate(details))])

    for before, after, said in ((details, [], left_out), ([], details, put_in)):
        assert gradir.diff(graph(*before), graph(*after)).findings[0].text.split("; ")[1] == said


def test_a_module_of_another_name_that_a_table_lists_no_more_is_reported_as_a_module() -> None:
    def graph(name: str, scopes: Sequence[Scope]) -> Graph:
        b = Builder()
        weight = b.tensor(f"{name}.weight", TensorMeta("float32", (4,)), role="parameter", scope=name)
        scaled = b.function("mul", [b.tensor("x", TensorMeta("float32", (4,))), weight], [], scope=name)
        b.output(b.function("tanh", [scaled], [], scope=name))
        return b.build(scopes=scopes)

    found = gradir.diff(graph("head", [Scope("head", "Linear", "4")]), graph("lm", []))
    assert sentence(found) == "head is now lm; Linear(4) lm left out; nothing else."


@pytest.mark.parametrize("turn", [1, -1], ids=["removed", "added"])
@pytest.mark.parametrize("are_inside", [True, False])
def test_readers_of_a_module_in_renamed_layers_are_one_line(turn: int, *, are_inside: bool) -> None:
    def graph(stack: str, *, has_norm: bool) -> Graph:
        b = Builder()
        x = b.tensor("x", TensorMeta("float32", (4,)))
        scopes = [Scope("")]
        for number in range(3):
            layer = f"{stack}.{number}"
            scopes.append(Scope(layer, "Block"))
            x = b.function("relu", [x], [TensorMeta("float32", (4,))], scope=layer)
            if has_norm:
                scopes.append(Scope(f"{layer}.norm", "Norm"))
                x = b.function("sub", [x], [TensorMeta("float32", (4,))], scope=f"{layer}.norm")
            # Operations of the top level have the numbers 1, 2, 3.
            x = b.function("exp", [x], [TensorMeta("float32", (4,))], scope=layer if are_inside else "")
        b.output(x)
        return b.build(scopes=scopes)

    before, after = (graph("blocks", has_norm=True), graph("h", has_norm=False))[::turn]
    reader = " -> ".join(["blocks.0/exp:1", "h.0/exp:1"][::turn]) if are_inside else "exp:1"
    sources = " -> ".join(["blocks.0.norm/sub:1", "h.0/relu:1"][::turn])
    assert [each.text for each in findings_of_kinds(gradir.diff(before, after), "reads")] == [
        f"{reader}  in[0]: {sources}, and so for each"
    ]


def test_a_module_of_another_class_is_reported_once_and_its_readers_of_any_size_in_one_line() -> None:
    def graph(kind: str) -> Graph:
        b = Builder()
        scopes = [Scope("")]
        for number in range(2):
            x = b.tensor(f"h.{number}.in", TensorMeta("float32", (2 + number,)), role="parameter", scope=f"h.{number}")
            scopes += [Scope(f"h.{number}", "Block"), Scope(f"h.{number}.norm", kind)]
            for op in ("mean", "sub") if kind == "Norm" else ():
                x = b.function(op, [x], [TensorMeta("float32", (2 + number,))], scope=f"h.{number}.norm")
            b.output(b.function("relu", [x], [TensorMeta("float32", (2 + number,))], scope=f"h.{number}"))
        return b.build(scopes=scopes)

    found = gradir.diff(graph("Norm"), graph("Identity"))
    assert found.findings[0].text == "Norm became Identity in h.{0,1}.norm; nothing else."
    assert [each.text.partition("  ")[2] for each in findings_of_kinds(found, "reads")] == [
        "in[0]: h.0.norm/sub:1 -> h.0.in, and so for each"
    ]


def test_operations_that_gave_way_to_others_of_their_kinds_did_not_become_them() -> None:
    def graph(stack: str, head: str) -> Graph:
        b = Builder()
        value = b.tensor("x", TensorMeta("float32", (4,)))
        classes = {f"{stack}.0": "Layer", f"{stack}.1": "Layer", head: "Linear"}
        for path, name in classes.items():
            weight = b.tensor(f"{path}.weight", TensorMeta("float32", (4,)), role="parameter", scope=path)
            for op in ["mul", "sin"] if name == "Layer" else ["mul"]:
                inputs = [value, weight] if op == "mul" else [value]
                value = b.function(op, inputs, [TensorMeta("float32", (4,))], scope=path)
        b.output(value)
        return b.build(scopes=[Scope(""), Scope(stack, "ModuleList"), *map(Scope, classes, classes.values())])

    # The head has the former name of the stack, so none of its nodes is one that was there.
    said = gradir.diff(graph("layers", "head"), graph("stack", "layers")).findings[0].text
    assert said == "{layers,head} are now {stack,layers}; parameter, mul replaced in layers; nothing else."


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"x": ["mul", "tanh"]}, {"x": ["gelu"]}, "tanh, mul became gelu in f"),
        ({"x": ["mul", "tanh"]}, {"y": ["gelu"]}, "mul, tanh left out and gelu put into f"),
        ({"x": ["exp"]}, {"x": ["exp"], "y": ["exp", "sin"]}, "exp, sin put into f"),
    ],
)
def test_an_operation_became_another_only_where_both_read_or_feed_the_same(
    before: dict[str, list[str]], after: dict[str, list[str]], text: str
) -> None:
    def graph(chains: dict[str, list[str]]) -> Graph:
        b = Builder()
        tensor = [TensorMeta("float32", (4,))]
        for name in "xy":
            value = b.tensor(name, tensor[0], role="parameter")
            for op in chains.get(name, []):
                value = b.function(op, [value], tensor, scope="f")
            b.output(b.function("relu" if name == "x" else "abs", [value], tensor))
        return b.build(scopes=[Scope(""), Scope("f", "Layer")])

    assert sentence(gradir.diff(graph(before), graph(after))).startswith(text)


@given(valid_pairs)
def test_every_form_has_it(pair: tuple[Graph, Graph]) -> None:
    found = gradir.diff(*pair)
    for told in findings_of_kinds(found, "summary"):
        assert told.text.isprintable()
        assert str(found).splitlines()[0] == told.text
        assert found.to("markdown").splitlines()[2].startswith("**In short:** `")
        assert json.loads(found.to("json"))["findings"][0]["text"] == told.text
        assert (told.level == "error") == any(each.level == "error" for each in found.findings[1:])


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (["exp"] * 3, ["sin"] * 3, "exp became sin in h.{0..2}; nothing else."),
        (["exp"], ["sin"], "exp became sin in h.0; nothing else."),
        (["exp"], ["exp"], "no difference"),
        ([], ["exp"], "exp put into h.0; nothing else."),
    ],
)
def test_each_page_shows_it_where_an_explanation_has_its_verdict(
    monkeypatch: pytest.MonkeyPatch, before: list[str], after: list[str], said: str
) -> None:
    from gradir import registry

    shown = []
    exporter = type(registry.exporter("html"))
    monkeypatch.setattr(exporter, "export_changes", lambda _, graph, *rest: shown.append(graph) or "page\n")
    a, b = (
        Graph.of([Node(f"h.{n}/f:1", op=op, scope=f"h.{n}") for n, op in enumerate(ops)]) for ops in (before, after)
    )
    assert gradir.diff(a, b).to("html") == "page\n"
    assert overlay_verdict(shown[0].nodes.values()) == ("quiet", said)


def test_nodes_removed_by_a_cut_are_no_edit() -> None:
    pytest.importorskip("torch")
    import torch

    class Net(torch.nn.Module):
        def __init__(self, cut: bool) -> None:
            super().__init__()
            self.enc, self.head, self.cut = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), cut

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.enc(x).tanh()
            return self.head(hidden.detach() if self.cut else hidden).sum()

    whole, cut = (gradir.capture(net(torch.ones(2, 3)), model=net) for net in (Net(False), Net(True)))
    assert gradir.diff(whole, cut).findings[0].text == "2 parameters now get no gradient; nothing else."


def _network(*, cut: bool = False, tanh: bool = True, exchanged: bool = False, by: float = 2.0) -> Graph:
    """An encoder and a head on it, and a sum of two other inputs."""
    b = Builder()
    meta = [TensorMeta("float32", (2,))]
    weights = {name: b.tensor(f"{name}.w", meta[0], role="parameter", scope=name) for name in ("enc", "head", "side")}
    if not cut:
        enc = b.function("exp", [weights["enc"]], meta, scope="enc")
        hidden: Any = b.function("sin", [enc], meta, scope="enc")
    else:
        hidden = None
    head = b.function("mul", [hidden, weights["head"]], meta, scope="head")
    head = b.function("tanh", [head], meta, scope="head") if tanh else head
    side = b.function("mul", [weights["side"]], meta, scope="side", attrs={"other": by})
    one, other = (side, head) if exchanged else (head, side)
    first = b.function("cos", [one], meta, scope="top")
    b.output(b.function("add", [first, other], meta, scope="top"))
    lost = [Cut("unreached", ("enc.w",))] if cut else []
    return b.build(scopes=[Scope(""), *(Scope(name) for name in ("enc", "head", "side", "top"))], cuts=lost)


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({"cut": True, "tanh": False}, ["no gradient", "tanh left out of head"]),
        ({"exchanged": True, "by": 3.0}, ["other inputs in top", "mul by 2.0 → 3.0 in side"]),
        ({"tanh": False, "by": 3.0}, ["tanh left out of head", "mul by 2.0 → 3.0 in side"]),
    ],
)
def test_nothing_else_is_true(edits: dict[str, Any], said: list[str]) -> None:
    sentence = gradir.diff(_network(), _network(**edits)).findings[0].text
    phrases = sentence.split("; ")
    assert phrases[-1] == "nothing else."
    assert len(phrases) == len(said) + 1
    assert all(part in sentence for part in said)


def test_a_cut_that_is_gone_is_reported_too() -> None:
    sentence = gradir.diff(_network(cut=True), _network()).findings[0].text
    assert sentence == "1 parameter gets a gradient again; all of enc put in; nothing else."


def test_a_long_sentence_counts_the_rest() -> None:
    def made(op: str) -> Graph:
        nodes = [Node(f"m{n}/{op}:1", op=f"{op}{n}", scope=f"m{n}") for n in range(6)]
        return Graph.of(nodes, [Scope(""), *(Scope(f"m{n}") for n in range(6))])

    said = gradir.diff(made("exp"), made("sin")).findings[0].text
    assert said == "exp0 became sin0 in m0; exp1 became sin1 in m1; exp2 became sin2 in m2; and 3 more."


def test_there_is_none_where_a_single_change_says_it_all_or_one_graph_is_empty() -> None:
    one, other = (Graph.of([Node("f:1", op=op)]) for op in ("exp", "sin"))
    assert not findings_of_kinds(gradir.diff(one, other), "summary")
    assert not findings_of_kinds(gradir.diff(one, one), "summary")
    assert not findings_of_kinds(gradir.diff(Graph.of([]), Graph.of([Node(f"x{n}") for n in range(9)])), "summary")


def test_an_operation_put_elsewhere_does_not_replace_the_removed_one() -> None:
    def graph(*operations: str) -> Graph:
        b = Builder()
        meta = TensorMeta("float32", (4,))
        found = b.tensor("w", meta, role="parameter")
        for name in operations:
            found = b.function(name, [found], [meta], scope="" if name in {"tanh", "relu"} else name)
        b.output(found)
        return b.build(scopes=[Scope(""), Scope("exp"), Scope("sin")])

    def said(*after: str) -> str:
        return sentence(gradir.diff(graph("exp", "tanh", "sin"), graph(*after)))

    assert said("exp", "sin", "relu") == "tanh left out and relu put into (top level); nothing else."
    assert said("exp", "relu", "sin") == "tanh became relu in (top level); nothing else."


def test_an_operation_that_moved_to_a_tensor_of_another_size_has_other_inputs() -> None:
    def graph(*order: str) -> Graph:
        b = Builder()
        size = 4
        found = b.tensor("w", TensorMeta("float32", (size,)), role="parameter")
        for name in order:
            size *= 2 if name == "cat" else 1
            found = b.function(name, [found], [TensorMeta("float32", (size,))], scope=name)
        b.output(found)
        return b.build(scopes=[Scope(""), *(Scope(name) for name in ("cat", "mul", "cos"))])

    said = sentence(gradir.diff(graph("mul", "cat", "cos"), graph("cat", "mul", "cos")))
    assert said == "other inputs in {cat,mul,cos}; nothing else."
