"""Saved tensors of unknown size: a figure that leaves them out says so, and no condition passes them in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from reports import markdown, outcomes, render_details, render_text

import gradir
from gradir.cli import main
from gradir.diffs.compare import compare
from gradir.ir import Graph, Node, Saved
from gradir.review.conditions import parse_conditions


def slots(*sizes: int | None) -> Graph:
    return Graph.of([Node("x", saved=tuple(Saved(f"s{at}", bytes=size) for at, size in enumerate(sizes)))])


@pytest.mark.parametrize(
    ("before", "after", "figure", "reported", "unknown"),
    [
        ((8, 8), (8, None), "-8 B (-50.0 %)", "16 B → 8 B (-50.0 %)", "unknown for 1 slot"),
        ((8, None), (8, 8), "+8 B (+100.0 %)", "8 B → 16 B (+100.0 %)", "unknown for 1 slot before"),
        ((8, None), (16, None), "+8 B (+100.0 %)", "8 B → 16 B (+100.0 %)", "unknown for 1 slot"),
        ((8, None), (8, None, None), "as before", "8 B, as before", "unknown for 1 -> 2 slots"),
        ((None,), (None, None, None), "as before", "0 B, as before", "unknown for 1 -> 3 slots"),
    ],
)
def test_saved_bytes_name_unknown_slots(
    before: tuple[int | None, ...], after: tuple[int | None, ...], figure: str, reported: str, unknown: str
) -> None:
    sides = slots(*before), slots(*after)
    found = compare(*sides)
    assert render_details(found, sides).splitlines()[0].endswith(f"; saved bytes {figure}, {unknown}")
    assert render_text(found, sides).splitlines()[0].endswith(f"; saved bytes {figure}, {unknown}")
    (line,) = (line for line in markdown(*sides, found).splitlines() if line.startswith("**Saved for backward:**"))
    assert line == f"**Saved for backward:** {reported}, {unknown}  "


@pytest.mark.parametrize(
    ("before", "after", "condition", "texts", "fails"),
    [
        ((8, 8), (8, None), "saved-bytes>5%", ["saved-bytes>5%: 16 -> 8 (-50.0 %), unknown for 1 slot"], True),
        ((8,), (8, None), "saved-bytes>100", ["saved-bytes>100: 8 -> 8, unknown for 1 slot"], True),
        ((8,), (8, None), "saved-bytes", ["saved-bytes: 8 -> 8, unknown for 1 slot"], True),
        ((8, None), (8,), "saved-bytes", ["saved-bytes: 8 -> 8, unknown for 1 slot before"], True),
        (
            (8, None),
            (8, 4),
            "saved-bytes>9",
            ["saved-bytes>9: 8 -> 12 (+50.0 %), unknown for 1 slot before, which do not count"],
            False,
        ),
        (
            (8, None),
            (9, None),
            "saved-bytes>5",
            ["saved-bytes>5: 8 -> 9 (+12.5 %), unknown for 1 slot, which do not count"],
            False,
        ),
        ((8, None), (16, None), "saved-bytes>5", ["saved-bytes>5: 8 -> 16 (+100.0 %), unknown for 1 slot"], True),
        ((8,), (8, None), "nodes,params>1", [], False),
        ((8, None), (8, None), "saved-bytes>5%", [], False),
    ],
)
def test_an_unknown_size_fails_the_condition(
    before: tuple[int | None, ...], after: tuple[int | None, ...], condition: str, texts: list[str], fails: bool
) -> None:
    sides = slots(*before), slots(*after)
    found = list(outcomes(compare(*sides), sides, parse_conditions(condition)))
    assert [finding.text for finding in found] == texts
    assert [finding.fails for finding in found] == [fails] * len(texts)


def test_the_command_line_says_what_it_does_not_know(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / f"{side}.gir") for side in "abc"]
    for path, graph in zip(files, (slots(8, 8), slots(8, None), slots(9, None)), strict=True):
        gradir.save(graph, path)
    assert main(["diff", *files[:2], "--fail-on", "saved-bytes>5%"]) == 1
    assert capfd.readouterr().err == "gradir: saved-bytes>5%: 16 -> 8 (-50.0 %), unknown for 1 slot\n"
    assert main(["diff", *files[1:], "--fail-on", "saved-bytes>50%"]) == 0
    said = "gradir: saved-bytes>50%: 8 -> 9 (+12.5 %), unknown for 1 slot, which do not count\n"
    assert capfd.readouterr().err == said
