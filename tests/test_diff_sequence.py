"""Layers of a list that run in another sequence, which no shift of indices explains."""

from __future__ import annotations

import pytest

import gradir
from gradir.cli import main
from gradir.diffs.ignoring import normalize_diff
from gradir.diffs.matching import search
from gradir.ir import Builder, Graph, Scope, TensorMeta
from gradir.ir.module_tree import walk_up

META = [TensorMeta("float32", (2,))]


def stack(*order: int, ops: tuple[str, ...] = ("exp", "exp", "exp", "exp")) -> Graph:
    """The entries of a list, run in this order; each has a parameter."""
    builder = Builder()
    x = builder.tensor("x", META[0])
    for index in order:
        weight = builder.tensor(f"h.{index}.w", META[0], role="parameter", scope=f"h.{index}")
        x = builder.function("mul", [x, weight], META, scope=f"h.{index}")
        x = builder.function(ops[index], [x], META, scope=f"h.{index}")
    builder.output(x)
    return builder.build(scopes=[Scope(path) for path in ("h", *(f"h.{index}" for index in sorted(order)))])


def ids(a: Graph, b: Graph) -> list[str]:
    return [change.id for change in normalize_diff(gradir.diff(a, b)).changes]


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 1, 0), (2, 0, 1)])
def test_another_sequence_is_a_change_whatever_is_normalised(order: tuple[int, ...]) -> None:
    assert "sequence" in ids(stack(0, 1, 2), stack(*order))
    assert "sequence" in ids(stack(*order), stack(0, 1, 2))


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 2, 3), (0, 1, 2)])
def test_a_shift_is_none(order: tuple[int, ...]) -> None:
    assert "sequence" not in ids(stack(0, 1, 2), stack(*order))


def test_it_is_reported_and_can_be_ignored(tmp_path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("a.gir", "b.gir")]
    for path, graph in zip(paths, (stack(0, 1, 2), stack(0, 2, 1)), strict=True):
        graph.save(path)
    assert main(["diff", *paths, "--normalize"]) == 1
    assert "~ sequence\n      modules: h.2 -> h.1\n" in capfd.readouterr().out
    assert main(["diff", *paths, "--normalize", "--ignore", "sequence"]) == 0


def test_no_path_is_walked_for_entries_of_lists_if_both_graphs_have_equal_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a chain of nested modules, all paths together are quadratic in the number of modules."""
    walked: list[str] = []
    monkeypatch.setattr(search, "walk_up", lambda path: walked.append(path) or walk_up(path))
    pairs = (stack(0, 1), stack(0, 1)), (stack(0, 1), stack(0, 1, 2))
    assert [(search._have_the_same_entries(*pair), bool(walked)) for pair in pairs] == [(True, False), (False, True)]
