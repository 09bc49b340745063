"""What a diff says of two graphs, and the laws it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from diff_pairs import META, NODE_EDITS, SCOPE_EDITS, edit_sample, pairs
from hypothesis import given
from msgspec import UNSET
from reports import node_fields, render_text
from samples import chain, everything
from strategies import graphs, texts

import gradir
from gradir.diffs.changes import Change, Diff, FieldChange, Kind
from gradir.diffs.compare import _Changes, compare, find_growths
from gradir.diffs.correspondence import Correspondence
from gradir.diffs.diff_json import decode, encode
from gradir.diffs.field_changes import descriptions
from gradir.diffs.hunks import script
from gradir.diffs.matching import match
from gradir.ir import Cut, Graph, Node, NonFinite, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.fields import fields_of as fields_of_record
from gradir.ir.totals import sizes

MIRRORED = {"added": "removed", "removed": "added"}


def content(graph: Graph) -> bytes:
    """What a graph says, its producer apart, in the exact types of its values."""
    records = [*graph.nodes.values()], [*graph.scopes.values()], graph.cuts
    return msgspec.json.encode(records, order="deterministic")


def test_edits_of_everything_have_a_golden(golden: Callable[[str, str], None]) -> None:
    diff = compare(everything(), edit_sample())
    golden("diff/edited.txt", render_text(diff))
    golden("diff/edited.json", msgspec.json.format(msgspec.json.encode(diff), indent=2).decode() + "\n")
    golden("diff/edited-back.txt", render_text(compare(edit_sample(), everything())))


def test_gradir_diff_is_compare() -> None:
    found = msgspec.structs.replace(gradir.diff(everything(), edit_sample()), findings=())
    assert found == compare(everything(), edit_sample())


@given(graphs())
def test_a_graph_does_not_differ_from_itself_read_back(graph: Graph) -> None:
    diff = compare(graph, gradir.loads(gradir.dumps(graph)))
    assert not diff
    assert diff.before == diff.after
    assert render_text(diff) == "no difference\n"


@given(graphs())
def test_nothing_is_found_between_equal_graphs_whose_nodes_are_matched(graph: Graph) -> None:
    """What `compare` leaves out where it sees that the graphs are equal."""
    other = gradir.loads(gradir.dumps(graph))
    names = Correspondence(graph, other, match(graph, other))
    assert _Changes(graph, other, names, script(graph, Graph.of([]))).list_changes() == []
    assert list(find_growths(sizes(graph.nodes.values()), sizes(other.nodes.values()), names.paths)) == []


def test_the_nodes_of_equal_graphs_are_not_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = everything(), gradir.loads(gradir.dumps(everything()))
    monkeypatch.setattr("gradir.diffs.matching.match", lambda *_: pytest.fail("matched"))
    monkeypatch.setattr("gradir.diffs.compare.match", lambda *_: pytest.fail("matched"))
    assert not gradir.diff(one, other, vocabulary=True)
    for options in ({}, {"ignore": ["saved"]}, {"normalize": True}):
        assert gradir.diff(one, other, **options).to("text") == "no difference\n"
    with pytest.raises(pytest.fail.Exception, match="matched"):
        compare(one, edit_sample())


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
        return (change.scope, change.label, repr(change.tensor)) if change.kind in MIRRORED else (change.old_id,)

    mirrored = [
        msgspec.structs.replace(
            change,
            kind=MIRRORED.get(change.kind, change.kind),
            id=change.old_id if change.old_id or change.subject == "module" else change.id,
            old_id=change.id if change.old_id or change.subject == "module" else "",
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
                assert nodes[change.old_id or change.id] == change.id
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


def test_a_removed_node_is_where_it_was() -> None:
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
        Change("added", "node", "x", label="function"),
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
            label="hidden",
            fields=(FieldChange(("kind",), "unreached", "hidden"), FieldChange(("names",), ("w",), ("w", "v"))),
        ),
        Change("added", "cut", "hidden", label="hidden"),
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


def test_long_graphs_are_compared() -> None:
    diff = compare(chain(20_000), chain(20_001))
    assert [(change.kind, change.id) for change in diff.changes] == [("added", "add:20001"), ("changed", "output")]


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
                sides = (
                    (before.get(change.old_id or change.id), field.before),
                    (after.get(change.id), field.after),
                )
                for record, value in sides:
                    if value is UNSET:
                        continue
                    held = value_at(record, field.path)
                    if change.subject == "scope" and change.kind in {"added", "removed"}:
                        assert field.path == ("detail",)
                        assert set(value.split(", ")) <= {part.strip() for part in held.split(",")}, (change, field)
                        continue
                    if isinstance(held, Saved) and held != value:
                        held = msgspec.structs.replace(held, origin=None, storage="")
                    assert repr(value) == repr(held), (change, field)
