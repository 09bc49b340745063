"""Install and remove the drivers with which ``git diff`` shows graphs as text and ``git merge`` merges them.

A failing *textconv* driver would end ``git diff``, so the script ``gradir.sh`` falls back to the file itself. A failing
merge driver is a conflict, in which the file stays as ours.

git caches the output of a *textconv* command, also if gradir is missing, and would show it for ever. Its write to the
cache fails silently while there is a ref below the cache's ref. So if gradir returns no text, the script drops the
cache and creates such a ref, the *stop*. It removes the stop once gradir returns a text again. That must be in a later
run of git, since the old run still has the other text in memory. So the stop is a tree with the process id of its run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final, NamedTuple

from gradir import files
from gradir.errors import GradirError
from gradir.git.configuration import (
    Where,
    add_block,
    config_home,
    config_path,
    has_block,
    remove_block,
    remove_sections,
)
from gradir.git.repository import GitError, answer, git_path, output, succeeds
from gradir.version import __version__

_COMMAND: Final = "diff.gradir.textconv"
# Without -text, git for Windows would change the line ends of a graph.
_ATTRIBUTES: Final = [f"*.gir{end} -text diff=gradir merge=gradir" for end in ("", ".gz", ".zst")]
_SCRIPT: Final = "gradir.sh"
_COMMON: Final = "$(git rev-parse --git-common-dir)"
_CACHE: Final = "refs/notes/textconv/gradir"
_STOP: Final = f"{_CACHE}/stop"
# The command begins with this name, and git drops its cache if the command changes.
_NAME: Final = f"gradir {__version__}: graph texts, plain 1 in brief"


class Status(NamedTuple):
    """The command and the attributes of an installation; ``current`` means that this gradir would install the same."""

    where: Where
    command: str
    attributes: Path
    has_attributes: bool
    current: bool

    @property
    def installed(self) -> bool:
        """Return whether both halves are there."""
        return bool(self.command) and self.has_attributes


def install(where: Where) -> Status:
    """Set the driver and the attributes, and replace older ones; an error leaves nothing new behind."""
    before = status(where)
    try:
        if before.command and not before.current:
            # An earlier gradir may have set more than this one.
            uninstall(where)
        _install(where)
    except GradirError:
        if not before.installed:
            with contextlib.suppress(GradirError):
                uninstall(where)
        raise
    _forget()
    return status(where)


def uninstall(where: Where) -> None:
    """Remove what `install` added, and files and folders that are empty then."""
    texts = {path: _text(path) for path in _attributes_paths(where)}
    rests = {path: remove_block(text) for path, text in texts.items() if has_block(text)}
    config = config_path(where)
    if config.is_file():
        data = files.read_bytes(config)
        if (others := remove_sections(data)) != data:
            files.write_bytes(config, others)
    for key in _settings(where):
        if succeeds(["config", f"--{where}", "--get-all", key]):
            output(["config", f"--{where}", "--unset-all", key])
    script = _script(where)
    if _is_script(_encode(_text(script))):
        script.unlink()
    for path, rest in rests.items():
        files.write_bytes(path, _encode(rest))
    for path in (*texts, script, config):
        place = Path(os.path.realpath(path))
        with contextlib.suppress(OSError):
            if place.is_file() and not place.stat().st_size:
                place.unlink()
            place.parent.rmdir()
    _forget()


def status(where: Where) -> Status:
    """Return the state of the installation."""
    path = _attributes_paths(where)[0]
    settings = _settings(where)
    values = {key: answer(["config", f"--{where}", "--get", key]) or b"" for key in settings}
    found = {key: os.fsdecode(value).rstrip("\n") for key, value in values.items()}
    is_current = found == settings and _encode(_text(_script(where))) == _script_text()
    return Status(where, found[_COMMAND], path, has_block(_text(path)), current=is_current)


def _install(where: Where) -> None:
    config, path = config_path(where), _attributes_paths(where)[0]
    if config.exists() and not config.is_file():
        raise GitError(f"{config}: is not a file, so it cannot contain settings")
    attributes, script = add_block(_text(path), _ATTRIBUTES), _script(where)
    if script.exists() and not _is_script(_encode(_text(script))):
        raise GradirError(f"{script}: is not a script of gradir, which needs this path; move it")
    files.write_bytes(_make_parent(script), _script_text())
    for key, value in _settings(where).items():
        output(["config", f"--{where}", "--replace-all", key, value])
    files.write_bytes(_make_parent(path), _encode(attributes))


def _settings(where: Where) -> dict[str, str]:
    script = f'"{_COMMON}/{_SCRIPT}"' if where == "local" else shlex.quote(str(_script(where)))
    run = f"sh {script} {_program()}"
    return {
        # With exec, so that the parent of the script is git.
        _COMMAND: f": {shlex.quote(_NAME)}; exec sh {script} --text {_program()} git textconv --",
        "diff.gradir.cachetextconv": "true",
        "difftool.gradir.cmd": f'{run} git difftool -- "$LOCAL" "$REMOTE" "$MERGED"',
        "merge.gradir.driver": f"{run} merge -o %A -- %O %A %B %P",
    }


def _script(where: Where) -> Path:
    return (config_path(where).parent if where == "local" else config_home()) / _SCRIPT


def _attributes_paths(where: Where) -> tuple[Path, ...]:
    if where == "local":
        return (git_path("info/attributes"),)
    usual = config_home() / "attributes"
    found = answer(["config", "--global", "--type=path", "--get", "core.attributesFile"])
    return (usual,) if found is None else (Path(os.fsdecode(found.rstrip(b"\n"))), usual)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise GitError(f"{path}: cannot be read: {error.strerror}") from error


def _encode(text: str) -> bytes:
    # A path in an attributes file may be in any encoding.
    return text.encode("utf-8", "surrogateescape")


def _make_parent(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GitError(f"{path.parent}: cannot be made: {error.strerror}") from error
    return path


def _script_text() -> bytes:
    return Path(__file__).with_name("gradir.sh").read_bytes()


def _is_script(text: bytes) -> bool:
    """Return whether some gradir wrote this script."""
    return text.splitlines()[:2] == _script_text().splitlines()[:2]


def _program() -> str:
    """Return how a shell runs gradir without importing from the working directory."""
    # Running the file keeps `PYTHONPATH`, unlike the option -I, and Python 3.10 has no -P.
    found = shutil.which("gradir")
    if found and Path(found).is_absolute():
        return "gradir"
    return shlex.join([sys.executable, str(Path(__file__).absolute().parents[1] / "__main__.py")])


def is_stopped() -> bool:
    """Return whether git ran without gradir and caches nothing since."""
    return succeeds(["rev-parse", "--verify", "--quiet", _STOP])


def _forget() -> None:
    """Drop git's cached texts, and let it cache new ones."""
    for ref in (_CACHE, _STOP):
        if succeeds(["rev-parse", "--verify", "--quiet", ref]):
            output(["update-ref", "-d", ref])
