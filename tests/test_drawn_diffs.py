"""What a picture of a diff shows: equal changes once, and modules that came or went as one box."""

from __future__ import annotations

import html
import subprocess
from collections import Counter

import msgspec
import pytest

import gradir
from gradir.ir import Builder, Cut, Graph, Node, Producer, Ref, Scope, TensorMeta
from gradir.ir.marks import status, times
from gradir.ir.validate import check
from gradir.review.change_list import list_changes
from gradir.review.reviewing import review_graphs
from gradir.review.united import UnionGraph, draw_part

META = TensorMeta("float32", (2, 3))


def stack(ops: list[str], extra: dict[int, str] | None = None) -> Graph:
    """Layers ``h.0`` to ``h.n``: a linear, an activation of the name given, a residual; ``extra`` has an operation."""
    b = Builder()
    value = b.tensor("x", META)
    for number, op in enumerate(ops):
        path = f"h.{number}"
        weight = b.tensor(f"{path}.fc.weight", META, role="parameter", scope=f"{path}.fc")
        inner = b.function("mm", [value, weight], [META], scope=f"{path}.fc")
        inner = b.function(op, [inner], [META], scope=f"{path}.act")
        if extra and number in extra:
            inner = b.function("mul", [inner], [META], scope=f"{path}.drop")
            inner = b.function(extra[number], [inner], [META], scope=f"{path}.drop")
        value = b.function("add", [value, inner], [META], scope=path)
    b.output(b.function("sum", [value], [META], scope="head"))
    scopes = [Scope("", "Net"), *(Scope(f"h.{number}", "Layer", calls=1) for number in range(len(ops)))]
    return b.build(scopes=scopes)


def drawn(a: Graph, b: Graph, hops: int = 1) -> Graph:
    diff = review_graphs(a, b)
    part = draw_part(diff, UnionGraph(diff), hops)
    check(part)
    return part


def marked(part: Graph) -> dict[str, tuple[str, int]]:
    return {node.id: (status(node), times(node)) for node in part.nodes.values() if status(node)}


def test_one_edit_in_twelve_layers_is_drawn_once() -> None:
    a, b = stack(["gelu"] * 12), stack(["relu"] * 12)
    part = drawn(a, b)
    assert marked(part) == {"h.0.act/relu:1": ("changed", 12)}
    assert list(part.nodes) == ["h.0.fc/mm:1", "h.0.act/relu:1", "h.0/add:1"]
    diff = gradir.diff(a, b)
    assert '"~ gelu → relu\\nfloat32[2, 3]\\n×12"' in diff.to("dot")
    assert "gelu → relu\nfloat32[2, 3]\n×12" in diff.to("mermaid")
    assert diff.to("dot", full=True).count("gelu → relu") == 12
    assert "×" not in diff.to("dot", full=True)


def test_layers_that_changed_otherwise_are_drawn_by_themselves() -> None:
    ops = ["relu"] * 6
    part = drawn(stack(["gelu"] * 6), stack([*ops[:2], "tanh", *ops[3:]]))
    assert marked(part) == {"h.0.act/relu:1": ("changed", 5), "h.2.act/tanh:1": ("changed", 1)}


def test_the_same_edit_at_two_places_of_a_layer_is_drawn_at_both() -> None:
    def net(op: str) -> Graph:
        nodes = [Node("x", role="leaf")]
        for place in ("a", "b", "c"):
            for number in range(4):
                path = f"h.{number}.{place}"
                nodes.append(Node(f"{path}/{op}:1", op=op, scope=path, inputs=(Ref("x", 0),)))
        return Graph.of(nodes)

    found = marked(drawn(net("gelu"), net("relu")))
    assert found == {f"h.0.{place}/relu:1": ("changed", 4) for place in "abc"}


@pytest.mark.parametrize("kind", ["added", "removed"])
def test_a_whole_module_is_one_box_with_its_content(kind: str) -> None:
    small, large = stack(["gelu"] * 2), stack(["gelu"] * 3)
    part = drawn(*((small, large) if kind == "added" else (large, small)))
    (whole,) = [node for node in part.nodes.values() if node.role == "module"]
    assert (status(whole), times(whole), whole.native, whole.names) == (kind, 1, "Layer", ("h.2",))
    assert whole.attrs == {"nodes": 4, "parameters": 6, "saved_bytes": 0}
    inner = {source.id for node in part.nodes.values() for source in node.inputs if source is not None}
    assert whole.id in inner, "what reads from it does"
    assert len(part.nodes) == 4, "with the layer before, and the head that reads from it and its output"


def test_equal_modules_that_were_added_are_one_box_in_the_flow() -> None:
    a, b = stack(["gelu"] * 3), stack(["gelu"] * 12)
    part = drawn(a, b)
    (whole,) = [node for node in part.nodes.values() if node.role == "module"]
    assert (whole.label, times(whole), whole.attrs["nodes"]) == ("h.{3..11}", 9, 4)
    assert marked(part) == {whole.id: ("added", 9), "head/sum:1": ("changed", 1)}
    head = part.nodes["head/sum:1"]
    assert Ref(whole.id, 0) in head.inputs, "what took from the last takes from the one that is drawn"
    assert whole.inputs[0] == Ref("h.2/add:1", 0)


def test_a_parameter_cut_off_with_its_module_is_in_the_box_of_that() -> None:
    def net(is_cut: bool) -> Graph:
        nodes: list[Node] = []
        for path in (f"h.{number}" for number in range(3)):
            turned = Ref(f"{path}.fc/t:1", 0)
            if not is_cut:
                weight = Node(f"{path}.fc.w", role="parameter", scope=f"{path}.fc")
                nodes += [weight, Node(turned.id, op="t", scope=weight.scope, inputs=(Ref(weight.id, 0),))]
            nodes.append(Node(f"{path}/f:1", op="f", scope=path, inputs=() if is_cut else (turned,)))
        return Graph.of(nodes, cuts=[Cut(f"h.{number}.fc.w", "unreached") for number in range(3)] if is_cut else [])

    part = drawn(net(False), net(True))
    assert {key: node.role for key, node in part.nodes.items()} == {"h.0.fc": "module", "h.0/f:1": "function"}
    assert marked(part) == {"h.0.fc": ("removed", 3), "h.0/f:1": ("changed", 3)}


def test_every_change_is_drawn_or_counted() -> None:
    a = stack(["gelu"] * 8, {2: "neg", 5: "neg"})
    b = stack([*["relu"] * 6, "gelu", "gelu"], {3: "neg"})
    united = UnionGraph(review_graphs(a, b))
    changed = Counter(status(node) for node in united.graph.nodes.values() if status(node))
    found: Counter[str] = Counter()
    for node in drawn(a, b).nodes.values():
        if status(node):
            inside = node.attrs["nodes"] if node.role == "module" else 1
            assert isinstance(inside, int)
            found[status(node)] += times(node) * inside
    assert found == changed


def test_dot_draws_it(dot_program: str) -> None:
    text = gradir.diff(stack(["gelu"] * 3), stack(["relu"] * 9)).to("dot")
    subprocess.run([dot_program, "-Tsvg"], input=text.encode(), capture_output=True, check=True)


def test_parameters_that_were_cut_off_alike_are_drawn_once() -> None:
    b = stack(["gelu"] * 4)
    cut = [node for node in b.nodes.values() if node.role == "parameter"]
    nodes = [
        msgspec.structs.replace(node, inputs=(node.inputs[0], None)) if node.op == "mm" else node
        for node in b.nodes.values()
        if node.role != "parameter"
    ]
    part = drawn(b, Graph.of(nodes, b.scopes.values(), [Cut(node.id, "unreached") for node in cut]))
    assert marked(part) == {"h.0.fc.weight": ("removed", 4), "h.0.fc/mm:1": ("changed", 4)}


def trained(op: str, *, is_frozen: bool = False) -> Graph:
    """Three layers whose weights have gradient accumulators, with an operation of that name in each."""
    b = Builder()
    value = b.function("exp", [b.tensor("x", META)], [META])
    for path in (f"h.{number}" for number in range(3)):
        weight, bias = (b.tensor(f"{path}.{name}", META, role="parameter", scope=path) for name in ("weight", "bias"))
        taken = [b.function("accumulate_grad", [each], [META], scope=path) for each in (weight, bias)]
        value = b.function(op, [value, None if is_frozen else taken[0], taken[1]], [META], scope=path)
    b.output(value)
    scopes = [Scope("", "Net"), *(Scope(f"h.{number}", "Layer", calls=1) for number in range(3))]
    return b.build(producer=Producer(framework="torch"), scopes=scopes)


@pytest.mark.parametrize("full", [False, True])
def test_no_box_is_an_accumulator(full: bool) -> None:
    pairs = {
        "another operation": (trained("mm"), trained("mul"), ["weight [2, 3] · bias [2, 3]"]),
        "frozen": (trained("mm"), trained("mm", is_frozen=True), ["- h.0.weight", "bias [2, 3]"]),
        "melted": (trained("mm", is_frozen=True), trained("mm"), ["+ h.0.weight", "bias [2, 3]"]),
    }
    for a, b, said in pairs.values():
        diff = gradir.diff(a, b)
        pictures = [diff.to(form, full=full) for form in ("dot", "mermaid")]
        pictures += [] if full else [diff.to("markdown").split("```")[1]]
        for text in pictures:
            shown = html.unescape(text.replace("#45;", "-").replace("#43;", "+").replace("#183;", "·"))
            assert "accumulate" not in shown
            for words in said:
                assert words in shown


def test_a_change_of_an_accumulator_is_marked_at_its_tensor() -> None:
    a, b = trained("mm"), trained("mm")
    key = "h.1/accumulate_grad:1"
    other = msgspec.structs.replace(b.nodes[key], attrs={"times": 2})
    diff = review_graphs(a, msgspec.structs.replace(b, nodes={**b.nodes, key: other}))
    united = UnionGraph(diff)
    for part in (draw_part(diff, united), united.changed_part()):
        check(part)
        assert marked(part) == {"h.1.weight": ("changed", 1)}
        assert list(part.nodes) == ["h.1.weight", "h.1/mm:1"]


def test_a_lost_input_is_listed_first() -> None:
    def model(op: str, *, is_cut: bool) -> Graph:
        b = Builder()
        x = b.tensor("x", META)
        value = b.function(op, [x], [META], scope="early")
        b.output(b.function("add", [value, None if is_cut else x], [META], scope="late"))
        return b.build()

    diff = review_graphs(model("tanh", is_cut=False), model("relu", is_cut=True))
    assert diff.sides is not None
    listed = list_changes(diff, diff.sides, UnionGraph(diff))
    assert [change.text.split()[0] for change in listed][:2] == ["late/add:1", "early/tanh:1"]


def test_readers_of_a_new_module_are_listed_below_it() -> None:
    def model(*parts: tuple[str, str]) -> Graph:
        b = Builder()
        value = b.tensor("x", META)
        for path, op in parts:
            value = b.function(op, [value], [META], scope=path)
        b.output(value)
        return b.build(scopes=[Scope("", "Net"), *(Scope(path, "Block", calls=1) for path, _ in parts)])

    a = model(("stem", "exp"), ("mid", "sin"), ("head", "cos"), ("tail", "tan"))
    b = model(
        ("stem", "exp"), ("adapter", "relu"), ("mid", "sin"), ("head", "cos"), ("drop", "dropout"), ("tail", "tan")
    )
    diff = review_graphs(a, b)
    assert diff.sides is not None
    found = [
        (change.kind, change.group, change.text.split()[0])
        for change in list_changes(diff, diff.sides, UnionGraph(diff))
    ]
    assert found == [
        ("added", "module adapter  Block  1 node", "module"),
        ("changed", "module adapter  Block  1 node", "mid/sin:1"),
        ("added", "module drop  Block  1 node", "module"),
        ("changed", "module drop  Block  1 node", "tail/tan:1"),
    ]


def test_a_cause_is_listed_before_its_consequences() -> None:
    def model(rows: int, eps: float) -> Graph:
        b = Builder()
        x = b.tensor("x", META)
        early = b.function("exp", [x], [TensorMeta("float32", (rows, 3))], scope="early")
        late = b.function("norm", [x], [META], scope="late", attrs={"eps": eps})
        b.output(b.function("add", [early, late], [META]))
        return b.build()

    diff = review_graphs(model(2, 0.1), model(4, 0.2))
    assert diff.sides is not None
    listed = list_changes(diff, diff.sides, UnionGraph(diff))
    assert [change.text.split()[0] for change in listed] == ["late/norm:1", "early/exp:1"]
