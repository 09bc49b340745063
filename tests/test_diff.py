"""What a diff says of two graphs, and the laws it keeps."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import msgspec
import pytest
from diff_pairs import META, NODE_EDITS, SCOPE_EDITS, edited, pairs
from edit_scripts import Plan, drawn, plan, script
from hypothesis import given
from reports import render_text, words_of
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs, texts

import gradir
from gradir.diffs.changes import UNSET, Change, Diff, FieldChange, Kind, Totals
from gradir.diffs.compare import compare
from gradir.diffs.diff_json import decode, encode
from gradir.diffs.field_changes import descriptions
from gradir.diffs.matching import match
from gradir.ir import Builder, Cut, Graph, Node, NonFinite, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.fields import fields_of as fields_of_record
from gradir.review.text import ANSI, Palette

MIRRORED = {"added": "removed", "removed": "added"}


def content(graph: Graph) -> bytes:
    """What a graph says, its producer apart, in the exact types of its values."""
    records = [*graph.nodes.values()], [*graph.scopes.values()], graph.cuts
    return msgspec.json.encode(records, order="deterministic")


def fields_of(diff: Diff, record: str) -> dict[str, tuple[str | None, str | None]]:
    found = [change for change in diff.changes if change.id == record]
    assert len(found) == 1
    return {field.name: words_of(field) for field in found[0].fields}


def node_fields(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    graphs = [Graph.of([Node("x"), Node("n", **fields)]) for fields in (before, after)]
    return fields_of(compare(*graphs), "n")


def test_edits_of_everything_have_a_golden(golden: Callable[[str, str], None]) -> None:
    diff = compare(everything(), edited())
    golden("diff/edited.txt", render_text(diff))
    golden("diff/edited.json", msgspec.json.format(msgspec.json.encode(diff), indent=2).decode() + "\n")
    golden("diff/edited-back.txt", render_text(compare(edited(), everything())))


def test_gradir_diff_is_compare() -> None:
    assert gradir.diff(everything(), edited()) == compare(everything(), edited())


@given(graphs())
def test_a_graph_does_not_differ_from_itself_read_back(graph: Graph) -> None:
    diff = compare(graph, gradir.loads(gradir.dumps(graph)))
    assert not diff
    assert diff.before == diff.after
    assert render_text(diff) == "no difference\n"


@given(pairs())
def test_a_diff_is_empty_exactly_when_the_graphs_say_the_same(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    assert bool(compare(a, b)) == (content(a) != content(b))


@given(graphs(), texts)
def test_what_made_a_graph_does_not_count(graph: Graph, version: str) -> None:
    assert not compare(graph, msgspec.structs.replace(graph, producer=Producer(version, "jax", version)))


@given(pairs())
def test_the_way_back_mirrors_the_way_there(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    there, back = compare(a, b), compare(b, a)

    def facts(diff: Diff) -> list[tuple[Any, ...]]:
        return sorted(
            (change.subject, change.id, change.kind, _fields(change), *_side(change)) for change in diff.changes
        )

    def _fields(change: Change) -> list[str]:
        # Of all that moved only the first is named, and which is first depends on the direction.
        return sorted(field.name if change.subject == "graph" else repr(field) for field in change.fields)

    def _side(change: Change) -> tuple[str, ...]:
        return (change.scope, change.what, repr(change.tensor)) if change.kind in MIRRORED else (change.was,)

    mirrored = [
        msgspec.structs.replace(
            change,
            kind=MIRRORED.get(change.kind, change.kind),
            id=change.was if change.was or change.subject == "module" else change.id,
            was=change.id if change.was or change.subject == "module" else "",
            fields=tuple(FieldChange(field.path, field.after, field.before) for field in change.fields),
        )
        for change in back.changes
    ]
    assert facts(there) == facts(Diff(back.after, back.before, tuple(mirrored)))
    assert (there.before, there.after) == (back.after, back.before)


@given(pairs())
def test_added_removed_and_changed_nodes_account_for_every_id(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    nodes = match(a, b).nodes
    kinds: dict[str, set[str]] = {kind: set() for kind in get_args(Kind)}
    for change in compare(a, b).changes:
        if change.subject == "node":
            assert change.id not in kinds[change.kind]
            kinds[change.kind].add(change.id)
            if change.kind not in MIRRORED:
                assert nodes[change.was or change.id] == change.id
    assert kinds["added"] == b.nodes.keys() - set(nodes.values())
    assert kinds["removed"] == a.nodes.keys() - nodes.keys()
    if nodes.keys() == a.nodes.keys() & b.nodes.keys() and all(old == new for old, new in nodes.items()):
        differ = {
            node_id
            for node_id in nodes
            if content(Graph.of([a.nodes[node_id]])) != content(Graph.of([b.nodes[node_id]]))
        }
        changed = kinds["changed"] | kinds["renamed"] | kinds["moved"]
        assert changed <= differ
        # What differs in its scope alone may follow from a renamed module or a shifted index.
        assert all(a.nodes[node_id].scope != b.nodes[node_id].scope for node_id in differ - changed)


@given(pairs())
def test_a_diff_survives_json(pair: tuple[Graph, Graph]) -> None:
    diff = compare(*pair)
    read = decode(encode(diff))
    assert read == diff
    # In type too, which equality does not tell.
    assert repr(read.changes) == repr(diff.changes)


@given(pairs())
def test_the_text_has_one_line_for_each_fact(pair: tuple[Graph, Graph]) -> None:
    diff = compare(*pair)
    text = render_text(diff)
    lines = text.splitlines()
    assert lines == text.split("\n")[:-1]
    assert all(line.isprintable() for line in lines)
    signs = [line[2] for line in lines[1:] if line[:2] == "  " and line[2] != " "]
    kinds = {"+": "added", "-": "removed", "~": "changed", ">": "renamed", "^": "moved"}
    assert sorted(kinds[sign] for sign in signs) == sorted(change.kind for change in diff.changes)
    fields = [line for line in lines[1:] if line.startswith("      ")]
    assert len(fields) == sum(len(change.fields) for change in diff.changes)


@given(pairs())
def test_colour_only_decorates(pair: tuple[Graph, Graph]) -> None:
    diff = compare(*pair)
    # The text is printable, so these marks are the palette's own.
    coloured = render_text(diff, palette=Palette("\1", "\2", "\3", "\4", "\5"))
    assert re.sub("[\1-\5]", "", coloured) == render_text(diff)


def test_colour_marks_the_kind_of_each_change() -> None:
    ansi = render_text(compare(everything(), edited()), palette=ANSI)
    assert "\x1b[32m+ fc/relu:1" in ansi
    assert "\x1b[31m- output:1.var" in ansi
    assert "\x1b[33m~ mul:1" in ansi


def test_every_field_of_a_record_is_compared() -> None:
    assert set(descriptions(Node)) == set(NODE_EDITS) == set(Node.__struct_fields__) - {"id"}
    assert set(descriptions(Scope)) == set(SCOPE_EDITS) == set(Scope.__struct_fields__) - {"path"}
    assert set(descriptions(Cut)) == set(Cut.__struct_fields__)


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({"role": "leaf"}, {"role": "parameter"}, {"role": ("leaf", "parameter")}),
        ({"op": "mul"}, {"op": "a b"}, {"op": ("mul", '"a b"')}),
        ({}, {"native": "MulBackward0"}, {"native": (None, "MulBackward0")}),
        ({"names": ("a",)}, {"names": ("a", "b c")}, {"names": ("[a]", '[a, "b c"]')}),
        ({"inputs": (None,)}, {"inputs": (Ref("x", 0), Ref("x", 1))}, {"in[0]": ("-", "x"), "in[1]": (None, "x[1]")}),
        (
            {"outputs": (TensorMeta("f", (1, "s0")),)},
            {"outputs": (TensorMeta("f", (1, "0")),)},
            {"out[0].shape": ("[1, s0]", '[1, "0"]')},
        ),
        ({"outputs": ()}, {"outputs": META}, {"out[0]": (None, "float32[2, 4]")}),
        (
            {"outputs": (TensorMeta(),)},
            {"outputs": (TensorMeta("f", (), "cuda:0", "coo"),)},
            {
                "out[0].dtype": (None, "f"),
                "out[0].shape": (None, "[]"),
                "out[0].device": ("cpu", "cuda:0"),
                "out[0].layout": ("strided", "coo"),
            },
        ),
        ({"attrs": {"dim": 1}}, {"attrs": {"dim": 1.0}}, {"attrs.dim": ("1", "1.0")}),
        ({"attrs": {"dim": 1}}, {"attrs": {"dim": True}}, {"attrs.dim": ("1", "true")}),
        (
            {"attrs": {"x.y": ()}},
            {"attrs": {"x.y": ((NonFinite("nan"), None), "a")}},
            {'attrs."x.y"': ("[]", '[[nan, null], "a"]')},
        ),
        ({"ext": {"a": "1"}}, {"ext": {"a": 1}}, {"ext.a": ('"1"', "1")}),
        ({"attrs": {"a": 1}}, {"ext": {"a": 1}}, {"attrs.a": ("1", None), "ext.a": (None, "1")}),
        (
            {"saved": (Saved("a", bytes=4),)},
            {"saved": (Saved("a", bytes=8, state="freed"),)},
            {"saved.a.bytes": ("4", "8"), "saved.a.state": ("held", "freed")},
        ),
        (
            {"saved": (Saved("a"), Saved("a", bytes=4))},
            {"saved": (Saved("a"), Saved("a", bytes=8))},
            {"saved.a#2.bytes": ("4", "8")},
        ),
        (
            {"saved": (Saved("a", origin=Ref("x", 1)),)},
            {"saved": (Saved("a", storage="x"),)},
            {"saved.a.origin": ("x[1]", None), "saved.a.storage": (None, "x")},
        ),
        (
            {"saved": (Saved("a", "f", (2,), 8, Ref("x", 0), "x"),)},
            {"saved": (Saved("a", state="hooked"),)},
            {"saved.a": ("f[2] 8 bytes", "hooked")},
        ),
        ({"saved": (Saved("a", state="hooked"),)}, {"saved": (Saved("a"),)}, {"saved.a": ("hooked", "?[?]")}),
        (
            {"saved": (Saved("a", state="hooked"),)},
            {"saved": (Saved("a", state="x y"),)},
            {"saved.a": ("hooked", '"x y"')},
        ),
        ({"saved": ()}, {"saved": (Saved("b", "f", (2,), 8),)}, {"saved.b": (None, "f[2] 8 bytes")}),
        ({"saved": (Saved("a"), Saved("b"))}, {"saved": (Saved("b"), Saved("a"))}, {"saved": ("[a, b]", "[b, a]")}),
        ({"base": "x"}, {}, {"base": ("x", None)}),
        ({}, {"opaque": True}, {"opaque": (None, "true")}),
        ({"source": Source("m.py", 1)}, {"source": Source("m.py", 2, "f")}, {"source": ("m.py:1", "m.py:2 f")}),
    ],
)
def test_each_field_is_reported_by_its_path(
    before: dict[str, Any], after: dict[str, Any], fields: dict[str, tuple[str | None, str | None]]
) -> None:
    assert node_fields(before, after) == fields


def test_a_removed_node_stands_where_it_stood() -> None:
    a = Graph.of([Node(name) for name in "qarbs"])
    b = Graph.of([Node(name) for name in "axby"])
    changes = [(change.kind, change.id) for change in compare(a, b).changes]
    assert changes == [("removed", "q"), ("removed", "r"), ("added", "x"), ("removed", "s"), ("added", "y")]


def test_another_order_is_one_change() -> None:
    a = Graph.of(
        [Node(name) for name in "abcd"], [Scope("m"), Scope("n")], [Cut("unreached", ("p",)), Cut("unreached", ("q",))]
    )
    b = Graph.of([Node(name) for name in "adcbx"], reversed(a.scopes.values()), reversed(a.cuts))
    assert compare(a, b).changes == (
        Change("added", "node", "x", what="function"),
        Change(
            "changed",
            "graph",
            "order",
            fields=(
                FieldChange(("nodes",), "b", "d"),
                FieldChange(("scopes",), "m", "n"),
                FieldChange(("cuts",), "p", "q"),
            ),
        ),
    )
    assert render_text(compare(a, b)).startswith("+1 -0 ~0 nodes; order changed\n")


def test_cuts_are_matched_by_parameter_even_when_one_occurs_twice() -> None:
    a = Graph.of([], [], [Cut("unreached", ("w",)), Cut("unreached", ("w",)), Cut("hidden")])
    b = Graph.of([], [], [Cut("unreached", ("w",)), Cut("hidden", ("w", "v")), Cut("hidden"), Cut("hidden")])
    assert compare(a, b).changes == (
        Change(
            "changed",
            "cut",
            "w",
            what="hidden",
            fields=(FieldChange(("kind",), "unreached", "hidden"), FieldChange(("names",), ("w",), ("w", "v"))),
        ),
        Change("added", "cut", "hidden", what="hidden"),
    )


def counted(own: int, trainable: int, shared: int = 0, frozen: int = 0) -> Graph:
    """A module in another that has no parameter itself, and a scope table that leaves out what is between them."""
    total = own + 7 - shared
    scopes = [
        Scope("", "Net", total=total, trainable=trainable + 7 - shared - frozen),
        Scope("a.b", "Linear", own=own, total=own, trainable=trainable),
        Scope("c", "Linear", own=7, total=7, trainable=7 - frozen),
    ]
    return Graph.of([], scopes)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (counted(5, 5), {"a.b": ["own"]}),
        (counted(3, 0), {"a.b": ["trainable"]}),
        (counted(5, 3), {"a.b": ["own", "total"]}),
        (counted(3, 3, shared=2), {"": ["total", "trainable"]}),
        (counted(6, 6, shared=2), {"": ["total", "trainable"], "a.b": ["own"]}),
        (counted(3, 3, frozen=7), {"c": ["trainable"]}),
    ],
)
def test_counts_that_only_follow_are_not_said(after: Graph, said: dict[str, list[str]]) -> None:
    found = compare(counted(3, 3), after).changes
    assert {change.id: [field.name for field in change.fields] for change in found} == said


def test_counts_that_follow_from_a_module_put_in_are_not_said() -> None:
    before = counted(3, 3)
    more = msgspec.structs.replace(before.scopes[""], total=14, trainable=14)
    after = Graph.of([], [more, *list(before.scopes.values())[1:], Scope("d", own=4, total=4, trainable=4)])
    (change,) = compare(before, after).changes
    assert (change.kind, change.id) == ("added", "d")


def test_the_first_line_counts() -> None:
    parameter = Node("w", role="parameter", outputs=(TensorMeta("float32", (64, 192)),))
    use = Node("f:1", op="f", inputs=(Ref("w", 0), None), saved=(Saved("a", bytes=1_000),))
    a = Graph.of([use], [Scope("m")])
    grown = msgspec.structs.replace(use, saved=(Saved("a", bytes=5_200),))
    b = Graph.of([parameter, grown], [Scope("m", calls=1)], [Cut("unreached", ("p",))])
    headline = "+1 -0 ~0 cuts; +1 -0 ~1 nodes; +0 -0 ~1 scopes; parameters +12,288; saved bytes +4.2 kB (+420.0 %)"
    assert render_text(compare(a, b)).splitlines()[0] == headline


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "+1 B"),
        (999, "+999 B"),
        (1_000, "+1.0 kB"),
        (999_940, "+999.9 kB"),
        (999_960, "+1.0 MB"),
        (-1_500_000_000, "-1.5 GB"),
        (2**62, "+4.6 EB"),
        # What is beyond counting is said to be.
        (2**63 - 1, "≥ +9.2 EB"),
        (10**22, "≥ +9.2 EB"),
    ],
)
def test_bytes_are_short(count: int, text: str) -> None:
    diff = Diff(Totals(saved_bytes=max(-count, 0)), Totals(saved_bytes=max(count, 0)), (Change("added", "node", "x"),))
    assert f"saved bytes {text}" in render_text(diff).splitlines()[0]


def test_groups_follow_the_scopes() -> None:
    diff = compare(
        Graph.of([]), Graph.of([Node("a", scope="m"), Node("b"), Node("c", scope="m"), Node("d", scope="(top level)")])
    )
    headings = [line for line in render_text(diff).splitlines()[1:] if line and not line.startswith(" ")]
    assert headings == ["m", "(top level)", '"(top level)"']


def test_hostile_text_stays_on_its_line() -> None:
    for diff in (compare(hostile(), Graph.of([])), compare(Graph.of([]), hostile())):
        lines = render_text(diff).split("\n")[1:-1]
        assert all(line.isprintable() for line in lines)
        assert sum(line.startswith("  ") for line in lines) == len(diff.changes)
    for label in HOSTILE_LABELS:
        fields = {"op": label, "native": label, "scope": label, "names": (label,), "attrs": {label: label}}
        diff = compare(Graph.of([Node("x")]), Graph.of([Node("x", **fields)]))  # type: ignore[arg-type]
        assert all(line.isprintable() for line in render_text(diff).split("\n"))


def test_a_diff_from_elsewhere_cannot_break_a_line() -> None:
    evil = "a\n\x1b[31m\u202e"
    change = Change("changed", "node", evil, evil, evil, (FieldChange((evil,), evil, evil),))
    lines = render_text(Diff(Totals(), Totals(), (change,))).split("\n")
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)


def test_long_graphs_are_compared() -> None:
    diff = compare(chain(20_000), chain(20_001))
    assert [(change.kind, change.id) for change in diff.changes] == [("added", "add:20001"), ("changed", "output")]


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
    assert diff.changes == (Change("renamed", "module", "net.blocks", was="layers", nodes=6),)
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
    assert [(change.kind, change.subject, change.was, change.id) for change in diff.changes] == [
        ("renamed", "node", f"layers.{number}.fc.weight", f"layers.{number}.fc.kernel") for number in (0, 1)
    ]
    text = render_text(diff)
    assert text.startswith("+0 -0 ~0 >2 nodes\n")
    assert "  > layers.0.fc.weight -> layers.0.fc.kernel  parameter float32[2, 4]\n" in text


def test_another_operation_is_a_change_of_its_node() -> None:
    diff = compare(network(), network(op="gelu"))
    assert gradir.patch(network(), diff) == network(op="gelu")
    assert [(change.kind, change.was, change.id) for change in diff.changes] == [
        ("changed", f"layers.{number}/relu:1", f"layers.{number}/gelu:1") for number in (0, 1)
    ]
    assert diff.changes[0].fields == (FieldChange(("op",), "relu", "gelu"),), "what is its own is that of a new node"
    assert "  ~ layers.0/relu:1 -> layers.0/gelu:1  gelu float32[2, 4]\n" in render_text(diff)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("exp", {"op": ("view", "exp"), "out[0].shape": ("[2, 4]", "[8]")}),
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
    assert diff.changes == (Change("moved", "node", "b/sin:1", "b", "sin", was="a/sin:1", tensor=META[0]),)
    assert "  ^ a/sin:1 -> b/sin:1  sin float32[2, 4]\n" in render_text(diff)


def test_references_before_have_the_names_of_the_first_graph() -> None:
    seed = plan(40, 3)
    layers = (replace(seed.layers[0], kind="mlp"), replace(seed.layers[0], uid="u1", kind="mlp"))
    without = drawn(Plan(layers, prefix="blocks")).graph
    inserted = drawn(Plan((layers[0], replace(layers[0], uid="new", kind="conv"), layers[1]))).graph
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


def value_at(record: Any, path: tuple[str | int, ...]) -> Any:
    """What a record holds at the path of a changed field."""
    key, *rest = path
    (name,) = (field.name for field in fields_of_record(type(record)) if field.key == key)
    value = getattr(record, name)
    if name == "saved":
        slot, *rest = rest
        nth = rest.pop(0) if rest and isinstance(rest[0], int) else 1
        value = [saved for saved in value if saved.slot == slot][int(nth) - 1]
    elif rest:
        value = value[rest.pop(0)] if not isinstance(value, msgspec.Struct) else value
    return value_at(value, tuple(rest)) if rest else value


@given(pairs())
def test_a_field_holds_the_values_that_the_records_have(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    tables: dict[str, tuple[Any, Any]] = {"node": (a.nodes, b.nodes), "scope": (a.scopes, b.scopes)}
    for change in compare(a, b).changes:
        if change.subject in tables:
            before, after = tables[change.subject]
            for field in change.fields:
                if field.path == ("saved",):
                    continue
                sides = (before.get(change.was or change.id), field.before), (after[change.id], field.after)
                for record, value in sides:
                    if value is UNSET:
                        continue
                    held = value_at(record, field.path)
                    if isinstance(held, Saved) and held != value:
                        held = msgspec.structs.replace(held, origin=None, storage="")
                    assert repr(value) == repr(held), (change, field)
