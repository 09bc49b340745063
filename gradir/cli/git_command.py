"""``gradir git``: show graphs in ``git diff``, and merge them in ``git merge``."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from gradir import api, files
from gradir.cli import comparing
from gradir.cli.report import one_line, report, write_output
from gradir.errors import FormatError, GradirError, NewerFormatError
from gradir.ir import Graph
from gradir.ir.text import escape_unprintable

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.git.configuration import Where

DESCRIPTION = "Show .gir files as text in git diff and git log, and merge them in git merge."

EXAMPLES = (
    "gradir git install  # for this repository and its worktrees",
    "gradir git install --global  # for all your repositories",
    "gradir git status",
    "gradir git uninstall",
)

DETAILS = """\
After 'install', git diff, git log -p, git show and git add -p show a line for each node, whatever the encoding of the
file. 'git difftool -t gradir' shows a diff of graphs, and git merge and git rebase merge graphs: see
'gradir help merge'. Without gradir on PATH, git shows JSON files as they are and merges none.

For everybody who works on a repository, put this line into its .gitattributes:
  *.gir -text diff=gradir merge=gradir

To see diffs of graphs in a log:
  git -c diff.gradir.command='gradir git diff' log -p --ext-diff

Exit status: 0 done, 2 trouble, such as install or --local outside a repository.
"""


def add_options(parser: Parser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, run, help_text in (
        ("install", _install, "set the drivers and their attributes"),
        ("uninstall", _uninstall, "remove them without a trace"),
        ("status", _status, "print what is installed"),
    ):
        action = actions.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        group = action.add_mutually_exclusive_group()
        places = {"local": "in this repository (default)", "global": "for all repositories of this user"}
        for where, about in places.items():
            group.add_argument(f"--{where}", dest="where", action="store_const", const=where, help=about)
        action.set_defaults(run=run, where=None)
    textconv = actions.add_parser("textconv", description="Print a .gir file as plain text; git calls this.")
    textconv.add_argument("file", metavar="FILE")
    textconv.set_defaults(run=_print_text)
    difftool = actions.add_parser("difftool", description="Print how a .gir file changed; git calls this.")
    difftool.add_argument("local", metavar="BEFORE")
    difftool.add_argument("remote", metavar="AFTER")
    difftool.add_argument("name", metavar="NAME", help="what the file is called")
    comparing.add_options(difftool)
    difftool.set_defaults(run=_show_change)
    about = "Print how a .gir file changed; git calls this in place of a diff."
    external = actions.add_parser("diff", description=about)
    external.add_argument("name", metavar="NAME", help="what the file is called")
    about = "file, id and mode before, the same after, and what git says of a renamed file"
    external.add_argument("sides", metavar="SIDE", nargs="*", help=about)
    comparing.add_options(external)
    external.set_defaults(run=_show_external)


def _install(options: argparse.Namespace) -> int:
    from gradir.git import driver

    done = driver.install(options.where or "local")
    place = one_line(str(done.attributes))
    print(f"installed ({done.where}): drivers 'gradir' in git's configuration, attributes in {place}")
    return 0


def _uninstall(options: argparse.Namespace) -> int:
    from gradir.git import driver

    where: Where = options.where or "local"
    driver.uninstall(where)
    print(f"uninstalled ({where})")
    return 0


def _status(options: argparse.Namespace) -> int:
    from gradir.git import driver
    from gradir.git.repository import NoRepositoryError

    places: tuple[Where, ...] = (options.where,) if options.where else ("local", "global")
    for where in places:
        try:
            found = driver.status(where)
        except NoRepositoryError:
            if options.where:
                raise
            print(f"{where:<7} no repository here")
            continue
        if found.installed:
            state = "installed" if found.current else "installed by another gradir: run 'gradir git install' again"
        elif found.command:
            state = "driver only: the attributes may be in a .gitattributes"
        else:
            state = "attributes only: run 'gradir git install'" if found.has_attributes else "not installed"
        print(f"{where:<7} {state} ({one_line(str(found.attributes))})")
    if driver.is_stopped():
        print("git was run where gradir was missing, and caches no texts until it shows a graph with gradir again")
    return 0


def _show_change(options: argparse.Namespace) -> int:
    """Show how the graph of a file changed; a missing side is an empty graph."""
    if any(map(os.path.isdir, (options.local, options.remote))):
        raise GradirError("folders are not compared: run git difftool without --dir-diff")
    before, after = _read_side(options.local), _read_side(options.remote)
    if not before and not after:
        raise FormatError(f"{options.name}: the file is empty")
    a, b = (_decode_side(data, options.name, side) for data, side in ((before, "before"), (after, "after")))
    change = "" if before and after else " (added)" if after else " (deleted)"
    found = comparing.compare_and_warn(a, b, options)
    try:
        write_output("-", f"{escape_unprintable(options.name)}{change}\n\n".encode())
        comparing.write_diff(found, options)
        files.write_bytes("-", b"\n")
    except BrokenPipeError:
        # git reports a status of 126 and above as a missing tool.
        files.silence_stdout()
    return 0


def _show_external(options: argparse.Namespace) -> int:
    """Show a change for git's external diff; an error must not end the whole log."""
    if len(options.sides) < 6:
        name = escape_unprintable(options.name)
        write_output("-", f"{name} (in conflict): see gradir merge :1:{name} :2:{name} :3:{name}\n".encode())
        return 0
    options.local, options.remote = options.sides[0], options.sides[3]
    try:
        return _show_change(options)
    except GradirError as error:
        report(str(error))
        return 0


def _print_text(options: argparse.Namespace) -> int:
    """Print text that git may cache, also for a broken file, since its bytes stay broken."""
    from gradir import registry

    data = files.read_bytes(options.file)
    try:
        text = registry.export("plain", api.loads(data), {"brief": True}).encode()
    except NewerFormatError:
        # A newer gradir can show the file, so git must not cache a text.
        raise
    except FormatError as error:
        try:
            lines = data.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            lines = [f"gradir: {error}"]
        # The bytes may contain control characters that a terminal obeys.
        text = "".join("\t".join(map(escape_unprintable, line.split("\t"))) + "\n" for line in lines).encode()
    files.write_bytes("-", text)
    return 0


def _read_side(path: str) -> bytes:
    """Return the bytes of one side, which are empty for a missing file (git passes the null device)."""
    return b"" if path in {"/dev/null", os.devnull} else files.read_bytes(path)


def _decode_side(data: bytes, name: str, side: str) -> Graph:
    if not data:
        return Graph.of([])
    # git passes the path of a temporary file, which means nothing to the user.
    with files.naming(f"{name} ({side})"):
        return api.loads(data)
