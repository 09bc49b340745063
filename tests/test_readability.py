"""Large graphs made small enough to read, and what the pictures of them say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from steps import steps

from gradir.ir import Builder, Graph, Scope, TensorMeta
from gradir.ir.build import Value
from gradir.ir.validate import check
from gradir.passes import fold, readability, readable, smallest
from gradir.passes.rounds import once

META = TensorMeta("float32", (2, 3))


def loop(steps: int, *, leaks: bool = False) -> Graph:
    """A cell with a shared weight, called again and again; where it leaks, every step is also taken at the end."""
    b = Builder()
    weight = b.tensor("cell.w", META, role="parameter", scope="cell")
    state: Value = b.tensor("state", META)
    states = []
    for _ in range(steps):
        state = b.function("mm", [state, weight], [META], scope="cell")
        state = b.function("tanh", [b.function("mm", [state, weight], [META], scope="cell")], [META], scope="cell")
        states.append(state)
    b.output(b.function("stack", states, [META]) if leaks else state)
    return b.build(scopes=[Scope("", "Net", calls=1), Scope("cell", "Cell", calls=steps)])


def residual(layers: int, scope: str = "layers.{}") -> Graph:
    """Layers with their own weights, whose sums are made outside of them."""
    b = Builder()
    value: Value = b.tensor("x", META)
    for layer in range(layers):
        path = scope.format(layer)
        weight = b.tensor(f"{path}.w", META, role="parameter", scope=path)
        taken = b.function("accumulate_grad", [weight], [META], scope=path)
        value = b.function("add", [value, b.function("mm", [value, taken], [META], scope=path)], [META])
    b.output(value)
    return b.build()


def test_the_calls_of_a_module_are_drawn_once_with_their_number() -> None:
    graph = loop(50)
    rolled = once(graph)
    check(rolled)
    assert [(node.op or node.id, node.scope) for node in rolled.nodes.values()] == [
        ("state", ""),
        ("cell.w", "cell"),
        ("mm", "cell.×50"),
        ("mm", "cell.×50"),
        ("tanh", "cell.×50"),
        ("output", ""),
    ]
    assert [node.ext.get("times") for node in rolled.nodes.values()] == [None, None, 50, 50, 50, None]
    assert rolled.scopes["cell"] == graph.scopes["cell"]
    assert '"×50, each feeds the next"' in rolled.to("dot")


def test_steps_that_hold_their_own_parameters_are_drawn_once() -> None:
    rolled = once(residual(20))
    check(rolled)
    assert len(rolled.nodes) == 6
    assert {node.scope for node in rolled.nodes.values()} == {"", "×20", "×20.layers.0"}


def test_the_modules_of_a_step_are_in_the_order_of_its_nodes() -> None:
    b, names = Builder(), [f"part{letter}" for letter in "hfbdgace"]
    value: Value = b.tensor("x", META)
    for _ in range(4):
        for name in names:
            value = b.function("tanh", [value], [META], scope=f"cell.{name}")
    b.output(value)
    rolled = once(b.build(scopes=[Scope("cell"), *(Scope(f"cell.{name}") for name in names)]))
    assert [path for path in rolled.scopes if path.startswith("cell.×4.")] == [f"cell.×4.{name}" for name in names]


def test_a_step_whose_result_is_taken_elsewhere_stays() -> None:
    graph = loop(50, leaks=True)
    assert once(graph) is graph


@pytest.mark.parametrize("steps", [1, 2])
def test_few_steps_are_all_shown(steps: int) -> None:
    graph = loop(steps)
    assert once(graph) is graph


def test_steps_that_differ_are_not_merged() -> None:
    b = Builder()
    value: Value = b.tensor("x", META)
    for number in range(20):
        value = b.function("mul", [value], [META], attrs={"other": number})
    b.output(value)
    graph = b.build()
    assert once(graph) is graph


def test_a_graph_that_is_not_large_is_as_it_was() -> None:
    graph = loop(49)
    assert len(graph.nodes) == 150
    assert readable(graph) == (graph, "")


def test_a_large_graph_has_a_note_on_its_folding() -> None:
    small = readable(loop(5000))
    assert small is not None
    assert small.note == "15,003 nodes as 6 boxes: repeated steps once"
    assert 'label="15,003 nodes as 6 boxes: repeated steps once"' in small.graph.to("dot", caption=small.note)
    mermaid = small.graph.to("mermaid", caption=small.note)
    assert mermaid.startswith('---\ntitle: "15,003 nodes as 6 boxes: repeated steps once"\nconfig:\n')


def test_a_graph_is_folded_where_nothing_repeats() -> None:
    b = Builder()
    value: Value = b.tensor("x", META)
    for number in range(200):
        value = b.function("mul", [value], [META], scope=f"h.{number // 10}", attrs={"other": number})
    b.output(value)
    small = readable(b.build())
    assert small is not None
    assert small.note == "202 nodes as 22 boxes: folded to depth 2"


def experts(count: int) -> Graph:
    """Heads side by side, each with its slice of a gate, that are added up."""
    b = Builder()
    x = b.tensor("x", META)
    gate = b.function("softmax", [x], [META])
    total: Value | None = None
    for number in range(count):
        path = f"heads.{number}"
        weight = b.tensor(f"{path}.w", META, role="parameter", scope=path)
        part = b.function("slice", [gate], [META], attrs={"start": number})
        head = b.function("mul", [part, b.function("mm", [x, weight], [META], scope=path)], [META])
        total = b.function("add", [total, head], [META])
    b.output(total)
    return b.build(scopes=[Scope("heads", "ModuleList"), *(Scope(f"heads.{n}", calls=1) for n in range(count))])


def test_steps_that_differ_in_attributes_alone_are_drawn_once_where_nothing_else_helps() -> None:
    assert once(experts(24)) == experts(24)
    small = readable(experts(100))
    assert small is not None
    check(small.graph)
    assert small.note == "503 nodes as 13 boxes: nearly equal steps once"
    framed = [node.op or node.role for node in small.graph.nodes.values() if "×99" in node.scope]
    assert framed == ["slice", "parameter", "mm", "mul", "add"], "a step ends where its sum is made"


def test_calls_of_folded_modules_that_are_alike_are_drawn_once() -> None:
    b = Builder()
    weights = {path: b.tensor(f"{path}.w", META, role="parameter", scope=path) for path in ("a", "c")}
    value: Value = b.tensor("x", META)
    for number in range(100):
        for path, times in (("a", 1 + number % 5), ("c", 1)):
            for _ in range(times):
                value = b.function("mm", [value, weights[path]], [META], scope=path)
    b.output(value)
    small = readable(b.build())
    assert small is not None
    check(small.graph)
    assert small.note.endswith("folded to depth 1, nearly equal steps once")
    assert [node.label for node in small.graph.nodes.values() if "×" in node.scope] == ["a (2)", "c (2)"]


def branches(count: int, *, apart: bool = False) -> Graph:
    """Equal branches from one node to another; where they are ``apart``, each ends in a node of its own."""
    b = Builder()
    parts = b.function("unbind", [b.tensor("x", META)], [META] * count)
    made: list[Value] = []
    for number in range(count):
        weight = b.tensor(f"heads.{number}.w", META, role="parameter", scope=f"heads.{number}")
        head = b.function("mm", [parts.output(number), weight], [META], scope=f"heads.{number}")
        made.append(b.function("tanh", [head], [META]))
    if apart:
        for number, value in enumerate(made):
            b.output(value, str(number))
    else:
        b.output(b.function("stack", made, [META]))
    return b.build()


def test_equal_branches_side_by_side_are_drawn_once() -> None:
    small = once(branches(100))
    check(small)
    framed = [node.op or node.role for node in small.nodes.values() if "×100" in node.scope]
    assert framed == ["parameter", "mm", "tanh"]
    (stack,) = (node for node in small.nodes.values() if node.op == "stack")
    assert len(stack.inputs) == 100
    assert {small.nodes[ref.id].op for ref in stack.inputs if ref} == {"tanh"}
    assert small.to("dot").count('label=" ×100"') == small.to("mermaid").count('"×100"|') == 1


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
def test_a_frame_says_whether_each_step_feeds_the_next(exporter: str) -> None:
    for graph, words in (
        (loop(50), "×50, each feeds the next"),
        (residual(20), "×20, each feeds the next"),
        (branches(100), "×100, side by side"),
    ):
        assert once(graph).to(exporter).count(f'"{words}"') == 1
        assert f'"{words}"' not in graph.to(exporter, all=True)


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
def test_a_legend_explains_numbers_that_are_there(exporter: str) -> None:
    frame, line = "×N at a frame", "×N at a line"
    chain, beside = once(loop(50)), once(branches(100))
    assert [words in chain.to(exporter, legend=True) for words in (frame, line)] == [True, False]
    assert [words in beside.to(exporter, legend=True) for words in (frame, line)] == [True, True]
    assert "×N" not in loop(5).to(exporter, legend=True)
    assert frame not in chain.to("dot", legend=True, clusters=False)


def test_branches_that_end_in_nodes_of_their_own_are_all_drawn() -> None:
    graph = branches(100, apart=True)
    assert once(graph) is graph


def test_the_note_says_if_no_step_makes_the_graph_smaller() -> None:
    b = Builder()
    parts = [
        b.function("exp", [b.tensor(f"x{number}", META, scope=f"m{number}")], [META], scope=f"m{number}")
        for number in range(100)
    ]
    b.output(b.function("cat", parts, [META]))
    small = readable(b.build())
    assert small is not None
    assert small.note == "202 nodes as 102 boxes: folded to depth 1, no step makes them 60"


def test_a_loop_over_inputs_of_its_own_is_drawn_once() -> None:
    b = Builder()
    w, u = (b.tensor(name, META, role="parameter") for name in "wu")
    state: Value = b.tensor("h", META)
    # A capture lists what needs nothing of the loop before all of it.
    inputs = [b.function("mm", [None, w], [META]) for _ in range(50)]
    for own in inputs:
        both = b.function("add", [own, b.function("mm", [state, u], [META])], [META])
        state = b.function("tanh", [both], [META])
    b.output(state)
    graph = b.build()
    assert len(graph.nodes) == 204
    small = once(graph)
    check(small)
    assert len(small.nodes) == 8
    assert [node.op for node in small.nodes.values() if "×50" in node.scope] == ["mm", "mm", "add", "tanh"]


def test_a_large_graph_is_folded_to_its_smallest() -> None:
    b = Builder()
    flat = [b.function("mm", [b.tensor(f"w{n}", META, scope=f"l{n}")], [META], scope=f"l{n}") for n in range(200)]
    b.output(b.function("cat", flat, [META]))
    small = smallest(b.build())
    assert len(small.graph.nodes) == 202
    assert small.note == "402 nodes as 202 boxes: folded to depth 1"


def test_the_search_for_the_smallest_graph_folds_once_for_each_depth_that_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Builder()
    paths = [f"heads.{number}th" for number in range(200)]
    flat = [b.function("mm", [b.tensor(f"{path}.w", META, scope=path)], [META], scope=path) for path in paths]
    b.output(b.function("cat", flat, [META], attrs={"dim": 0}))
    depths = list[int]()

    def fold_and_count(graph: Graph, depth: int) -> Graph:
        depths.append(depth)
        return fold(graph, depth)

    monkeypatch.setattr(readability, "fold", fold_and_count)
    graph = b.build(scopes=[Scope("heads", "ModuleList"), *(Scope(path, calls=1) for path in paths)])
    assert smallest(graph).note == "402 nodes as 202 boxes: folded to depth 2"
    assert depths == [2], "depth 1 has the same modules, since a list is none"


def test_a_graph_that_no_step_makes_small_is_unreadable() -> None:
    b = Builder()
    b.output(b.function("cat", [b.tensor(f"x{number}", META) for number in range(200)], [META]))
    assert readable(b.build()) is None


@pytest.mark.parametrize("taken", [["cell.×50", "cell.×50 (3)"], ["cell.×50", "cell.×500"]])
def test_a_frame_of_equal_steps_gets_the_first_free_number(taken: list[str]) -> None:
    graph = loop(50)
    small = once(replace(graph, scopes={**graph.scopes, **{path: Scope(path) for path in taken}}))
    assert {*small.scopes} == {*graph.scopes, *taken, "cell.×50 (2)"}


def triples(count: int) -> Graph:
    """A chain of operations, each three times in a row."""
    b = Builder()
    value: Value = b.tensor("x", META)
    for number in range(3 * count):
        value = b.function(f"op{number // 3 * 7919 % 101}", [value], [META])
    b.output(value)
    return b.build()


@pytest.mark.parametrize("draw", [once, lambda graph: graph.to("html")])
def test_the_time_is_linear_in_the_number_of_frames(draw: Callable[[Graph], object]) -> None:
    few, many = triples(150), triples(600)
    draw(few)
    assert steps(lambda: draw(many)) < 5 * steps(lambda: draw(few))


def test_the_caption_is_text() -> None:
    graph = loop(1)
    for text in ('a "b" \\N <c>', "two\nlines"):
        assert graph.to("dot", caption=text).count("\n") == graph.to("dot").count("\n") + 1
        assert graph.to("mermaid", caption=text).count("\n") == graph.to("mermaid").count("\n") + 1


@pytest.mark.parametrize("steps", [30_000])
def test_a_long_chain_needs_no_recursion(steps: int) -> None:
    small = readable(loop(steps))
    assert small is not None
    assert len(small.graph.nodes) == 6
