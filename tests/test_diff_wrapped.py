"""Modules that were wrapped, adapted or replaced: what is said to be renamed is, and equal is told equally."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")

from edited_gpt import GPT, Wrapped, capture_edit, plain  # noqa: E402
from reports import changes_in, entries, findings_of_kinds, headline, list_diff_changes, notes  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402
from gradir.diffs.changes import Diff, Sides  # noqa: E402
from gradir.diffs.correspondence import Correspondence  # noqa: E402
from gradir.ir import Builder, Node, Scope, TensorMeta  # noqa: E402
from gradir.ir.module_tree import whole_tree  # noqa: E402
from gradir.review.reviewing import review_graphs  # noqa: E402
from gradir.review.united import UnionGraph  # noqa: E402
from gradir.review.wording import change_lines  # noqa: E402


def sides_of(diff: Diff) -> Sides:
    assert diff.sides is not None
    return diff.sides


def names_of(diff: Diff) -> Correspondence:
    return sides_of(diff).names()


def renamed(name: str) -> list[tuple[str, str, int]]:
    changes = gradir.diff(plain(), capture_edit(name)).changes
    return [(change.old_id, change.id, change.nodes) for change in changes if change.subject == "module"]


def test_one_wrapped_module_is_the_one_that_is_named() -> None:
    assert renamed("wrapped-one") == [("blocks.3.mlp.up", "blocks.3.mlp.up.base", 8)]
    back = gradir.diff(capture_edit("wrapped-one"), plain()).changes
    assert [(change.old_id, change.id) for change in back if change.subject == "module"] == [
        ("blocks.3.mlp.up.base", "blocks.3.mlp.up")
    ]


def test_all_wrapped_modules_are_one_line_and_some_of_them_too() -> None:
    assert renamed("wrapped-all") == [("blocks.*.mlp.up", "blocks.*.mlp.up.base", 48)]
    assert renamed("wrapped-some") == [(f"blocks.{n}.mlp.up", f"blocks.{n}.mlp.up.base", 8) for n in (1, 3, 5)]
    lines = str(gradir.diff(plain(), capture_edit("wrapped-some"))).splitlines()
    where = "blocks.{1,3,5}.mlp.up"
    assert f"  > 3 modules {where} -> {where}.base, each wrapped by Wrapped  24 nodes" in lines
    assert sum(line.startswith("  >") for line in lines) == 1


class Chain(nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        for number, name in enumerate(names):
            self.add_module(name, nn.Linear(8 + number, 9 + number))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.children():
            x = layer(x)
        return x.sum()


def test_renamed_parts_of_one_module_are_one_line_also_in_a_new_wrapper() -> None:
    before, renamed = Chain("q", "k", "v"), Chain("to_q", "to_k", "to_v")
    for after, parts in ((renamed, "*.{to_v,to_k,to_q}"), (Wrapped(renamed), "*.base.{to_v,to_k,to_q}")):
        a, b = (gradir.capture(nn.Sequential(model), torch.ones(2, 8)) for model in (before, after))
        lines = [
            line for line in str(gradir.diff(a, b)).splitlines() if line.startswith("  >") and "wrapped" not in line
        ]
        assert lines == [f"  > 3 modules *.{{v,k,q}} -> {parts}  18 nodes"]


def test_an_entry_of_a_list_is_no_renamed_part() -> None:
    a, b = (gradir.capture(Chain(*names), torch.ones(2, 8)) for names in (("h_0", "h_1"), ("g", "h")))
    lines = [line for line in str(gradir.diff(a, b)).splitlines() if line.startswith("  >")]
    assert lines == ["  > module h_1 -> h  6 nodes", "  > module h_0 -> g  6 nodes"]


def test_equal_adapters_are_reported_in_one_way_and_frozen_names_both() -> None:
    for name, frozen in (
        ("lora", "frozen: blocks.{0..5}.attn.{q,v}.base (24 parameters, 3,264 elements)"),
        (
            "lora-alone",
            "frozen: {tokens,places,norm,head,blocks.{0..5}.{norm1,norm2,mlp,attn.{{q,v}.base,k,out}}} "
            "(101 parameters, 22,272 elements)",
        ),
    ):
        found = review_graphs(plain(), capture_edit(name))
        assert notes(found) == [frozen]
        for entry in entries(found):
            if entry.kind == "same" and entry.subjects[0].endswith((".q", ".v", ".base")):
                others = {path.replace(".q", ".v") for path in entry.subjects if ".q" in path}
                assert others == {path for path in entry.subjects if ".v" in path}


def test_the_adapter_that_counts_a_tensor_of_both_is_reported_with_the_other() -> None:
    lines = str(gradir.diff(plain(), capture_edit("lora"))).splitlines()
    assert [line for line in lines if line.startswith("  + ") and "modules blocks.{0..5}.attn" in line][1:] == [
        "  + 12 modules blocks.{0..5}.attn.{q,v}.a  Linear(in_features=16, out_features=2, bias=False)  "
        "each 6 nodes, 1 parameter (32), saved 0 B to 2.0 kB",
        "  + 12 modules blocks.{0..5}.attn.{q,v}.b  Linear(in_features=2, out_features=16, bias=False)  "
        "each 6 nodes, 1 parameter (32), saved 256 B",
    ]


@pytest.mark.parametrize("name", ["sdpa", "norm", "tied", "autocast"])
def test_a_module_that_keeps_its_name_is_not_reported_as_renamed(name: str) -> None:
    assert not renamed(name)


def test_one_adapter_is_reported_as_those_in_all_layers_are() -> None:
    assert renamed("lora-one") == [("blocks.3.mlp.up", "blocks.3.mlp.up.base", 4)]
    assert renamed("lora-up") == [("blocks.*.mlp.up", "blocks.*.mlp.up.base", 24)]
    # In the first layer nothing that the frozen ones compute has a gradient.
    alone = [f"blocks.{layer}.attn.{name}" for layer in range(1, 6) for name in "qv"]
    assert sorted((was, now) for was, now, _ in renamed("lora-alone")) == [(path, f"{path}.base") for path in alone]


WRAPPED = {
    "wrapped-one": ["blocks.3.mlp.up -> blocks.3.mlp.up.base"],
    "wrapped-all": ["blocks.*.mlp.up -> blocks.*.mlp.up.base"],
    "wrapped-linears": [
        f"blocks.*.{name} -> blocks.*.{name}.base" for name in ("attn.q", "attn.k", "attn.v", "mlp.down")
    ],
    "wrapped-attention": ["blocks.*.attn -> blocks.*.attn.base"],
    "wrapped-blocks": ["blocks.* -> blocks.*.base"],
    "in-sequential": ["blocks.*.mlp.up -> blocks.*.mlp.up.0"],
    "one-in-sequential": ["blocks.3.mlp.up -> blocks.3.mlp.up.0"],
}


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_module_is_reported_as_wrapped_and_nothing_else(name: str, back: bool) -> None:
    graphs = (capture_edit(name), plain()) if back else (plain(), capture_edit(name))
    found = review_graphs(*graphs)
    told = {next(change_lines(change)).text for change in found.changes if change.subject == "module"}
    pairs = [pair.split(" -> ") for pair in WRAPPED[name]]
    assert {text.rpartition("  ")[0] for text in told} == {
        f"> module {inner} -> {outer}, unwrapped" if back else f"> module {outer} -> {inner}, wrapped"
        for outer, inner in pairs
    }
    # All else is that the wrappers came, or went.
    others = {(change.kind, change.subject, change.label) for change in found.changes if change.subject != "module"}
    kind = "Sequential" if "sequential" in name else "Wrapped"
    assert others == {("removed" if back else "added", "scope", kind)}
    count = f"{len(pairs)} module{'s'[: len(pairs) > 1]} {'un' * back}wrapped"
    assert headline(found, graphs).endswith(f"; {count}")
    (each,) = findings_of_kinds(found, "unwrapped" if back else "wrapped")
    assert each.details == {"class": [kind]}
    assert f"wrapped {'from' if back else 'by'} {kind}" in str(found)
    assert f"**{'Unwrapped' if back else 'Wrapped'}:** `> {each.text}`  \n" in found.to("markdown")


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", WRAPPED)
def test_the_list_of_a_page_names_the_modules_that_are_there(name: str, back: bool) -> None:
    graphs = (capture_edit(name), plain()) if back else (plain(), capture_edit(name))
    found = review_graphs(*graphs)
    changes = list_diff_changes(found)
    assert "renamed" not in {change.kind for change in changes}
    moved = [change for change in changes if change.kind == "moved"]
    assert len(moved) == len(WRAPPED[name])
    layers = range(3, 4) if "one" in name else range(6)
    for change, pair in zip(sorted(moved, key=lambda each: each.text), sorted(WRAPPED[name]), strict=True):
        inside = pair.split(" -> ")[not back]
        assert change.scopes == [inside.replace("*", str(layer)) for layer in layers]
    assert all(scope in UnionGraph(found).graph.scopes for change in changes for scope in change.scopes)


@pytest.mark.parametrize("name", ["sdpa", "norm", "lora", "lora-alone", "lora-one", "swapped", "autocast"])
def test_the_list_of_a_page_says_renamed_of_no_module_that_was_not(name: str) -> None:
    for graphs in ((plain(), capture_edit(name)), (capture_edit(name), plain())):
        changes = list_diff_changes(review_graphs(*graphs))
        assert changes
        assert "renamed" not in {change.kind for change in changes}


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", ["lora", "lora-up", "lora-autocast"])
def test_operations_of_a_frozen_module_keep_their_name(name: str, back: bool) -> None:
    graphs = (capture_edit(name), plain()) if back else (plain(), capture_edit(name))
    found = review_graphs(*graphs)
    base = ".mlp.up" if name == "lora-up" else ".attn.q"
    inside = {f"blocks.0{base}.base/{op}" for op in ("view:1", "addmm:1", "view:2")}
    outside = {f"blocks.0{base}/{op}" for op in ("view:1", "addmm:1", "view:2")}
    pairs = {(old, new) for old, new in names_of(found).matched.items() if {old, new} & (inside | outside)}
    assert pairs == set(
        zip(*(sorted(names) for names in ((inside, outside) if back else (outside, inside))), strict=True)
    )
    # Only where that it is frozen does not say it all is an operation of it listed.
    told = [change for entry in entries(found) for changes in changes_in(found, entry) for change in changes]
    assert told
    assert not inside.intersection(change.id for change in told)
    assert not outside.intersection(change.id for change in told)


def test_a_module_of_which_no_node_was_found_is_wrapped_too() -> None:
    def graph(path: str, op: str) -> gradir.Graph:
        scopes = [
            Scope("", "Net"),
            *([Scope("fc", "Lora")] if "." in path else []),
            Scope(path, "Linear", "4, 4", own=20),
        ]
        return gradir.Graph.of([Node("exp:1", op="exp"), Node(f"{path}/{op}:1", op=op, scope=path)], scopes)

    found = review_graphs(graph("fc", "addmm"), graph("fc.base", "bmm"))
    scopes = [change for change in found.changes if (change.subject, change.kind) == ("scope", "renamed")]
    assert [next(change_lines(change)).text for change in scopes] == ["> scope fc -> fc.base, wrapped  Linear"]
    assert {change.kind for change in list_diff_changes(found) if change.text.startswith("scope ")} == {
        "added",
        "moved",
    }


def test_of_renamed_modules_the_page_marks_those_alone() -> None:
    from gradir_exporters._page.marks import STATUSES, node_statuses

    found = review_graphs(plain(), capture_edit("wrapped-attention"))
    union = UnionGraph(found).graph
    nodes = [*union.nodes.values()]
    numbers = {key: number for number, key in enumerate(union.nodes)}
    marks = node_statuses(nodes, numbers, list_diff_changes(found), whole_tree(union))
    moved = {node.scope for node, mark in zip(nodes, marks, strict=True) if STATUSES[mark] == "moved"}
    assert moved
    assert all(scope.split(".")[2:4] == ["attn", "base"] for scope in moved)
    assert {STATUSES[mark] for mark in marks} == {"same", "moved"}


def test_a_wrapped_model_is_the_one_below_it() -> None:
    class Parallel(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.module(words)

    def graph(model: nn.Module) -> gradir.Graph:
        with gradir.record(model) as recorder:
            loss = model(torch.zeros(1, 4, dtype=torch.long)).sum()
        return recorder.capture(loss)

    found = gradir.diff(graph(GPT()), graph(Parallel(GPT())))
    assert [(change.kind, change.subject, change.old_id, change.id, change.label) for change in found.changes] == [
        ("renamed", "module", "", "module", ""),
        ("added", "scope", "", "", "Parallel"),
    ]
    (line,) = str(found).split("(whole graph)\n")[1].splitlines()
    assert line.startswith("  > module (top level) -> module, wrapped by Parallel")


class _Stack(nn.Module):
    """Two layers and a head, by any names; the model itself computes nothing."""

    def __init__(self, layers: str, head: str = "head") -> None:
        super().__init__()
        self.add_module(layers, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
        self.add_module(head, nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in self.children():
            x = module(x)
        return x


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("knows", ["names of parameters", "modules of operations"])
@pytest.mark.parametrize(
    ("after", "was", "now"),
    [
        (nn.Sequential(_Stack("h")), "", "0"),
        (_Stack("blocks"), "h", "blocks"),
        (_Stack("h", "out"), "head", "out"),
    ],
)
def test_without_a_table_of_modules_one_edit_of_names_is_one_line(
    after: nn.Module, was: str, now: str, knows: str, back: bool
) -> None:
    def captured(model: nn.Module) -> gradir.Graph:
        if knows == "names of parameters":
            return gradir.capture(model(torch.ones(1, 4)), params=dict(model.named_parameters()))
        return replace(gradir.capture(model, torch.ones(1, 4)), scopes={})

    pair = [captured(_Stack("h")), captured(after)]
    found = gradir.diff(*pair[:: -1 if back else 1])
    assert [(change.subject, change.kind) for change in found.changes] == [("module", "renamed")]
    assert (found.changes[0].old_id, found.changes[0].id) == ((now, was) if back else (was, now))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a.w b.w c.w", "m.a.w m.b.w c.w"),
        ("a.w b.w c.w", "m.a.w n.b.w m.c.w"),
        ("w b", "m.w b"),
        ("c.w c.b", "a.w b.b"),
        ("h.0.w h.1.w", "blocks.0.w h.1.w"),
        ("h.0.w h.1.w", "m.h.1.w m.h.0.w"),
        ("h.0.w", "m.h.1.w"),
        ("h.0.w h.1.v", "h.w h.v"),
    ],
)
def test_without_a_table_of_modules_each_tensor_of_a_torn_module_is_named(before: str, after: str) -> None:
    def graph(names: str) -> gradir.Graph:
        builder, value, square = Builder(), None, TensorMeta(shape=(4, 4))
        for name in names.split():
            value = builder.function("mm", [value, builder.tensor(name, square, role="parameter")], [square])
        builder.output(value)
        return builder.build()

    names = zip(before.split(), after.split(), strict=True)
    found = gradir.diff(graph(before), graph(after)).changes
    renamed = [(each.old_id, each.id) for each in found if each.kind == "renamed"]
    assert renamed == [(was, now) for was, now in names if was != now]


@pytest.mark.parametrize("name", ["lora-one", "lora-up", "lora", "lora-alone"])
def test_an_adapter_is_not_matched_to_its_base_layer(name: str) -> None:
    for found in (review_graphs(plain(), capture_edit(name)), review_graphs(capture_edit(name), plain())):
        for old, new in names_of(found).matched.items():
            before, after, *_ = sides_of(found)
            one, other = sorted((before.nodes[old].scope, after.nodes[new].scope), key=len)
            assert other in {one, f"{one}.base"}
        for old, new in names_of(found).paths.items():
            one, other = sorted((old, new), key=len)
            assert other in {one, f"{one}.base"}


def test_the_page_marks_a_module_whose_name_is_an_index_now() -> None:
    found = gradir.diff(capture_edit("wrapped-one"), capture_edit("one-in-sequential"))
    assert [each.scopes for each in list_diff_changes(found)] == [["blocks.3.mlp.up.0"], ["blocks.3.mlp.up"]]
