"""Modules that were wrapped, adapted or replaced: what is said to be renamed is, and equal is told equally."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from edited_gpt import edited, plain  # noqa: E402

import gradir  # noqa: E402
from gradir.diffs.changes import Change  # noqa: E402
from gradir.review.changed_modules import Renamed  # noqa: E402
from gradir.review.comparison import Comparison  # noqa: E402
from gradir.review.outline import Group  # noqa: E402


def renamed(name: str) -> list[tuple[str, str, int]]:
    changes = gradir.diff(plain(), edited(name)).changes
    return [(change.was, change.id, change.nodes) for change in changes if change.subject == "module"]


def test_one_wrapped_module_is_the_one_that_is_named() -> None:
    assert renamed("wrapped-one") == [("blocks.3.mlp.up", "blocks.3.mlp.up.base", 8)]
    back = gradir.diff(edited("wrapped-one"), plain()).changes
    assert [(change.was, change.id) for change in back if change.subject == "module"] == [
        ("blocks.3.mlp.up.base", "blocks.3.mlp.up")
    ]


def test_all_wrapped_modules_are_one_line_and_some_of_them_too() -> None:
    assert renamed("wrapped-all") == [("blocks.*.mlp.up", "blocks.*.mlp.up.base", 48)]
    assert renamed("wrapped-some") == [(f"blocks.{n}.mlp.up", f"blocks.{n}.mlp.up.base", 8) for n in (1, 3, 5)]
    lines = str(gradir.diff(plain(), edited("wrapped-some"))).splitlines()
    where = "blocks.{1,3,5}.mlp.up"
    assert f"  > 3 modules {where} -> {where}.base, each wrapped  24 nodes" in lines
    assert sum(line.startswith("  >") for line in lines) == 1


def test_names_below_a_module_that_was_renamed_alone_are_found() -> None:
    found = Renamed([Change("renamed", "module", "h.3.up.base", was="h.3.up")])
    assert found.before("h.3.up.base.act") == "h.3.up.act"
    assert found.before("h.2.up.base.act") == "h.2.up.base.act"


def test_equal_adapters_are_told_in_one_way_and_frozen_names_both() -> None:
    for name, frozen in (
        ("lora", "frozen: blocks.{0..5}.attn.{q,v}.base (24 parameters, 3,264 elements)"),
        (
            "lora-alone",
            "frozen: {tokens,places,norm,head,blocks.{0..5}.{norm1,norm2,mlp,attn.{{q,v}.base,k,out}}} "
            "(101 parameters, 22,272 elements)",
        ),
    ):
        found = Comparison(plain(), edited(name))
        assert list(found.notes) == [frozen]
        for entry in found.outline.entries:
            if isinstance(entry, Group) and entry.paths[0].endswith((".q", ".v", ".base")):
                others = {path.replace(".q", ".v") for path in entry.paths if ".q" in path}
                assert others == {path for path in entry.paths if ".v" in path}


@pytest.mark.parametrize("name", ["sdpa", "norm", "lora-alone", "tied", "autocast"])
def test_what_keeps_its_name_is_not_said_to_be_renamed(name: str) -> None:
    assert not renamed(name)
