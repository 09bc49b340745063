"""The pass `layers`, what pictures show by it, and that nothing is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from dot_pictures import Picture, run_dot
from hypothesis import given
from mermaid_pictures import export as mermaid
from mermaid_pictures import parse_mermaid
from msgspec.structs import replace
from samples import everything, hostile
from strategies import graphs

import gradir
from gradir import codecs
from gradir.cli.main import main
from gradir.ir import Builder, Cut, Graph, Node, Ref, Scope, TensorMeta
from gradir.ir.cuts import stubs
from gradir.ir.marks import is_layer
from gradir.ir.validate import check
from gradir.passes import fold, layers, rollup, smallest
from gradir.registry import exporter_names

META = TensorMeta("float32", (2, 3))


def net(*, calls: int = 1) -> Graph:
    """A linear layer, called once or more with an operation of the model between, and a view."""
    b = Builder()
    weight = b.tensor("fc.weight", TensorMeta("float32", (3, 3)), role="parameter", scope="fc")
    bias = b.tensor("fc.bias", TensorMeta("bfloat16", (3,)), role="parameter", scope="fc")
    held = [b.function("accumulate_grad", [each], [META], scope="fc") for each in (bias, weight)]
    value = b.tensor("x", META)
    for _ in range(calls):
        turned = b.function("t", [held[1]], [META], scope="fc")
        value = b.function("addmm", [held[0], value, turned], [META], scope="fc")
        value = b.function("exp", [b.function("view", [value], [META])], [META])
    b.output(value)
    return b.build(scopes=[Scope("", "Net", calls=1), Scope("fc", "Linear", calls=calls)])


def test_a_layer_is_one_box_with_its_weights_and_views_are_gone() -> None:
    shown = layers(net())
    assert list(shown.nodes) == ["x", "fc", "exp:1", "output"]
    assert shown.nodes["fc"].attrs["weights"] == (("weight", (3, 3)), ("bias", (3,)))
    assert [(edge.src, edge.dst) for edge in shown.edges] == [("x", "fc"), ("fc", "exp:1"), ("exp:1", "output")]


def test_each_call_is_a_box_and_the_first_has_the_weights() -> None:
    shown = layers(net(calls=3))
    boxes = [node for node in shown.nodes.values() if node.role == "module"]
    assert [node.names for node in boxes] == [("fc",), ("fc (2)",), ("fc (3)",)]
    assert [bool(node.attrs["weights"]) for node in boxes] == [True, False, False]
    assert [(edge.src, edge.dst) for edge in shown.edges if edge.src == "fc"] == [("fc", "exp:1")]


@given(graphs())
def test_no_path_parameter_or_cut_is_lost(graph: Graph) -> None:
    shown = layers(graph)
    check(shown)
    assert codecs.decode(codecs.encode(shown)) == shown
    assert layers(shown) == shown
    named = {
        name
        for box in shown.nodes.values()
        if is_layer(box)
        for name, _ in box.attrs["weights"]  # type: ignore[union-attr, misc, str-unpack]
    }
    for node in graph.nodes.values():
        if node.role == "parameter" and node.id not in shown.nodes:
            assert any(node.label in {name, f"{node.scope}.{name}"} for name in named)
    assert [stub.reason for stub in stubs(shown)] == [stub.reason for stub in stubs(graph)]
    assert [node for node in graph.nodes.values() if node.role == "output"] == [] or shown.outputs
    stay = {key for key in shown.nodes if key in graph.nodes and not is_layer(shown.nodes[key])}
    for edge in shown.edges:
        if {edge.src, edge.dst} <= stay:
            assert edge.src in reached_from(graph, edge.dst)


def reached_from(graph: Graph, end: str) -> set[str]:
    """The nodes from which a path leads to one."""
    found, waiting = {end}, [end]
    while waiting:
        at = waiting.pop()
        more = {edge.src for edge in graph.edges if edge.dst == at} - found
        found |= more
        waiting += more
    return found


def test_an_operation_at_a_cut_or_that_raised_stays() -> None:
    graph = net()
    cut = Cut("detach", ("fc.weight",), op="detach", into="view:1")
    assert "view:1" in layers(replace(graph, cuts=(cut,))).nodes
    failed = replace(graph.nodes["view:1"], ext={"failed": "ValueError: no"})
    assert "view:1" in layers(replace(graph, nodes={**graph.nodes, "view:1": failed})).nodes


def test_the_model_itself_and_steps_are_no_layers() -> None:
    flat = Graph.of([Node("x", op="exp"), Node("y", op="sin", inputs=(Ref("x", 0),))], [Scope("", "Exp", calls=1)])
    assert layers(flat) is flat
    step = Graph.of([Node("cell.×3/exp:1", op="exp", scope="cell.×3")], [Scope("cell", "C"), Scope("cell.×3")])
    assert layers(step) is step


def test_it_works_with_the_passes_that_make_one_of_many() -> None:
    b = Builder()
    value = b.tensor("x", META)
    for number in range(4):
        for name in ("fc", "act"):
            value = b.function("exp", [value], [META], scope=f"h.{number}.{name}")
    b.output(value)
    scopes = [Scope(f"h.{n}.{name}", "Layer", calls=1) for n in range(4) for name in ("fc", "act")]
    shown = layers(b.build(scopes=[*scopes, *(Scope(f"h.{n}", "Block", calls=1) for n in range(4))]))
    assert len(shown.nodes) == 10
    rolled = rollup(shown)
    assert [node.label for node in rolled.nodes.values() if is_layer(node)] == ["h.0-3.fc", "h.0-3.act"]
    assert [fold(shown, 2).nodes[f"h.{n}"].attrs["nodes"] for n in range(4)] == [2] * 4


@pytest.mark.parametrize("sample", [net, everything, hostile])
def test_dot_draws_layers(sample: Callable[[], Graph], dot_program: str) -> None:
    shown = layers(sample())
    drawn = Picture(run_dot(dot_program, shown.to("dot"), "json"))
    assert sum(box["class"] == "module" for box in drawn.nodes.values()) == sum(map(is_layer, shown.nodes.values()))
    assert len([line for line in drawn.edges if line.get("style") != "invis"]) == len(shown.edges) + sum(
        bool(stub.into) for stub in stubs(shown)
    )


def test_boxes_say_weights_and_lines_say_shapes() -> None:
    text = net().to("dot", layers=True)
    assert r'label="fc (Linear)\nweight [3, 3] · bias [3]"' in text
    assert 'n0 [label="x"' in text
    assert text.count('label=" [2, 3]"') == 3
    bare = net().to("dot", layers=True, shapes=False)
    assert r'label="fc (Linear)\nweight · bias"' in bare
    assert "[2, 3]" not in bare
    assert "fc Linear float32[2, 3] (weight [3, 3], bias [3])" in net().to("tree", layers=True)


def test_a_line_says_the_dtype_where_it_is_another_than_that_of_most() -> None:
    b = Builder()
    value = b.function("exp", [b.tensor("x", META)], [META], scope="act")
    b.output(b.function("cast", [value], [TensorMeta("bfloat16", (2, 3))]))
    text = b.build(scopes=[Scope("act", "Exp", calls=1)]).to("dot", layers=True)
    assert text.count('label=" [2, 3]"') == 2
    assert text.count('label=" bfloat16[2, 3]"') == 1


def test_mermaid_reads_layers(mermaid_node: str) -> None:
    sources = [mermaid(layers(sample())) for sample in (net, everything, hostile, partial(net, calls=3))]
    assert '-->|"[2, 3]"|' in sources[0]
    for read, sample in zip(parse_mermaid(mermaid_node, sources), (net, everything, hostile, net), strict=True):
        assert len(read["vertices"]) >= len([node for node in layers(sample()).nodes.values() if is_layer(node)])


@pytest.mark.parametrize(
    "weights", [(), ("w",), (("w",),), ((1, 2),), (("w", "x"), ("v", (None, "s0"))), (("w", None),) * 50]
)
def test_a_file_may_say_anything_of_weights(weights: tuple[object, ...], dot_program: str) -> None:
    node = Node("fc", role="module", names=("fc",), attrs={"weights": weights})  # type: ignore[dict-item]
    graph = codecs.decode(codecs.encode(Graph.of([node])))
    for name in ("dot", "mermaid", "tree", "html", "plain", "summary"):
        assert graph.to(name)
    assert Picture(run_dot(dot_program, graph.to("dot"), "json")).nodes["n0"]["class"] == "module"


def test_pictures_show_layers_unless_all_or_something_else_is_asked_for(dot_program: str) -> None:
    assert dot_program
    default = gradir.render(net(), "svg")
    assert b"fc (Linear)" in default
    assert b"addmm" not in default
    for options in ({"all": True}, {"drop": "accumulate_grad"}, {"layers": False}):
        assert b"addmm" in gradir.render(net(), "svg", **options)


def test_the_command_line_does_so_too(dot_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dot_program
    monkeypatch.chdir(tmp_path)
    gradir.save(net(), "net.gir")
    drawn = {}
    for name, words in {"default": [], "all": ["--all"], "part": ["--depth", "3"], "layers": ["--layers"]}.items():
        assert main(["export", "net.gir", "-o", f"{name}.svg", *words]) == 0
        drawn[name] = b"addmm" in Path(f"{name}.svg").read_bytes()
    assert drawn == {"default": False, "all": True, "part": True, "layers": False}
    for name in exporter_names():
        assert main(["export", "net.gir", "--to", name, "--layers", "-o", "out"]) == 0


def test_many_layers_are_drawn_once_where_they_are_equal_and_folded_where_too_many() -> None:
    def stack(count: int) -> Graph:
        b = Builder()
        value = b.tensor("x", META)
        for number in range(count):
            value = b.function(f"f{number % 2}", [value], [META], scope=f"h.{number}.act")
            value = b.function("exp", [value], [META], scope=f"h.{number}.exp")
        b.output(value)
        kinds = [Scope(f"h.{n}.{name}", "Layer", calls=1) for n in range(count) for name in ("act", "exp")]
        return layers(b.build(scopes=kinds))

    assert smallest(stack(15)).note == ""
    assert smallest(stack(30)).note == "62 layers and operations as 4 boxes: repeated steps once"
    assert len(smallest(stack(100)).graph.nodes) == 4


def test_layers_are_the_modules_without_modules_of_a_real_model() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=13, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    with gradir.record(model) as rec:
        loss = model(torch.arange(6).reshape(1, 6)).logits.sum()
    shown = layers(rec.capture(loss))
    boxes = {node.label: node for node in shown.nodes.values() if is_layer(node)}
    leaves = {name for name, module in model.named_modules() if name and not any(module.children())}
    # Attention leaves its dropout to the kernel.
    assert boxes.keys() == {name for name in leaves if not name.endswith("attn_dropout")}
    for name, box in boxes.items():
        own = {key: (*value.shape,) for key, value in model.get_submodule(name).named_parameters()}
        if name != "lm_head":  # its weight is that of the embedding
            assert dict(box.attrs["weights"]) == own  # type: ignore[arg-type]
    assert not {"view", "t", "accumulate_grad", "unsafe_view"} & {node.op for node in shown.nodes.values()}
