"""Pictures and tables of a diff say what the diff says, also where names mean something else afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from reports import cut_changed_part, markdown, union

import gradir
from gradir.cli import main
from gradir.diffs.compare import compare
from gradir.errors import GradirError
from gradir.git.configuration import add_block, remove_block
from gradir.ir import Builder, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.marks import status
from gradir.passes import fold


def sequential(*layers: tuple[str, int, int]) -> Graph:
    """A stack of layers: ("Linear", inputs, outputs) with a weight, or another operation."""
    b = Builder()
    value = b.tensor("x", TensorMeta("float32", (2, layers[0][1])))
    for number, (name, wide, out) in enumerate(layers):
        scope = str(number)
        meta = [TensorMeta("float32", (2, out))]
        if name != "Linear":
            value = b.function(name, [value], meta, scope=scope)
            continue
        weight = b.tensor(f"{scope}.weight", TensorMeta("float32", (out, wide)), role="parameter", scope=scope)
        turned = b.function("t", [weight], [TensorMeta("float32", (wide, out))], scope=scope)
        saved = [(Saved("mat1", "float32", (2, wide), 8 * wide), value)]
        value = b.function("mm", [value, turned], meta, scope=scope, saved=saved)
    b.output(value)
    scopes = [Scope(str(number), name) for number, (name, *_) in enumerate(layers)]
    return b.build(scopes=[Scope("", "Sequential"), *scopes])


BEFORE = sequential(("Linear", 4, 4), ("sigmoid", 4, 4), ("Linear", 4, 8), ("tanh", 8, 8), ("Linear", 8, 16))
AFTER = sequential(("Linear", 4, 8), ("tanh", 8, 8), ("Linear", 8, 16))


def test_a_node_that_took_the_name_of_a_removed_one_is_not_marked() -> None:
    found = compare(BEFORE, AFTER)
    whole = union(BEFORE, AFTER, found)
    marked = {node.id for node in whole.nodes.values() if status(node) in {"added", "changed"}}
    assert marked == {change.id for change in found.changes if change.subject == "node" and change.kind != "removed"}
    assert marked <= {"0/mm:1"}


def test_a_removed_module_has_a_frame_of_its_own() -> None:
    whole = union(BEFORE, AFTER, compare(BEFORE, AFTER))
    frames = {node.scope for node in whole.nodes.values() if status(node) == "removed"}
    assert frames == {"0 (removed)", "1 (removed)"}
    assert whole.scopes["0 (removed)"].class_name == "Linear"
    assert whole.scopes["1"].class_name == "tanh"


def test_below_a_removed_module_only_its_top_says_so() -> None:
    a = Graph.of([Node("f:1", op="f", scope="m.n")], [Scope("m", "M"), Scope("m.n", "N")])
    b = Graph.of([Node("g:1", op="g", scope="m.n")], [Scope("", "Other")])
    whole = union(a, b, compare(a, b))
    assert {node.scope for node in whole.nodes.values()} <= {"m.n", "m (removed).n"}


def test_the_table_keeps_modules_of_one_path_apart() -> None:
    found = compare(BEFORE, AFTER)
    assert sum(one.after.parameters - one.before.parameters for one in found.modules) == (
        found.after.parameters - found.before.parameters
    )
    rows = [line for line in markdown(BEFORE, AFTER, found).splitlines() if line.startswith("| `")]
    assert any(row.startswith("| `0` (removed) |") and "| -16 |" in row for row in rows)
    assert any(row.startswith("| `1` (removed) |") for row in rows)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [(["added", "added"], "added"), (["removed", "removed"], "removed"), (["added", ""], "changed"), (["", ""], "")],
)
def test_a_folded_module_is_marked_as_its_nodes_are(marks: list[str], expected: str) -> None:
    nodes = [Node(f"m/f:{n}", op="f", scope="m", ext={"diff": mark} if mark else {}) for n, mark in enumerate(marks)]
    (module,) = fold(Graph.of(nodes), 0).nodes.values()
    assert status(module) == expected


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
def test_a_replaced_operation_shows_its_former_name(exporter: str) -> None:
    def net(op: str, attrs: dict[str, int], after: str = "sum") -> Graph:
        nodes = [Node("x", role="leaf"), Node(f"act/{op}:1", op=op, native=f"{op}Backward0", inputs=(Ref("x", 0),))]
        nodes.append(Node(f"{after}:1", op=after, inputs=(Ref(nodes[-1].id, 0),), attrs=attrs))
        return Graph.of([*nodes, Node("output", role="output", inputs=(Ref(nodes[-1].id, 0),))])

    text = gradir.diff(net("gelu", {"dim": 0}), net("relu", {"dim": 1})).to(exporter).replace("#126;", "~")
    assert '"~ gelu → relu"' in text
    assert '"~ sum"' in text, "what changed otherwise is the same operation"
    # What a file claims of an unmarked or an odd node is not drawn.
    for ext in ({"was": "gelu"}, {"diff": "added", "was": "gelu"}, {"diff": "changed", "was": 3}):
        assert "→" not in Graph.of([Node("f:1", op="relu", ext=ext)]).to(exporter)
    hostile = Graph.of([Node("f:1", op="relu", ext={"diff": "changed", "was": 'a"\n\x1b]'})]).to(exporter)
    assert all(char.isprintable() or char in "\t\n" for char in hostile)


def test_an_input_that_went_elsewhere_is_drawn_as_lost() -> None:
    def rewired(second: str) -> Graph:
        b = Builder()
        leaves = {name: b.tensor(name, TensorMeta("float32", (1,))) for name in ("a", "b", "x")}
        for name, value in leaves.items():
            b.output(value, name)
        b.output(b.function("mul", [leaves["a"], leaves[second]], [TensorMeta("float32", (1,))]), "y")
        return b.build()

    before, after = rewired("b"), rewired("x")
    part = cut_changed_part(before, after, compare(before, after))
    assert {"a", "b", "x", "mul:1"} <= set(part.nodes)
    assert part.to("dot").count('style="dashed"') == 1
    assert part.to("mermaid", accumulators=True).count("-.->") == 1


def test_a_pure_rename_says_that_there_is_nothing_to_draw(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    graph = sequential(("Linear", 4, 4), ("tanh", 4, 4))
    text = gradir.dumps(graph).replace(b'"0', b'"enc').replace(b'"path":"0"', b'"path":"enc"')
    (tmp_path / "a.gir").write_bytes(gradir.dumps(graph))
    (tmp_path / "b.gir").write_bytes(text)
    assert main(["diff", str(tmp_path / "a.gir"), str(tmp_path / "b.gir"), "--format", "mermaid"]) == 1
    assert "cannot draw the diff" in capfd.readouterr().err


def test_fields_with_brackets_are_ignored_as_they_are_printed() -> None:
    a = Graph.of([Node("x", outputs=(TensorMeta("float32", (1,)),))])
    b = Graph.of([Node("x", outputs=(TensorMeta("float32", (2,)),))])
    assert gradir.diff(a, b)
    for pattern in ("out[0].shape", "out[0]", "out", "o*", "out[*].shape"):
        assert not gradir.diff(a, b, ignore=[pattern]), pattern
    assert gradir.diff(a, b, ignore=["out[1]"])


def test_another_reshape_is_normalized_with_the_numbers_behind_it() -> None:
    def made(first: str) -> Graph:
        b = Builder()
        value = b.tensor("x", TensorMeta("float32", (12,)))
        for op in (first, "exp", "view"):
            value = b.function(op, [value], [TensorMeta("float32", (12,))])
        b.output(value)
        return b.build()

    assert gradir.diff(made("view"), made("unsafe_view"))
    assert not gradir.diff(made("view"), made("unsafe_view"), normalize=True)


def test_long_names_and_many_renames_fit_into_a_report() -> None:
    def named(prefix: str, count: int, width: int) -> Graph:
        nodes = [Node(f"{prefix}{n}{'x' * width}/f:1", op="f", scope=f"{prefix}{n}{'x' * width}") for n in range(count)]
        return Graph.of(nodes, [Scope(node.scope) for node in nodes])

    for a, b in ((named("a", 300, 1), named("b", 300, 1)), (named("a", 45, 2000), Graph.of([]))):
        text = markdown(a, b, compare(a, b))
        assert len(text) < 65_536
    backticks = Graph.of([Node("f:1", op="f", scope="a``b</details>")])
    lines = markdown(Graph.of([]), backticks, compare(Graph.of([]), backticks)).splitlines()
    row = next(line for line in lines if "</details>" in line)
    assert row.startswith("| ```a``b</details>``` |")


@pytest.mark.parametrize("text", ["x\n# gradir: begin\n*.png binary\n", "# gradir: end\n", 2 * "# gradir: begin\n"])
def test_attributes_with_half_a_block_are_left_alone(text: str) -> None:
    for edit in (remove_block, lambda text: add_block(text, ["*.gir diff=gradir"])):
        with pytest.raises(GradirError, match="correct them by hand"):
            edit(text)
