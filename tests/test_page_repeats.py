"""What a page draws once: equal steps of a loop, and equal layers whose nodes a file has in different orders."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from browser import Browser
from gradir_exporters._page.columns import Columns
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gradir.ir import Builder, Graph, TensorMeta
from gradir.ir.module_tree import whole_tree
from gradir.passes.blocks import Blocks
from gradir.passes.readability import readable
from gradir.passes.rounds import once

META = TensorMeta("float32", (4, 8))


def loop(rounds: int, *, scope: str = "cell") -> Graph:
    """A module called again and again between an embedding and a head, with weights that all calls share."""
    b = Builder()
    value = b.function("embedding", [b.tensor("x", META)], [META], scope="embed")
    weight = b.tensor(f"{scope}.weight", META, role="parameter", scope=scope)
    for _ in range(rounds):
        value = b.function("mm", [value, weight], [META], scope=scope)
        value = b.function("tanh", [value], [META], scope=scope)
    b.output(b.function("sum", [b.function("mm", [value], [META], scope="head")], [META]))
    return b.build()


def layers(count: int, odd: Collection[int]) -> Graph:
    """Equal layers of two branches, of which the file has the other one first where a layer is odd."""
    b = Builder()
    value = b.tensor("x", META)
    swapped: dict[str, str] = {}
    for layer in range(count):
        scope = f"h.{layer}"
        one, other = (
            b.function(op, [value], [META], scope=f"{scope}.{name}") for op, name in (("exp", "left"), ("sin", "right"))
        )
        value = b.function("add", [one, other], [META], scope=scope)
        if layer in odd:
            ends = f"{scope}.left/exp:1", f"{scope}.right/sin:1"
            swapped.update(zip(ends, reversed(ends), strict=True))
    b.output(value)
    graph = b.build()
    return replace(graph, nodes={key: graph.nodes[key] for key in (swapped.get(key, key) for key in graph.nodes)})


def stands(graph: Graph) -> list[int]:
    """By node the one that stands for it."""
    steps = Columns(graph).block()["nodes"]["stands"]
    found, total = [], 0
    for step in [steps] * len(graph.nodes) if isinstance(steps, int) else steps:
        total += step
        found.append(total)
    return found


def left(graph: Graph) -> set[str]:
    """The ids of the nodes that stand for themselves."""
    return {key for number, (key, own) in enumerate(zip(graph.nodes, stands(graph), strict=True)) if number == own}


def branches(count: int, ends: int = 1, *, again: int = 0) -> Graph:
    """Equal operations that read the same node, of which ``ends`` others take by turns, and the first ``again``."""
    b = Builder()
    parts = b.function("unbind", [b.tensor("x", META)], [META] * count)
    made = [b.function("tanh", [b.function("exp", [parts.output(number)], [META])], [META]) for number in range(count)]
    for end in range(ends):
        b.output(b.function("stack", [*made[:again], *made[end::ends]], [META]), str(end))
    return b.build()


@pytest.mark.parametrize(
    "graph",
    [loop(50), loop(3), loop(2), loop(7, scope=""), branches(24), branches(24, 2), branches(2), branches(24, again=1)],
    ids=["50", "3", "2", "root", "side by side", "to two", "two branches", "the first again"],
)
def test_a_page_has_the_steps_that_the_static_pictures_have(graph: Graph) -> None:
    rolled = once(graph)
    assert len(left(graph)) == len(rolled.nodes)
    block = Columns(graph).block()
    times = [step[3] for step in block["steps"] if step[2]]
    assert times == [
        int(path.rpartition("×")[2].split()[0]) for path in rolled.scopes if path.rpartition(".")[2].startswith("×")
    ]


@given(st.integers(2, 6), st.sets(st.integers(0, 5)))
def test_layers_in_different_orders_are_alike(count: int, odd: set[int]) -> None:
    graph = layers(count, odd)
    of = stands(graph)
    nodes = [*graph.nodes.values()]
    assert {node.scope.partition(".")[2].partition(".")[0] for node in nodes if node.id in left(graph)} == {"", "0"}
    for node, own in zip(nodes, of, strict=True):
        assert nodes[own].op == node.op
        assert nodes[own].scope.split(".")[2:] == node.scope.split(".")[2:]
    tree = whole_tree(graph)
    alike = [place - by for place, by in enumerate(Columns(graph).block()["scopes"]["alike"])]
    assert tree.scopes[alike[tree.place(f"h.{count - 1}.left")]].path == "h.0.left"


@pytest.mark.parametrize("odd", [0, 7, 19])
def test_each_layer_is_looked_at_once_in_whatever_order_its_nodes_are(
    odd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    shape = Blocks._make_shape
    monkeypatch.setattr(Blocks, "_make_shape", lambda self, block: looked.append(block) or shape(self, block))
    one = left(layers(20, ()))
    assert len(looked) == 20
    other = left(layers(20, {odd}))
    assert len(looked) == 20 + 20
    assert one == other


def test_steps_that_differ_are_drawn_apart() -> None:
    graph = loop(6)
    nodes, key = dict(graph.nodes), "cell/tanh:3"
    nodes[key] = replace(nodes[key], attrs={"approximate": True})
    assert {key, "cell/mm:3"} <= left(replace(graph, nodes=nodes))


def test_a_large_loop_is_one_step_at_first(browser: Browser) -> None:
    graph = loop(100)
    assert (small := readable(graph)) is not None
    assert "repeated steps once" in small.note
    with browser.open(graph.to("html")) as page:
        drawn = [*page.ask("boxes"), *page.ask("frames")]
        assert len(page.names()) <= len(small.graph.nodes)
        assert any(box["name"] == "cell.×100" for box in drawn)
        page.press("r", "e")
        page.wait("boxes.length > 200")
        page.press("r")
        page.wait("boxes.length < 20")
        page.press("e")
        frames = {frame["name"] for frame in page.ask("frames")}
        assert "cell.×100" in frames
        assert "#" in page.page.evaluate("location.hash")
        link = page.page.evaluate("location.hash")
    with browser.open(graph.to("html"), link) as page:
        assert {frame["name"] for frame in page.ask("frames")} == frames


def test_a_module_that_lies_in_a_step_is_found_there(browser: Browser) -> None:
    b = Builder()
    value = b.tensor("x", META)
    for _ in range(80):
        value = b.function("mm", [value], [META], scope="first")
        value = b.function("tanh", [value], [META], scope="second")
    b.output(value)
    with browser.open(b.build().to("html")) as page:
        page.page.locator("[role=application]").focus()
        page.press("e")
        page.wait("frames.some(({name}) => name === '×80.second')")
        page.page.get_by_role("treeitem").filter(has_text="second").first.click()
        page.wait("selection.kind === 'module'")
        page.press("0")
        page.page.keyboard.press("o")
        page.wait("frames.some(({name}) => name === '×80')")


def sliced(count: int) -> Graph:
    """A mixture: each step weighs what one expert makes by another slice of the gate."""
    b = Builder()
    value, gate = (
        b.function("tanh", [b.tensor("x", META)], [META]),
        b.function("softmax", [b.tensor("g", META)], [META]),
    )
    total = value
    for number in range(count):
        share = b.function("slice", [gate], [META], attrs={"start": number})
        expert = b.function("mm", [value], [META], scope=f"experts.{number}")
        total = b.function("add", [total, b.function("mul", [share, expert], [META])], [META])
    b.output(total)
    return b.build()


@pytest.mark.parametrize(("count", "names"), [(24, ["×24 nearly equal"]), (6, [])])
def test_steps_that_differ_in_attributes_are_one_where_nothing_else_makes_them_few(
    count: int, names: list[str]
) -> None:
    block = Columns(sliced(count)).block()
    found = [block["texts"][step[2]] for step in block["steps"] if step[2]]
    assert found == names
    assert (len(left(sliced(count))) < 20) == bool(names)


def test_a_branch_that_enters_its_consumer_twice_is_not_like_those_that_enter_it_once() -> None:
    """Otherwise what takes the first twice would be drawn as if it took each once."""
    graph = branches(24, again=1)
    kept = left(graph)
    assert {"exp:1", "tanh:1", "exp:2", "tanh:2"} <= kept
    assert "exp:3" not in kept
