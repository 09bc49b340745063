"""The code of docs/watching.md runs, and its tables have what gradir has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gradir.cli import watch_command  # noqa: E402
from gradir.cli.parser import Parser  # noqa: E402
from gradir.vocabulary.causes import CAUSE_TEXTS  # noqa: E402
from gradir.vocabulary.training import TRAINING  # noqa: E402

PAGE = (Path(__file__).parents[1] / "docs" / "watching.md").read_text(encoding="utf-8")
LOOP, TRAINER, LIGHTNING, TEST, TENSORBOARD = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

pytest_plugins = ["pytester"]


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_a_loop_is_watched_and_written_for_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(LOOP, names)
    assert capsys.readouterr().out == "Nothing wrong was found in 20 steps.\n"
    pytest.importorskip("tensorboard")
    again = LOOP.partition("as w:\n")[2].partition("print")[0]
    steps = "\n".join(line.removeprefix("    ") for line in again.splitlines())
    exec(TENSORBOARD, {**names, "train": lambda: exec(steps, names)})
    assert list(tmp_path.glob("runs/events*"))


def test_the_fixture_works_as_it_says(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize(("library", "code"), [("transformers", TRAINER), ("lightning", LIGHTNING)])
def test_the_callbacks_are_imported_as_it_says(library: str, code: str) -> None:
    pytest.importorskip(library)
    exec(code.partition("\n\n")[0], {})


def test_every_option_is_in_the_table() -> None:
    parser = Parser(prog="gradir watch")
    watch_command.add_options(parser)
    options = {option for action in parser._actions for option in action.option_strings[:1]}
    rows = set(re.findall(r"^\| `(-[\w-]+)", section("Options"), re.MULTILINE))
    assert options - {"-h", "-m", "--color", "--traceback"} == rows


def test_the_table_of_findings_has_all_kinds_of_a_training() -> None:
    cells = re.findall(r"\|([^|]*)\|$", section("Findings"), re.MULTILINE)
    kinds = set(re.findall(r"`(\w+)`", "".join(cells)))
    assert kinds <= {*CAUSE_TEXTS}
    assert {*TRAINING} <= kinds
