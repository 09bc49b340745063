"""Runs of pytest with gradir's plugin, each a process of its own."""

from __future__ import annotations

import os
import sys
import time

import forked
import pytest


def run_with_plugin(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest with this plugin, and with xdist where workers are asked for: to load all there are takes longer."""
    plugins = ["gradir.pytest_plugin", *(["xdist.plugin"] if "-n" in arguments else [])]
    given = [word for plugin in plugins for word in ("-p", plugin)]
    start = time.monotonic()
    done = forked.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *given, *arguments],
        cwd=pytester.path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        text=True,
    )
    out, err = done.stdout.splitlines(), done.stderr.splitlines()
    return pytest.RunResult(done.returncode, out, err, time.monotonic() - start)
