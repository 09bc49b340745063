"""``gradir debug``: print version information for bug reports."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from gradir import files
from gradir.errors import GradirError
from gradir.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.cli.parser import Parser
    from gradir.registry import Finder

DESCRIPTION = "Print the versions of gradir, Python, packages, plug-ins and programs."
EXAMPLES = ("gradir debug", "gradir debug --json > debug.json")
DETAILS = """\
The output has no paths, no names of users or machines, and no values of the environment: you can publish it.
"""

# Packages that gradir does not ask for, and that change what it shows.
_BESIDE: Final = ("ipython", "pytest")
_GROUPS: Final = ("frontends", "exporters", "passes", "renderers")
_TOOLS: Final = (("dot", "-V"), ("git", "--version"))
_PATIENCE: Final = 10.0
_ABSENT: Final = "not installed"
_NAMELESS: Final = "a distribution without a name"


def add_options(parser: Parser) -> None:
    parser.group("output").add_argument("--json", action="store_true", help="print it as JSON")


def run(options: argparse.Namespace) -> int:
    import msgspec

    found = _found()
    text = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n" if options.json else _text(found).encode()
    files.write_bytes("-", text)
    return 0


def _found() -> dict[str, Any]:
    import platform
    import webbrowser

    out, browser = sys.stdout, "found"
    # Without its name, which may be a private setting.
    try:
        webbrowser.get()
    except webbrowser.Error:
        browser = "none found"
    return {
        "gradir": __version__,
        "python": f"{platform.python_version()} {platform.python_implementation()}",
        "system": f"{platform.system()} {platform.machine()}",
        # Python has no standard output where the shell closed it.
        "console": f"{out.encoding}{' (a terminal)' if out.isatty() else ''}" if out is not None else "closed",
        "packages": {name: _version(name) for name in sorted(_packages())},
        **{group: dict(_plug_ins(group)) for group in _GROUPS},
        "programs": {**{name: _program(name, option) for name, option in _TOOLS}, "browser": browser},
    }


def _packages() -> set[str]:
    """Return the requirements of gradir and its extras, and the installed packages that require an extra."""
    from importlib import metadata

    found = {*_BESIDE}
    try:
        required = metadata.requires("gradir") or []
    except metadata.PackageNotFoundError:
        return found
    found.update(map(_name, required))
    extras = {_name(each) for each in required if "extra ==" in each}
    for each in metadata.distributions():
        # An installation that was interrupted leaves one that has no name.
        if each.name and any("extra ==" not in asked and _name(asked) in extras for asked in each.requires or ()):
            found.add(_name(each.name))
    return found - {"gradir"}


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def _version(name: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return _ABSENT


def _plug_ins(group: str) -> Iterator[tuple[str, str]]:
    from importlib import metadata

    from gradir import registry

    finders: dict[str, Finder[Any]] = {
        "frontends": registry.frontend,
        "exporters": registry.exporter,
        "passes": registry.pass_,
        "renderers": registry.renderer,
    }
    of: dict[str, list[str]] = {}
    for point in metadata.entry_points(group=f"gradir.{group}"):
        # What was copied there by hand, or installed in part, may have no name.
        owner = f"{point.dist.name} {point.dist.version}" if point.dist and point.dist.name else _NAMELESS
        if owner not in of.setdefault(point.name, []):
            of[point.name].append(owner)
    for name in sorted(of):
        yield name, " and ".join([*of[name], *_trouble(finders[group], name)])


def _trouble(finder: Finder[Any], name: str) -> Iterator[str]:
    from pathlib import Path

    try:
        # What a module prints when it is imported is no part of this, and may have paths in it.
        with (
            Path(os.devnull).open("w", encoding="utf-8") as nothing,
            contextlib.redirect_stdout(nothing),
            contextlib.redirect_stderr(nothing),
        ):
            finder.kind(name)
    except GradirError as error:
        # Its text may have paths in it.
        yield f"cannot be loaded: {type(error.__cause__ or error).__name__}"


def _program(name: str, option: str) -> str:
    import shutil
    import subprocess

    program = shutil.which(name)
    if program is None:
        return _ABSENT
    try:
        done = subprocess.run(  # noqa: S603 (a program of the path, without a shell)
            [program, option], capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not run"
    number = re.search(rb"\d+(?:\.\d+)+", done.stdout + done.stderr)
    return number[0].decode() if number else "of an unknown version"


def _text(found: dict[str, Any]) -> str:
    from gradir.ir.text import printable

    lines = []
    for key, value in found.items():
        if isinstance(value, dict):
            lines += ["", key, *(f"  {name}  {what}" for name, what in value.items())]
        else:
            lines.append(f"{key}  {value}")
    return "".join(f"{printable(line)}\n" for line in lines)
