"""A change of the whole computation is a headline, with a list on demand, and hides nothing else that changed."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from edited_gpt import capture_edit, loss_of, plain  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from reports import all_changes, changes_in, entries, findings_of_kinds, notes, slots  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402
from gradir.diffs.diff_json import decode, encode  # noqa: E402
from gradir.ir import Graph, Node, Producer, Ref, Saved, Scope, TensorMeta  # noqa: E402
from gradir.review.reviewing import review_graphs  # noqa: E402

HEADLINES = {
    "autocast": ["341 of 342 changed nodes: dtype float32 -> bfloat16", "casts: 99 put in"],
    "dtype": ["all 574 changed nodes: dtype float32 -> bfloat16"],
    "length": ["sizes of 333 of 334 changed nodes: 16 -> 24, 32 -> 48"],
    "batch": ["220 of 333 changed nodes: dimension 0 is 6, was 2; in 112 more, other sizes changed in that ratio"],
    "width": ["sizes of 520 of 533 changed nodes: 16 -> 32, 8 -> 16, 64 -> 128"],
}


@pytest.mark.parametrize("name", HEADLINES)
@pytest.mark.parametrize("back", [False, True])
def test_it_is_a_headline_and_a_list_on_demand(name: str, back: bool) -> None:
    graphs = (capture_edit(name), plain()) if back else (plain(), capture_edit(name))
    found = review_graphs(*graphs)
    assert Counter(all_changes(found)) == Counter(found.changes)
    diff = found
    assert len(str(diff).splitlines()) <= 8
    lines = diff.to("text", details=True).splitlines()
    if not back:
        start = 1 + len(findings_of_kinds(found, "summary"))
        assert lines[start : start + len(HEADLINES[name])] == HEADLINES[name]
    (following,) = findings_of_kinds(found, "following")
    assert following.text in lines
    assert following.count == len(following.changes[0])
    full = diff.to("text", full=True)
    assert sum(line.startswith(("  ~ ", "  + ", "  - ")) for line in full.splitlines()) == len(diff.changes)
    report = diff.to("markdown")
    assert len(report) < 4_000
    assert ("```mermaid" in report) != ("No picture: " in report)
    assert diff.to("mermaid").count("\n") > 20, "a picture that is asked for is drawn"


@pytest.mark.parametrize(
    ("size", "told"),
    [
        ((6, 24), "sizes of 333 of 334 changed nodes: 16 -> 24, 2 -> 6, 32 -> 144, 1 more in that ratio"),
        # The product of two sizes that doubled is four times as large.
        ((4, 32), "sizes of 333 of 334 changed nodes: 16 -> 32, 2 -> 4, 32 -> 128, 1 more in that ratio"),
        ((4, 8), "sizes of 257 of 295 changed nodes: 16 -> 8, 2 -> 4, 4 -> 8"),
    ],
)
def test_batch_and_length_together_are_one_headline(size: tuple[int, int], told: str) -> None:
    _, loss, recorder = loss_of(size=size)
    found = review_graphs(plain(), recorder.capture(loss))
    lines = str(found).splitlines()
    assert lines[1:] == [told, f"{len(found.changes)} changes that only follow from that: --full lists them"]
    assert str(review_graphs(*(found.sides or ())[1::-1])).count("\n") == 2


def test_a_size_that_is_four_times_as_large_where_others_doubled_is_reported() -> None:
    after = steps(8)
    odd = replace(after.nodes["f:3"], outputs=(TensorMeta("float32", (2, 16)),))
    found = review_graphs(steps(4), replace(after, nodes={**after.nodes, odd.id: odd}))
    (entry,) = entries(found)
    assert [change.id for change in changes_in(found, entry)[0]] == ["f:3"]


def test_beside_an_edit_that_adds_much_it_is_a_headline_too() -> None:
    found = review_graphs(plain(), capture_edit("lora-autocast"))
    assert Counter(all_changes(found)) == Counter(found.changes)
    following = [change for each in findings_of_kinds(found, "following") for change in changes_in(found, each)[0]]
    assert {change.label for change in following if change.kind != "changed"} == {"to_copy"}
    diff = found
    lines = str(diff).splitlines()
    assert len(lines) <= 17
    assert "329 of 330 changed nodes: dtype float32 -> bfloat16; " in lines[0]
    assert "  + 12 modules blocks.{0..5}.attn.{q,v}.a  Linear(in_features=16, out_features=2, bias=False)  each" in str(
        diff
    )
    assert len(diff.to("markdown").encode()) <= 12_000


def test_other_changes_are_listed_below_it() -> None:
    lines = str(gradir.diff(plain(), capture_edit("width"))).splitlines()
    assert lines[-2:] == [
        "  ~ blocks.0.attn/div:1  div float32[2, 2, 16, 16]",
        "      attrs.other: 2.8284271247461903 -> 4.0",
    ]


def test_an_edit_beside_it_is_not_hidden() -> None:
    def dropped(model: nn.Module) -> None:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.2
            elif isinstance(module, nn.LayerNorm):
                module.eps = 2e-5

    _, loss, recorder = loss_of(change=dropped, width=32)
    text = gradir.diff(plain(), recorder.capture(loss)).to("text", details=True)
    assert 'detail: "p=0.1, inplace=False" -> "p=0.2, inplace=False"' in text
    assert 'detail: "(16,), eps=1e-05, elementwise_affine=True, bias=True" -> "(32,), eps=2e-05' in text
    for edit in ("detached-residual", "detached-value", "added-constant"):
        _, loss, recorder = loss_of(edit, size=(2, 24))
        both = review_graphs(plain(), recorder.capture(loss))
        alone = review_graphs(plain(), capture_edit(edit))
        assert slots(both, "lost-inputs") == slots(alone, "lost-inputs")
        assert sum(not field_is_a_size(change) for change in both.changes) == len(alone.changes)
        told = {change.id for entry in entries(both) for each in changes_in(both, entry) for change in each}
        assert told >= {change.id for change in alone.changes if change.subject == "node"}


def field_is_a_size(change: gradir.diffs.changes.Change) -> bool:
    return change.kind == "changed" and all(
        field.path[0] in {"out", "attrs"} or (field.path[0] == "saved" and field.path[-1] in {"shape", "bytes"})
        for field in change.fields
    )


def steps(size: int, dtype: str = "float32", *, odd: tuple[int, ...] = (), total: int = 9) -> Graph:
    """A chain of operations; the odd ones have another size or an attribute."""
    nodes = [Node("x", outputs=(TensorMeta(dtype, (2, size)),))]
    for n in range(1, total + 1):
        own = size + 1 if n in odd else size
        saved = (Saved("self", dtype, (2, own), 8 * own),)
        before = Ref(nodes[-1].id, 0)
        nodes.append(
            Node(
                f"f:{n}", op="f", role="function", inputs=(before,), outputs=(TensorMeta(dtype, (2, own)),), saved=saved
            )
        )
    return Graph.of(nodes, [Scope("", "Net")])


def test_a_cast_to_something_else_is_reported() -> None:
    def cast(dtype: str) -> Graph:
        whole = steps(4, "bfloat16")
        nodes = [*whole.nodes.values()]
        ref, meta = nodes[5].inputs[0], (TensorMeta(dtype, (2, 4)),)
        nodes[5] = replace(nodes[5], inputs=(Ref("to_copy:1", 0),))
        nodes.insert(5, Node("to_copy:1", op="to_copy", role="function", inputs=(ref,), outputs=meta))
        return Graph.of(nodes, whole.scopes.values(), producer=Producer(framework="torch"))

    before = replace(steps(4), producer=Producer(framework="torch"))
    found = review_graphs(before, cast("bfloat16"))
    assert not entries(found)
    assert notes(found) == ["all 10 changed nodes: dtype float32 -> bfloat16", "casts: 1 put in"]
    found = review_graphs(before, cast("float64"))
    (entry,) = entries(found)
    assert [change.id for change in changes_in(found, entry)[0]] == ["to_copy:1", "f:5"]


def test_a_size_of_another_ratio_is_reported() -> None:
    found = review_graphs(steps(4), steps(8, odd=(3,)))
    assert notes(found)[:1] == ["9 of 10 changed nodes: dimension 1 is 8, was 4"]
    (entry,) = entries(found)
    assert [change.id for change in changes_in(found, entry)[0]] == ["f:3"]


def test_a_change_of_a_part_is_listed_as_ever() -> None:
    a = steps(4, total=20)
    some = {key: node for key, node in steps(8, total=20).nodes.items() if key in {f"f:{n}" for n in range(1, 9)}}
    found = review_graphs(a, Graph.of([*(some.get(key, node) for key, node in a.nodes.items())], a.scopes.values()))
    assert not findings_of_kinds(found, "following")
    assert len(found.changes) == 8
    without = decode(encode(gradir.diff(steps(4), steps(8))))
    assert str(without).count("  ~ ") == len(without.changes), "a diff that was read tells every change"
