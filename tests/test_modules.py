"""The exporter of the module tree."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from gradir_exporters.modules import ModulesExporter
from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE_LABELS, everything, hostile
from strategies import graphs

import gradir
from gradir.ir import Graph, Scope
from gradir.ir.text import escape_unprintable
from gradir.protocols import NoOptions

NOTHING = "(no nodes to show)\n"


def shown(*scopes: Scope) -> str:
    return ModulesExporter().export(Graph.of([], scopes), NoOptions())


def test_everything_has_a_golden(golden: Callable[[str, str], None]) -> None:
    golden("modules/everything.txt", gradir.export(everything(), "modules"))


def test_it_has_no_options() -> None:
    with pytest.raises(gradir.ExportError, match="it has no options"):
        gradir.export(everything(), "modules", colour=1)


def test_a_list_prints_a_run_of_equal_children_once() -> None:
    linear = ("Linear", "in_features=1")
    text = shown(
        Scope("", "ModuleList"),
        *(Scope(str(number), *linear) for number in (0, 1, 2)),
        Scope("3", "Tanh"),
        Scope("4", *linear),
        *(Scope(f"{number}", "Block") for number in (5, 6)),
        Scope("5.fc", *linear),
        Scope("6.fc", "Linear", "in_features=2"),
    )
    assert text == (
        "ModuleList(\n"
        "  (0-2): 3 x Linear(in_features=1)\n"
        "  (3): Tanh()\n"
        "  (4): Linear(in_features=1)\n"
        "  (5): Block(\n"
        "    (fc): Linear(in_features=1)\n"
        "  )\n"
        "  (6): Block(\n"
        "    (fc): Linear(in_features=2)\n"
        "  )\n"
        ")\n"
    )


def test_only_a_list_does_and_only_with_successive_numbers() -> None:
    children = [Scope(name, "Tanh") for name in ("0", "1", "3", "a", "9" * 5_000)]
    assert shown(Scope("", "Sequential"), *children[:2]) == "Sequential(\n  (0): Tanh()\n  (1): Tanh()\n)\n"
    lines = shown(Scope("", "ModuleList"), *children).splitlines()
    assert [line.strip().partition(":")[0] for line in lines[1:-1]] == ["(0-1)", "(3)", "(a)", f"({'9' * 5_000})"]


def test_a_module_without_listed_parents_shows_its_whole_path() -> None:
    assert shown(Scope("a.b", "A"), Scope("a.b.c.d", "D"), Scope("e", "E")) == (
        "(a.b): A(\n  (c.d): D()\n)\n(e): E()\n"
    )
    assert shown() == NOTHING


def test_several_lines_of_detail_are_below_each_other() -> None:
    assert shown(Scope("", "A", "x\ny"), Scope("b", "B", "z")) == "A(\n  x\n  y\n  (b): B(z)\n)\n"


def test_hostile_text_stays_on_its_line() -> None:
    text = ModulesExporter().export(hostile(), NoOptions())
    assert all(line.isprintable() for line in text.split("\n"))
    assert all(text.count(escape_unprintable(label)) >= 2 for label in HOSTILE_LABELS if label)


def test_it_is_neither_recursive_nor_quadratic_in_the_number_of_modules() -> None:
    deep = shown(*(Scope(".".join("a" * depth), "A") for depth in range(1, 2_000)))
    assert deep.count("\n") == 2 * 1_999 - 1
    assert shown(Scope(".".join("a" * 1_000_000), "A")).endswith(".a): A()\n")
    wide = shown(Scope("", "ModuleList"), *(Scope(str(number), "Tanh") for number in range(50_000)))
    assert wide == "ModuleList(\n  (0-49999): 50000 x Tanh()\n)\n"


@given(graphs())
def test_every_module_is_shown_where_it_belongs(graph: Graph) -> None:
    scopes = {path: scope for path, scope in graph.scopes.items() if scope.class_name != "ModuleList"}
    text = ModulesExporter().export(Graph.of([], scopes.values()), NoOptions())
    if not scopes:
        assert text == NOTHING
        return
    # A detail of several lines may look like anything.
    flat = [Scope(path, "C") for path in scopes]
    read: list[str] = []
    above: list[str] = []
    for line in ModulesExporter().export(Graph.of([], flat), NoOptions()).splitlines():
        match = re.fullmatch(r"((?:  )*)(?:\((.*)\): )?C\(\)?", line)
        if match is None:
            assert line.strip() == ")"
            continue
        del above[len(match[1]) // 2 :]
        above.append(match[2] or "")
        read.append(".".join(filter(None, above)))
    assert sorted(read) == sorted(scopes)


@given(st.lists(st.sampled_from("ab"), max_size=12))
def test_a_list_says_how_many(kinds: list[str]) -> None:
    text = shown(Scope("", "ModuleList"), *(Scope(str(place), kind) for place, kind in enumerate(kinds)))
    read = []
    for line in text.splitlines()[1:-1]:
        match = re.fullmatch(r"  \((\d+)(?:-(\d+))?\): (?:(\d+) x )?([ab])\(\)", line)
        assert match is not None
        first, last = int(match[1]), int(match[2] or match[1])
        assert first == len(read)
        assert last - first + 1 == int(match[3] or 1)
        assert not read or read[-1] != match[4]
        read += [match[4]] * (last - first + 1)
    assert read == kinds
