"""What is renamed or moved is one change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from diff_pairs import META
from edit_scripts import Plan, draw_plan, plan, script
from reports import node_fields, render_text

import gradir
from gradir.diffs.changes import Change, FieldChange
from gradir.diffs.compare import compare
from gradir.ir import Builder, Cut, Graph, Node, Ref, Saved, Scope, TensorMeta


def network(stack: str = "layers", first: int = 0, weight: str = "weight", op: str = "relu") -> Graph:
    """Two layers of a stack, each a parameter and two functions, with their modules and a cut."""
    b = Builder()
    value = b.tensor("x", META[0])
    scopes = [Scope("", "Model"), Scope(stack, "ModuleList")]
    for number in range(first, first + 2):
        path = f"{stack}.{number}"
        scopes += [Scope(path, "Layer"), Scope(f"{path}.fc", "Linear"), Scope(f"{path}.drop", "Dropout")]
        matrix = b.tensor(f"{path}.fc.{weight}", META[0], role="parameter", scope=f"{path}.fc")
        product = b.function("mm", [value, matrix], META, scope=f"{path}.fc", saved=[(Saved("mat2", bytes=32), matrix)])
        value = b.function(op, [product], META, scope=path)
    b.output(value)
    cut = Cut("unreached", (f"{stack}.{first}.fc.bias",), f"{stack}.{first}.fc")
    return b.build(scopes=scopes, cuts=[cut])


def test_a_renamed_module_is_one_change() -> None:
    diff = compare(network(), network("net.blocks"))
    assert diff.changes == (Change("renamed", "module", "net.blocks", old_id="layers", nodes=6),)
    assert render_text(diff).splitlines()[0] == "+0 -0 ~0 nodes; 1 module renamed"
    assert "  > module layers -> net.blocks  6 nodes" in render_text(diff).splitlines()


def test_shifted_indices_are_one_change() -> None:
    assert compare(network(), network(first=3)).changes == (
        Change(
            "changed",
            "graph",
            "indices",
            fields=(
                FieldChange(("scopes",), "layers.0", "layers.3"),
                FieldChange(("nodes",), "layers.0.fc.weight", "layers.3.fc.weight"),
            ),
        ),
    )


def test_a_renamed_tensor_is_a_renamed_node() -> None:
    diff = compare(network(), network(weight="kernel"))
    assert [(change.kind, change.subject, change.old_id, change.id) for change in diff.changes] == [
        ("renamed", "node", f"layers.{number}.fc.weight", f"layers.{number}.fc.kernel") for number in (0, 1)
    ]
    text = render_text(diff)
    assert text.startswith("+0 -0 ~0 >2 nodes\n")
    assert "  > layers.0.fc.weight -> layers.0.fc.kernel  parameter float32[2, 4]\n" in text


def test_another_operation_is_a_change_of_its_node() -> None:
    diff = compare(network(), network(op="gelu"))
    assert gradir.patch(network(), diff) == network(op="gelu")
    assert [(change.kind, change.old_id, change.id) for change in diff.changes] == [
        ("changed", f"layers.{number}/relu:1", f"layers.{number}/gelu:1") for number in (0, 1)
    ]
    assert diff.changes[0].fields == (FieldChange(("op",), "relu", "gelu"),), "what is its own is that of a new node"
    assert "  ~ layers.0/relu:1 -> layers.0/gelu:1  gelu float32[2, 4]\n" in render_text(diff)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("exp", {"op": ("view", "exp"), "attrs.dim": ("1", "2"), "out[0].shape": ("[2, 4]", "[8]")}),
        (
            "unsafe_view",
            {"op": ("view", "unsafe_view"), "attrs.dim": ("1", "2"), "saved.a": ("?[?] 8 bytes", None)}
            | {"out[0].shape": ("[2, 4]", "[8]")},
        ),
    ],
)
def test_fields_of_an_operation_are_compared_with_one_that_does_the_same(
    op: str, said: dict[str, tuple[str | None, str | None]]
) -> None:
    before = {"op": "view", "outputs": META, "attrs": {"dim": 1}, "saved": (Saved("a", bytes=8),)}
    after = {"op": op, "outputs": (TensorMeta("float32", (8,)),), "attrs": {"dim": 2}}
    assert node_fields(before, after) == said


def test_a_node_in_another_module_has_moved() -> None:
    def placed(scope: str) -> Graph:
        b = Builder()
        value = b.function("exp", [b.tensor("x", META[0])], META, scope="a")
        value = b.function("sin", [value], META, scope=scope)
        b.output(b.function("log", [value], META, scope="b"))
        return b.build()

    diff = compare(placed("a"), placed("b"))
    assert diff.changes == (Change("moved", "node", "b/sin:1", "b", "sin", old_id="a/sin:1", tensor=META[0]),)
    assert "  ^ a/sin:1 -> b/sin:1  sin float32[2, 4]\n" in render_text(diff)


def test_references_before_have_the_names_of_the_first_graph() -> None:
    seed = plan(40, 3)
    layers = (replace(seed.layers[0], kind="mlp"), replace(seed.layers[0], uid="u1", kind="mlp"))
    without = draw_plan(Plan(layers, prefix="blocks")).graph
    inserted = draw_plan(Plan((layers[0], replace(layers[0], uid="new", kind="conv"), layers[1]))).graph
    changed = [change for change in compare(inserted, without).changes if change.fields and change.subject == "node"]
    assert changed
    for change in changed:
        for field in change.fields:
            if field.path[0] == "in":
                assert field.before.id in inserted.nodes
                assert field.after.id in without.nodes


def test_a_diff_with_renames_has_a_golden(golden: Callable[[str, str], None]) -> None:
    made = script(plan(60, 3), ["insert layer", "rename prefix", "swap op"], 4)
    golden("diff/renamed.txt", render_text(compare(made.before, made.after)))


def staged(around: str, stages: str) -> Graph:
    """Three modules that stay, and two that may lie in a module of their own."""
    b = Builder()
    value = b.tensor("x", META[0])
    paths = [f"{around}{name}" for name in ("stem", "norm", "pool", f"{stages}layer1", f"{stages}layer2")]
    for path in paths:
        value = b.function("exp", [value], META, scope=path)
    b.output(value)
    above = dict.fromkeys(path.rpartition(".")[0] for path in paths)
    return b.build(scopes=[Scope("", "Model"), *(Scope(path, "Net") for path in above if path), *map(Scope, paths)])


@pytest.mark.parametrize("around", ["", "net."])
def test_modules_that_moved_into_a_new_one_are_named_and_not_what_holds_them(around: str) -> None:
    one, other = staged(around, ""), staged(around, "stages.")
    layers, inside = f"{around}{{layer1,layer2}}", f"{around}stages.{{layer1,layer2}}"
    assert str(gradir.diff(one, other)).splitlines()[:5] == [
        f"{layers} are now {inside}; Net put in as {around}stages; nothing else.",
        "+0 -0 ~0 nodes; +1 -0 ~0 scopes; 2 modules renamed",
        "",
        "(whole graph)",
        f"  > 2 modules {layers} -> {inside}  2 nodes",
    ]
    assert str(gradir.diff(other, one)).splitlines()[0] == (
        f"{inside} are now {layers}; Net {around}stages left out; nothing else."
    )


def test_a_node_that_went_into_a_new_module_does_not_rename_the_top_level() -> None:
    def graph(scope: str) -> Graph:
        sin = f"{scope}/sin:1".lstrip("/")
        names = {"exp:1": ("x", ""), sin: ("exp:1", scope), "cos:1": (sin, "")}
        nodes = (
            Node(name, op=name.rpartition("/")[2][:-2], scope=path, inputs=(Ref(source, 0),))
            for name, (source, path) in names.items()
        )
        return Graph.of([Node("x", role="leaf"), *nodes])

    (change,) = gradir.diff(graph(""), graph("body")).changes
    assert (change.kind, change.subject, change.old_id, change.id) == ("moved", "node", "sin:1", "body/sin:1")


@pytest.mark.parametrize("edit", ["insert layer", "delete layer"])
def test_a_layer_is_one_module_without_a_table_of_modules(edit: str) -> None:
    made = script(plan(60, 5), [edit], 5)
    whole = [each for each in gradir.diff(made.before, made.after).findings if each.kind.startswith("module-")]
    assert [each.subjects for each in whole] == [(f"layers.{4 if edit == 'insert layer' else 5}",)]


@pytest.mark.parametrize(("was", "now"), [("net.layers", "layers"), ("layers", "net.layers"), ("layers", "net.blocks")])
def test_the_table_of_a_report_leaves_out_former_names_that_a_renamed_module_explains(was: str, now: str) -> None:
    def graph(path: str, *layers: str) -> Graph:
        b = Builder()
        value = b.tensor("x", META[0])
        for number, ops in enumerate(layers):
            for op in ops.split():
                value = b.function(op, [value], META, scope=f"{path}.{number}")
        b.output(value)
        layer_scopes = (Scope(f"{path}.{number}", "Layer") for number in range(len(layers)))
        return b.build(scopes=[Scope(""), Scope(path, "ModuleList"), *layer_scopes])

    diff = gradir.diff(graph(was, "sin log", "exp sqrt", "cos abs"), graph(now, "sin log", "exp sqrt", "cos abs tanh"))
    rows = [line.split(" | ")[0] for line in diff.to("markdown").splitlines() if line.startswith("| `")]
    assert rows == [f"| `{now}.2`"]
