"""``gradir check``: is the graph of a program still the one in a file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gradir.cli import comparing
from gradir.cli.capturing import SPEC_HELP, add_capture_options, captured, running_program, summary
from gradir.cli.parser import add_output
from gradir.cli.report import one_line, report
from gradir.errors import GradirError

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.stored import Found

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "add_options", "run"]

HELP = "capture, and compare with a .gir file"
DESCRIPTION = (
    "Capture what SPEC names and compare it with a .gir file, as a test does. Source lines and the flow of the forward "
    f"are noted where the file has them, and the graph of a forward is captured where the file is one.\n\n{SPEC_HELP}"
)

EPILOG = """\
examples:
  gradir check train.py:loss --against loss.gir
  gradir check train.py:loss --against loss.gir --format markdown >> "$GITHUB_STEP_SUMMARY"
  gradir check train.py:loss --against loss.gir -o loss.html   the page of what changed
  gradir check train.py:loss --against main:loss.gir           as another branch has it
  gradir check train.py:loss --against loss.gir --update       accept what there is now

exit status: 0 the graph is that of the file, 1 it is another, 2 trouble
"""


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    add_capture_options(parser)
    parser.add_argument(
        "--against",
        metavar="FILE",
        required=True,
        help="the .gir file that the graph should be, or REVISION:PATH, as for gradir diff",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="write the file where it is missing, broken or differs, and exit with status 0",
    )
    comparing.add_options(parser)
    add_output(parser, " what changed")
    # What the name of the output ends in may say it.
    parser.set_defaults(format=None)


def run(options: argparse.Namespace) -> int:
    """Capture, compare, print."""
    from gradir import files, stored
    from gradir.cli.suffixes import format_of_diff
    from gradir.ir.cuts import FLOW

    options.format = format_of_diff(options.output, options.format, comparing.TEXT)
    comparing.check_options(options)
    if options.update and options.against == "-":
        raise GradirError("--update writes the file it compares with, and '-' is none: name a file")
    # The file is read first: a capture may take long.
    before = _before(options)
    expected = before.graph
    noted = {} if expected is None else expected.producer.options
    for name in ("sources", FLOW):
        if noted.get(name) is True:
            setattr(options, name, True)
    forward = noted.get("graph") == "forward"
    if forward and options.verify:
        raise GradirError(
            f"--verify checks an autograd graph, and {options.against} has that of a forward: leave it out"
        )
    # The program may change the working directory.
    path = files.Located(options.against)
    if options.output != "-":
        files.check_apart(options.against, options.output)
        files.check_place(options.output)
        options.output = files.Located(options.output)
    with running_program(options, options.spec):
        graph = captured(options, forward=forward)
    if expected is not None:
        found = comparing.compared(expected, graph, options)
        comparing.show(found, options)
        if not found.diff or not options.update:
            return comparing.status_of(found, options)
    stored.write(graph, path, before)
    if before.fault:
        report(f"{options.against}: {before.fault}; rewritten")
    print(one_line(f"wrote {options.against}: {summary(graph)}"), file=sys.stderr)
    return 0


def _before(options: argparse.Namespace) -> Found:
    from gradir import stored
    from gradir.git.sides import side

    against = side(options.against)
    if against.revision:
        if options.update:
            raise GradirError(f"--update writes a file, and {options.against} is one of a revision: name a file")
        return stored.Found(options.against, comparing.loaded(against))
    if not options.update:
        return stored.Found(options.against, stored.read(options.against, "--update"))
    return stored.read_to_update(options.against)
