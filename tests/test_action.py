"""The GitHub action and the hooks for pre-commit are ordinary commands; here they are run as such."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from tools import path_without, require

yaml = pytest.importorskip("yaml")
pytest.importorskip("torch")

import gradir  # noqa: E402

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS: dict[str, dict[str, Any]] = {
    hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
}
PROGRAM = """
import torch
def loss():
    w = torch.ones(3, requires_grad=True)
    return w.exp().sum()
"""


@pytest.fixture
def project(tmp_path: Path, clean_environment: dict[str, str]) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    line = [sys.executable, "-m", "gradir", "capture", "train.py:loss", "-o", "loss.gir"]
    forked.run(line, cwd=tmp_path, env=clean_environment, check=True)
    program = tmp_path / "bin" / "gradir"
    program.parent.mkdir()
    forked.program(program)
    return tmp_path


def run_action(project: Path, environment: dict[str, str], **inputs: str) -> tuple[int, str]:
    """Run the steps of the action with these inputs; returns the exit status and the job's summary."""
    step = ACTION["runs"]["steps"][0]
    given = {name: inputs.get(name, value.get("default", "")) for name, value in ACTION["inputs"].items()}
    environ = {
        **environment,
        "PATH": f"{project / 'bin'}{os.pathsep}{path_without('gradir')}",
        "GITHUB_STEP_SUMMARY": str(project / "summary.md"),
        "GITHUB_OUTPUT": str(project / "outputs.txt"),
    }
    for name, expression in step["env"].items():
        (key,) = [key for key in given if expression == f"${{{{ inputs.{key} }}}}"]
        environ[name] = given[key]
    # As GitHub runs a step whose shell is bash.
    line = [require("bash"), "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    summary = project / "summary.md"
    summary.unlink(missing_ok=True)
    (project / "outputs.txt").unlink(missing_ok=True)
    done = subprocess.run(line, cwd=project, env=environ, capture_output=True, text=True, check=False)
    opened, *lines, closed = done.stderr.splitlines()
    # What the program prints between these two is no command of the workflow; nobody can know the word before.
    assert re.fullmatch(r"::stop-commands::[0-9a-f]{32}", opened)
    assert closed == opened.replace("stop-commands::", "") + "::"
    (project / "log.txt").write_text("\n".join(lines))
    return done.returncode, summary.read_text() if summary.exists() else ""


def test_the_action_passes_and_says_so(project: Path, clean_environment: dict[str, str]) -> None:
    done = run_action(project, clean_environment, spec="train.py:loss", against="loss.gir")
    assert done == (0, "### Autograd graph: no difference\n")


def test_the_action_fails_with_a_report(project: Path, clean_environment: dict[str, str]) -> None:
    (project / "train.py").write_text(PROGRAM.replace("exp", "sin"))
    status, summary = run_action(project, clean_environment, spec="train.py:loss", against="loss.gir")
    assert status == 1
    assert "**Nodes:**" in summary
    assert "```mermaid" in summary
    status, _ = run_action(
        project, clean_environment, spec="train.py:loss", against="loss.gir", options="--fail-on params"
    )
    assert status == 0


def test_trouble_fails_the_action(project: Path, clean_environment: dict[str, str]) -> None:
    error = "gradir: missing.gir: cannot be read: no such file; --update writes it\n"
    status, summary = run_action(project, clean_environment, spec="train.py:loss", against="missing.gir")
    assert (status, summary) == (2, f"### gradir check: exit status 2\n\n    {error}")
    assert (project / "log.txt").read_text() == error
    hostile = "$(touch hostile)"
    assert run_action(project, clean_environment, spec=hostile, against=f"`touch hostile`{hostile}")[0] == 2
    assert not (project / "hostile").exists()


def test_no_gradir_is_trouble_that_is_reported(project: Path, clean_environment: dict[str, str]) -> None:
    (project / "bin" / "gradir").unlink()
    status, summary = run_action(project, clean_environment, spec="train.py:loss", against="loss.gir")
    assert status == 127
    assert summary.startswith("### gradir check: exit status 127\n\n    ")
    assert "gradir: command not found" in summary


def test_options_are_words_and_no_patterns(project: Path, clean_environment: dict[str, str]) -> None:
    (project / "train.py").write_text(PROGRAM.replace("exp", "sin"))
    options = "--ignore * --fail-on params"
    status, _ = run_action(project, clean_environment, spec="train.py:loss", against="loss.gir", options=options)
    assert (project / "log.txt").read_text() == ""
    assert status == 0


def test_lines_of_the_program_are_no_commands_of_the_workflow(project: Path, clean_environment: dict[str, str]) -> None:
    hostile = "::error::from the program\\n##[error]too"
    (project / "train.py").write_text(f"import sys\nprint('{hostile}', file=sys.stderr, end='')\n{PROGRAM}")
    assert run_action(project, clean_environment, spec="train.py:loss", against="loss.gir")[0] == 0
    assert (project / "log.txt").read_text() == "::error::from the program\n##[error]too"


def test_the_check_sees_no_token_and_posts_nothing() -> None:
    """Its program can change all that later steps of its job run, so no step of the action may have a token."""
    assert len(ACTION["runs"]["steps"]) == 1
    assert "token" not in json.dumps(ACTION)
    assert "uses" not in ACTION["runs"]["steps"][0]


def test_the_report_is_an_output(project: Path, clean_environment: dict[str, str]) -> None:
    run_action(project, clean_environment, spec="train.py:loss", against="loss.gir")
    name, _, path = (project / "outputs.txt").read_text().strip().partition("=")
    assert (name, Path(path).name) == ("report", "report.md")
    assert Path(path).read_text() == (project / "summary.md").read_text()


def test_the_hook_for_files_has_what_each_of_them_takes() -> None:
    hook = HOOKS["gradir-validate"]
    assert re.search(hook["files"], "model.gir.zst")
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"\nzstd = {json.dumps(hook['additional_dependencies'])}\n" in pyproject


def test_the_hooks_are_commands(project: Path, clean_environment: dict[str, str]) -> None:
    def run(hook: str, *words: str) -> int:
        entry = shlex.split(HOOKS[hook]["entry"])
        assert entry[0] == "gradir"
        line = [sys.executable, "-m", "gradir", *entry[1:], *words]
        return forked.run(line, cwd=project, env=clean_environment).returncode

    assert run("gradir-validate", "loss.gir") == 0
    assert run("gradir-check", "train.py:loss", "--against", "loss.gir") == 0
    (project / "train.py").write_text(PROGRAM.replace("exp", "sin"))
    assert run("gradir-check", "train.py:loss", "--against", "loss.gir") == 1
    graph = gradir.load(project / "loss.gir")
    (project / "loss.gir").write_bytes(gradir.dumps(graph) + b"\n")
    assert run("gradir-validate", "loss.gir") == 2
