"""Sizes whose products and sums are beyond counting: every command and format says so, and none of them breaks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from plugins import BUILT_IN

import gradir
from gradir import codecs
from gradir.cli import main
from gradir.ir import Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.model import INT64_MAX, clamp_size
from gradir.ir.text import amount, short_bytes
from gradir.ir.totals import tensor_elements
from gradir.passes import fold, rollup

BEYOND = "≥ 9,223,372,036,854,775,807"
A_LONG_NUMBER = re.compile(r"\d{25}|\d(,\d{3}){9}")
DIMENSIONS = (17, 240)
"""As many of the largest size are too large for a float, and have more digits than Python prints."""


def huge(dimensions: int, extra: int = 0) -> Graph:
    """A stack of layers of which every number is as large as a file may hold."""
    tensor = TensorMeta("float32", (INT64_MAX,) * dimensions)
    nodes = [Node("x", role="leaf", outputs=(tensor,))]
    before = "x"
    for number in range(3 + extra):
        weight, scope = f"h.{number}.w", f"h.{number}"
        storage = f"h.{number}/mul:1.other"
        slots = (
            Saved("self", "float32", tensor.shape, INT64_MAX, storage=weight),
            Saved("other", "float32", tensor.shape, INT64_MAX),
            *[Saved(f"more{slot}", "float32", tensor.shape, INT64_MAX - slot) for slot in range(3)],
            Saved("again", "float32", tensor.shape, INT64_MAX, storage=storage, state="stale"),
        )
        nodes += [
            Node(weight, role="parameter", scope=scope, names=(weight,), outputs=(tensor,)),
            Node(
                f"h.{number}/mul:1",
                op="mul",
                scope=scope,
                inputs=(Ref(before, 0), Ref(weight, 0)),
                outputs=(tensor,),
                saved=slots,
                ext={"times": INT64_MAX},
            ),
        ]
        before = f"h.{number}/mul:1"
    for number in range(2):
        totals = dict.fromkeys(("nodes", "parameters", "saved_bytes"), INT64_MAX)
        nodes.append(Node(f"part{number}", role="module", op="module", inputs=(Ref(before, 0),), attrs=totals))
    nodes.append(Node("output", role="output", inputs=(Ref(before, 0),), outputs=(tensor,)))
    paths = ["", "h", *(f"h.{number}" for number in range(3 + extra)), "part0", "part1"]
    return Graph.of(nodes, [Scope(path, "M", "", INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX) for path in paths])


def smaller() -> Graph:
    """The same layers with sizes that can be counted."""
    graph = huge(1)
    tensor = TensorMeta("float32", (2,))
    nodes = [
        Node(node.id, node.role, node.op, "", node.scope, node.names, node.inputs, (tensor,))
        for node in graph.nodes.values()
    ]
    return Graph.of(nodes, [Scope(path, "M", "", 1, 2, 2, 2) for path in graph.scopes])


@pytest.fixture(scope="module", params=DIMENSIONS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that differ in huge sizes."""
    path = tmp_path_factory.mktemp("huge")
    gradir.save(huge(request.param), path / "a.gir")
    gradir.save(huge(request.param, extra=1), path / "b.gir")
    gradir.save(huge(request.param), path / "packed.gir", format="msgpack")
    gradir.save(smaller(), path / "small.gir")
    return path


def said(line: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    """What a command prints, on whichever stream."""
    assert main(line) == status
    printed = capsys.readouterr()
    found = printed.out + printed.err
    assert not A_LONG_NUMBER.search(found)
    return found


@pytest.mark.parametrize("name", ["a.gir", "packed.gir"])
def test_info_says_that_sizes_are_beyond_counting(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(["info", str(folder / name)], capsys)
    assert f"{BEYOND} elements" in found
    assert f"{BEYOND} bytes" in found
    totals = json.loads(said(["info", "--json", str(folder / name)], capsys))["totals"]
    assert (totals["parameters"], totals["saved_bytes"]) == (INT64_MAX, INT64_MAX)


@pytest.mark.parametrize("style", ["table", "markdown", "csv", "json"])
@pytest.mark.parametrize("passes", [[], ["--depth", "1"], ["--rollup"]], ids=" ".join)
def test_summary_says_that_sizes_are_beyond_counting(
    style: str, passes: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if style in {"table", "markdown"}:
        found = said(["export", str(folder / "a.gir"), "--to", "summary", "-O", f"style={style}", *passes], capsys)
        assert f"parameters: {BEYOND} ({BEYOND} trainable)" in found
        # In Markdown the states are code, and a line of the table is wrapped.
        words = " ".join(found.replace("`", "").split())
        assert f"saved for backward: {BEYOND} bytes (held {BEYOND}, " in words
    else:
        assert str(INT64_MAX) in said(
            ["export", str(folder / "a.gir"), "--to", "summary", "-O", f"style={style}", *passes], capsys
        )


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("passes", [[], ["--depth", "1"], ["--depth", "0"], ["--rollup"]], ids=" ".join)
def test_every_exporter_writes_huge_sizes(
    name: str, passes: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(["export", str(folder / "a.gir"), "--to", name, *passes], capsys)


@pytest.mark.parametrize("form", ["text", "markdown", "json", "mermaid", "dot"])
@pytest.mark.parametrize("pair", ["a b", "b a", "a small", "small a", "a packed"])
def test_every_form_of_a_diff_holds_huge_sizes(
    form: str, pair: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["diff", *(str(folder / f"{name}.gir") for name in pair.split()), "--format", form]
    status = int("packed" not in pair)
    conditions = ["--fail-on", "cuts,nodes,edges,params,params>5%,saved-bytes,saved-bytes>5%,saved-bytes>1GB"]
    assert said(line, capsys, status)
    if form == "text":
        assert said([*line, "--full"], capsys, status)
    assert said([*line, *conditions], capsys, status)


def test_the_figures_of_a_diff_are_bounded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(folder / "small.gir"), str(folder / "a.gir")]
    found = said(["diff", *files, "--format", "markdown"], capsys, 1)
    assert f"**Parameters in the graph:** 6 → {BEYOND} (+" in found
    assert "**Saved for backward:** 0 B → ≥ 9.2 EB" in found
    totals = json.loads(said(["diff", *files, "--format", "json"], capsys, 1))["after"]
    assert (totals["parameters"], totals["saved_bytes"]) == (INT64_MAX, INT64_MAX)


def test_sizes_beyond_the_limit_count_as_growth(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(folder / "a.gir"), str(folder / "b.gir")]
    for condition in ("params", "params>5%", "saved-bytes", "saved-bytes>1GB"):
        assert f"{condition}: {BEYOND} -> {BEYOND}" in said(["diff", *files, "--fail-on", condition], capsys, 1)
        assert said(["diff", files[0], files[0], "--fail-on", condition], capsys).startswith(
            "no difference in the autograd graph; "
        )


@pytest.mark.parametrize("command", ["validate", "convert"])
def test_files_of_huge_sizes_are_read_and_written(
    command: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.gir", "packed.gir"):
        said([command, str(folder / name), *([str(tmp_path / name)] if command == "convert" else [])], capsys)


@pytest.mark.parametrize("dimensions", DIMENSIONS)
def test_sums_of_passes_fit_into_a_file(dimensions: int) -> None:
    graph = huge(dimensions)
    folded, rolled = fold(graph, 1), rollup(graph)
    assert folded.nodes["h"].attrs == {"nodes": INT64_MAX, "parameters": INT64_MAX, "saved_bytes": INT64_MAX}
    assert {node.ext["times"] for node in rolled.nodes.values() if node.scope == "h.0-2"} == {3, INT64_MAX}
    assert rolled.scopes["h.0-2"].total == INT64_MAX
    for made in (folded, fold(fold(graph, 2), 0), rolled):
        for form in ("json", "msgpack"):
            assert codecs.decode(codecs.encode(made, form)) == made


def test_the_counts_of_both_readers_agree() -> None:
    graph = huge(240)
    found = [codecs.survey(codecs.encode(graph, form)).totals for form in ("json", "msgpack")]
    assert found[0] == found[1]


@pytest.mark.parametrize("empty", [0, 239])
def test_a_tensor_with_a_size_of_0_has_no_elements(empty: int) -> None:
    shape = [INT64_MAX] * 240
    shape[empty] = 0
    assert tensor_elements(TensorMeta(shape=tuple(shape))) == 0


def test_numbers_that_can_be_counted_are_as_they_were() -> None:
    for number in (0, 1, 999, 1000, 10**12, INT64_MAX - 1):
        assert clamp_size(number) == number
        assert amount(number) == f"{number:,}"
        assert amount(-number, signed=True) == f"{-number:+,}"
    assert short_bytes(INT64_MAX - 1) == "9.2 EB"
    assert short_bytes(-INT64_MAX, signed=True) == "≤ -9.2 EB"
