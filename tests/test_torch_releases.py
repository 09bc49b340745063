"""A program has no difference between any two releases of torch under ``--normalize``; an edit of it has.

``tests/goldens/torch`` has what the oldest tested release gave of each program, and a newer one than this suite
installs. `tests/verification/released.py` writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch")

from msgspec.structs import replace  # noqa: E402
from released import KINDS, PROGRAMS, capture_program, file_of  # noqa: E402

import gradir  # noqa: E402
from gradir.diffs.ignoring import drop_identities  # noqa: E402
from gradir.ir import Builder, Graph, Node, Ref, Saved, TensorMeta  # noqa: E402
from gradir.ir.validate import problems  # noqa: E402

STORED: Final = Path(__file__).parent / "goldens" / "torch"
RELEASES: Final = ("2.5.1", "2.14.1")
EACH = [(name, kind) for name in PROGRAMS for kind in KINDS]


@cache
def stored(release: str, name: str, kind: str) -> Graph:
    return gradir.load(STORED / release / file_of(name, kind))


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_no_release_makes_a_difference(name: str, kind: str) -> None:
    graphs = [capture_program(name, kind), *(stored(release, name, kind) for release in RELEASES)]
    for before in graphs:
        for after in graphs:
            found = gradir.diff(before, after, normalize=True)
            assert not found, str(found)


def test_every_stored_file_belongs_to_a_program_and_a_release() -> None:
    for release in RELEASES:
        assert {path.name for path in (STORED / release).iterdir()} == {file_of(*each) for each in EACH}
        assert stored(release, *EACH[0]).producer.framework_version.partition("+")[0] == release


def test_without_normalize_the_releases_differ() -> None:
    """So that the test above can fail: of each kind of difference one."""
    for name, kind in (
        ("sdpa", "autograd"),
        ("sdpa", "forward"),
        ("lstm", "autograd"),
        ("lstm", "forward"),
        ("group-norm", "autograd"),
        ("multihead-attention", "forward"),
        ("checkpoint-reentrant", "autograd"),
    ):
        assert gradir.diff(*(stored(release, name, kind) for release in RELEASES)), name


def edited(graph: Graph, op: str, edit: Callable[[Node], Node]) -> Graph:
    return replace(graph, nodes={key: edit(node) if node.op == op else node for key, node in graph.nodes.items()})


@pytest.mark.parametrize(
    ("name", "op", "edit", "field"),
    [
        ("group-norm", "native_group_norm", lambda node: {"attrs": {**node.attrs, "eps": 1e-6}}, "attrs.eps"),
        ("group-norm", "native_group_norm", lambda node: {"attrs": {**node.attrs, "group": 4}}, "attrs.group"),
        ("lstm", "mkldnn_rnn_layer", lambda node: {"attrs": {**node.attrs, "reverse": True}}, "attrs.reverse"),
        ("checkpoint-reentrant", "checkpoint_function", lambda node: {"attrs": {**node.attrs, "n": 1}}, "attrs.n"),
        ("sdpa", "select", lambda node: {"attrs": {**node.attrs, "index": 0}}, "attrs.index"),
    ],
)
def test_an_edit_counts_as_before(name: str, op: str, edit: Callable[[Node], Any], field: str) -> None:
    before = stored("2.5.1", name, "autograd")
    after = edited(before, op, lambda node: replace(node, **edit(node)))
    found = gradir.diff(before, after, normalize=True)
    assert {each.name for change in found.changes for each in change.fields} == {field}


def chained(*steps: tuple[str, tuple[int, ...]]) -> Graph:
    builder = Builder()
    x: Any = builder.tensor("x", TensorMeta("float32", (4, 3)), role="parameter")
    for op, shape in steps:
        x = builder.function(op, [x], [TensorMeta("float32", shape)])
    last = builder.function("exp", [x], [TensorMeta("float32", (4, 3))], saved=[(Saved("self", "float32"), x)])
    builder.output(last)
    return builder.build()


def test_only_a_slice_of_everything_is_left_out() -> None:
    plain, twice = chained(), chained(("slice", (4, 3)), ("slice", (4, 3)))
    assert gradir.diff(plain, twice)
    assert not gradir.diff(plain, twice, normalize=True)
    assert not gradir.diff(twice, plain, normalize=True)
    found = drop_identities(twice)
    assert not [*problems(found)]
    assert found.nodes["exp:1"].inputs == (Ref("x", 0),)
    assert found.nodes["exp:1"].saved[0].origin == Ref("x", 0)
    assert drop_identities(plain) is plain
    for step in (("slice", (3, 3)), ("flip", (4, 3)), ("transpose", (4, 3)), ("slice", ())):
        assert gradir.diff(plain, chained(step), normalize=True), step
