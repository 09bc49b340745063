"""``gradir debug``: print version information for bug reports."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from importlib import metadata
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

# Packages that gradir does not require, and that change its output.
_BESIDE: Final = ("ipython", "pytest")
# The function of `gradir.registry` for each kind of plug-in.
_FINDERS: Final = {"frontends": "frontend", "exporters": "exporter", "passes": "pass_", "renderers": "renderer"}
_TOOLS: Final = (("dot", "-V"), ("git", "--version"))
_PATIENCE: Final = 10.0
_ABSENT: Final = "not installed"
_NAMELESS: Final = "a distribution without a name"


def add_options(parser: Parser) -> None:
    parser.group("output").add_argument("--json", action="store_true", help="print it as JSON")


def run(options: argparse.Namespace) -> int:
    import msgspec

    found = _collect()
    if options.json:
        files.write_bytes("-", msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    else:
        files.write_bytes("-", _format_text(found).encode())
    return 0


def _collect() -> dict[str, Any]:
    import platform
    import webbrowser

    out, browser = sys.stdout, "found"
    # The name of the browser may be a private setting.
    try:
        webbrowser.get()
    except webbrowser.Error:
        browser = "none found"
    return {
        "gradir": __version__,
        "python": f"{platform.python_version()} {platform.python_implementation()}",
        "system": f"{platform.system()} {platform.machine()}",
        # Python has no standard output if the shell closed it.
        "console": f"{out.encoding}{' (a terminal)' if out.isatty() else ''}" if out is not None else "closed",
        "packages": {name: _find_version(name) for name in sorted(_find_packages())},
        **{group: dict(_describe_plug_ins(group)) for group in _FINDERS},
        "programs": {**{name: _ask_program(name, option) for name, option in _TOOLS}, "browser": browser},
    }


def _find_packages() -> set[str]:
    """Return the requirements of gradir and its extras, and the installed packages that require an extra."""
    found = {*_BESIDE}
    try:
        required = metadata.requires("gradir") or []
    except metadata.PackageNotFoundError:
        return found
    found.update(map(_name, required))
    extras = {_name(each) for each in required if "extra ==" in each}
    for each in metadata.distributions():
        # An interrupted installation leaves a distribution without a name.
        if each.name and any("extra ==" not in other and _name(other) in extras for other in each.requires or ()):
            found.add(_name(each.name))
    return found - {"gradir"}


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def _find_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return _ABSENT


def _describe_plug_ins(group: str) -> Iterator[tuple[str, str]]:
    from gradir import registry

    finder: Finder[Any] = getattr(registry, _FINDERS[group])
    owners: dict[str, list[str]] = {}
    for point in metadata.entry_points(group=f"gradir.{group}"):
        # A distribution that was copied by hand, or installed in part, may have no name.
        owner = f"{point.dist.name} {point.dist.version}" if point.dist and point.dist.name else _NAMELESS
        if owner not in owners.setdefault(point.name, []):
            owners[point.name].append(owner)
    for name in sorted(owners):
        yield name, " and ".join([*owners[name], *_try_to_load(finder, name)])


def _try_to_load(finder: Finder[Any], name: str) -> Iterator[str]:
    from pathlib import Path

    try:
        # A module may print paths when it is imported.
        with (
            Path(os.devnull).open("w", encoding="utf-8") as nothing,
            contextlib.redirect_stdout(nothing),
            contextlib.redirect_stderr(nothing),
        ):
            finder.kind(name)
    except GradirError as error:
        # The text of an error may contain paths.
        yield f"cannot be loaded: {type(error.__cause__ or error).__name__}"


def _ask_program(name: str, option: str) -> str:
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


def _format_text(found: dict[str, Any]) -> str:
    from gradir.ir.text import escape_unprintable

    lines = []
    for key, value in found.items():
        if isinstance(value, dict):
            lines += ["", key, *(f"  {name}  {text}" for name, text in value.items())]
        else:
            lines.append(f"{key}  {value}")
    return "".join(f"{escape_unprintable(line)}\n" for line in lines)
