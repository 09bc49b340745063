"""How long tests take, and the choice of those that take a minute together."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from tools import FIXTURES

__all__ = ["Durations", "leave_out_slow", "slowest"]

_KEY: Final = "gradir/durations"
_LONGEST: Final = 0.15
"""In seconds; most tests take a thousandth of one."""
_TAKES_LONG: Final = re.compile(r"torch|transformers|subprocess|forked|command_line|git_fixtures|tracemalloc|\bbombs\b")
"""What a file of tests that take long has in its text; asked where nothing has run yet."""
_OF_TOOLS: Final = FIXTURES | {"pytester"}
"""Fixtures whose tests start another program."""


class Durations:
    """Keeps how long each test took when it last ran, for the next choice."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._took: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        if self._took:
            took = {name: round(seconds, 3) for name, seconds in self._took.items()}
            self._config.cache.set(_KEY, {**_known(self._config), **took})


def _known(config: pytest.Config) -> dict[str, Any]:
    found: dict[str, Any] = config.cache.get(_KEY, {}) if config.pluginmanager.hasplugin("cacheprovider") else {}
    return found


def leave_out_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each test that starts no other program and did not take long when it last ran."""
    took = _known(config)
    slow_files = set() if len(took) > len(items) / 2 else _slow_files({item.path for item in items})
    seen = set[str]()
    kept: list[pytest.Item] = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        tools = _OF_TOOLS.intersection(getattr(item, "fixturenames", ()))
        if name not in seen and not tools and item.path not in slow_files and took.get(item.nodeid, 0) < _LONGEST:
            seen.add(name)
            kept.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _slow_files(paths: Iterable[Path]) -> set[Path]:
    return {path for path in paths if _TAKES_LONG.search(path.read_text(encoding="utf-8"))}


def slowest(took: dict[str, float], count: int) -> list[str]:
    """A line for each of the tests that took longest, and one for each file of them.

    >>> slowest({"a.py::one": 2.0, "a.py::two": 0.5, "b.py::three": 1.0}, 2)
    ['   2.00 s  a.py::one', '   1.00 s  b.py::three', '', '   2.50 s  a.py', '   1.00 s  b.py']
    """
    files: Counter[str] = Counter()
    for name, seconds in took.items():
        files[name.partition("::")[0]] += seconds  # type: ignore[assignment]
    tests = sorted(took.items(), key=lambda pair: (-pair[1], pair[0]))[:count]
    listed = sorted(files.items(), key=lambda pair: (-pair[1], pair[0]))[:count]
    lines = [[f"{seconds:7.2f} s  {name}" for name, seconds in each] for each in (tests, listed)]
    return [*lines[0], "", *lines[1]]


if __name__ == "__main__":
    kept = Path(__file__).parents[2] / ".pytest_cache" / "v" / _KEY
    if not kept.exists():
        sys.exit("no test has run here")
    print("\n".join(slowest(json.loads(kept.read_text(encoding="utf-8")), int(sys.argv[1]))))
