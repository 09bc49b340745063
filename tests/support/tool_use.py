"""Record which tests ask for a program that a bare machine lacks, and choose these tests for ``make test-bare``.

While tests run, PATH begins with a folder that has a script for each such program. The script records the test and
starts the program, whoever asked for it: Python, a shell or git. `shutil.which` records the test too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

import pytest
from bare_path import PROGRAMS
from tools import FIXTURES

_KEY: Final = "gradir/tool-tests"
_SHARED: Final = "GRADIR_TESTS_PROGRAMS"
"""The variable with the folder that all processes of a run share."""
_SCRIPT: Final = """\
#!/bin/sh
{{ read -r test <"${{0%/*}}.test" && printf '%s\\n' "$test" >>{asked}; }} 2>/dev/null
exec {program} "$@"
"""


class Recorder:
    """The plugin that records, in each process of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._owned = None if hasattr(config, "workerinput") else tempfile.TemporaryDirectory(prefix="gradir-")
        if self._owned:
            os.environ[_SHARED] = self._owned.name
            _write_scripts(Path(self._owned.name))
        self._shared = Path(os.environ[_SHARED])
        # Each process has a name for the folder, by which a script finds the test that runs.
        folder = self._shared / str(os.getpid())
        folder.symlink_to("programs")
        self._test = folder.with_suffix(".test")
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        record_lookups()

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> None:
        self._test.write_text(f"{collector.nodeid}\n", encoding="utf-8")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._test.write_text(f"{item.nodeid}\n", encoding="utf-8")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # A fixture of a session looks a tool up for its first test only.
        with (self._shared / "asked").open("a", encoding="utf-8", buffering=1) as asked:
            asked.writelines(f"{item.nodeid}\n" for item in items if FIXTURES & {*getattr(item, "fixturenames", ())})

    def pytest_unconfigure(self) -> None:
        if self._owned:
            asked = (self._shared / "asked").read_text(encoding="utf-8").splitlines()
            self._config.cache.set(_KEY, sorted({*asked, *self._config.cache.get(_KEY, [])}))
            self._owned.cleanup()


def _write_scripts(shared: Path) -> None:
    """Write a script for each program on PATH that a bare machine lacks."""
    folder, asked = shared / "programs", shared / "asked"
    folder.mkdir()
    asked.touch()
    for name, program in _programs():
        script = folder / name
        with suppress(FileExistsError), script.open("x", encoding="utf-8") as file:
            file.write(_SCRIPT.format(asked=shlex.quote(str(asked)), program=shlex.quote(program)))
            script.chmod(0o755)


def _programs() -> Iterator[tuple[str, str]]:
    """Return the name and path of each program on PATH that neither a bare machine nor the environment has."""
    own = str(Path(sys.executable).parent)
    folders = (folder for folder in os.get_exec_path() if folder != own and Path(folder).is_absolute())
    for folder in filter(os.path.isdir, folders):
        with os.scandir(folder) as entries:
            for each in entries:
                # A shell reads gettext.sh and the like with '.', so that a script may not replace them.
                is_left = each.name in PROGRAMS or each.name.endswith(".sh")
                if not is_left and os.access(each.path, os.X_OK) and each.is_file():
                    yield each.name, each.path


def record_lookups() -> None:
    """Let `shutil.which` record the test where it finds such a program."""
    look_up = shutil.which

    @wraps(look_up)
    def which(*arguments: Any, **options: Any) -> Any:
        found = look_up(*arguments, **options)
        test = Path(f"{Path(os.fsdecode(found or '')).parent}.test")
        if test.exists():
            with (test.parent / "asked").open("a", encoding="utf-8") as file:
                file.write(test.read_text(encoding="utf-8"))
        return found

    shutil.which = which


class Chooser:
    """The plugin that keeps the tests that asked for a tool in an earlier run."""

    def __init__(self, config: pytest.Config) -> None:
        asked = config.cache.get(_KEY, None)
        if asked is None:
            raise pytest.UsageError(
                "cannot choose the tests that ask for a tool: no run recorded them; run 'make test'"
            )
        self._config, self._asked = config, {*asked}
        self._files = {config.rootpath / name.partition("::")[0] for name in asked}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Import no other file: that would take longer than to run the tests."""
        return True if collection_path.suffix == ".py" and collection_path not in self._files else None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        others = [item for item in items if not self._asks(item)]
        self._config.hook.pytest_deselected(items=others)
        items[:] = filter(self._asks, items)

    def _asks(self, item: pytest.Item) -> bool:
        return bool({item.nodeid, item.nodeid.partition("::")[0]} & self._asked)
