"""A plugin of the tests that run git: a home and a repository of their own, and a way to run commands there."""

from __future__ import annotations

import os
from pathlib import Path

import forked
import pytest
from git_places import Run, change_eps, runner
from samples import everything
from tools import path_without

import gradir


@pytest.fixture
def environment(tmp_path: Path, clean_environment: dict[str, str]) -> dict[str, str]:
    """A home of its own, and a program ``gradir`` that can be taken away."""
    programs = tmp_path / "bin"
    programs.mkdir()
    forked.program(programs / "gradir")
    home = tmp_path / "home"
    home.mkdir()
    return {
        **clean_environment,
        "PATH": f"{programs}{os.pathsep}{path_without('gradir')}",
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_PAGER": "cat",
        "TERM": "dumb",
    }


@pytest.fixture
def repository(tmp_path: Path, environment: dict[str, str]) -> Path:
    """A repository with two commits of model.gir."""
    root = tmp_path / "repository"
    root.mkdir()
    run = runner(root, environment)
    run("git", "init", "-q", "-b", "main")
    for graph, message in ((everything(), "first"), (change_eps(), "second")):
        gradir.save(graph, root / "model.gir")
        run("git", "add", "model.gir")
        run("git", "commit", "-q", "-m", message)
    return root


@pytest.fixture
def run(repository: Path, environment: dict[str, str]) -> Run:
    return runner(repository, environment)
