"""docs/diff.md is true: its example, its tables."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from gradir.cli import main
from gradir.diffs.changes import Diff, Kind
from gradir.diffs.diff_json import encode
from gradir.ir.totals import Totals
from gradir.review.wording import SIGNS

ROOT = Path(__file__).parents[1]
DOCS = (ROOT / "docs" / "diff.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The words in code of each row of the table below a heading."""
    body = DOCS.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*) \|$", body, re.MULTILINE)
    return [
        re.findall(r"`([^`]+)`", row.split(" | ")[0]) + re.findall(r"`([^`]+)`", row.split(" | ")[1]) for row in rows
    ]


def test_every_sign_is_explained() -> None:
    assert dict(table("As text")) == {sign: kind for kind, sign in SIGNS.items()}
    assert set(SIGNS) == set(get_args(Kind))


def test_every_key_of_the_data_is_explained() -> None:
    written = msgspec.json.decode(encode(Diff(Totals(), Totals())))
    named = [name for row in table("As data") for name in row]
    assert [name for name in named if name in {"format", "version", *Diff.__struct_fields__}] == [
        "format",
        "version",
        *Diff.__struct_fields__,
    ]
    assert set(written) <= set(named)


def test_what_is_empty_is_left_out() -> None:
    written = msgspec.json.decode(encode(Diff(Totals(), Totals())))
    assert "Empty fields are left out: `changes`, `modules`, `script` and `findings`" in DOCS
    assert set(written) == {"format", "version", "before", "after"}


def test_the_example_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```console\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    *captures, diff = re.findall(r"^\$ gradir (.*)$", block, re.MULTILINE)
    for line in captures:
        assert main(shlex.split(line.removesuffix(" 2>/dev/null"))) == 0
    capfd.readouterr()
    assert main(shlex.split(diff)) == 1
    assert capfd.readouterr().out == block.partition(f"$ gradir {diff}\n")[2]
