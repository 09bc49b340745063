"""``gradir diff``: what changed between two ``.gir`` files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gradir.cli import comparing
from gradir.cli.parser import add_output

if TYPE_CHECKING:
    from gradir.cli.parser import Parser

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "add_options", "run"]

HELP = "compare two .gir files"
DESCRIPTION = "Compare two captured graphs node by node, and group the differences by module."

EPILOG = """\
examples:
  gradir diff main.gir branch.gir
  gradir diff HEAD model.gir                  the file as committed, and as it is now
  gradir diff HEAD~1 HEAD -- model.gir        the file in two revisions
  gradir diff main:model.gir model.gir
  gradir diff :model.gir model.gir            the file in the index; :2: and :3: are the sides of a conflict
  gradir capture model.py:loss | gradir diff model.gir -
  gradir diff main.gir branch.gir --format markdown --fail-on 'cuts,lost-inputs,params'
  gradir diff main.gir branch.gir -o change.svg

exit status: 0 no difference (or, with --fail-on, no condition holds), 1 a difference, 2 trouble
"""


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    parser.usage = "gradir diff [options] A B | REVISION [--] FILE | REVISION REVISION [--] FILE"
    parser.add_argument(
        "sides",
        metavar="A B",
        nargs="+",
        help="the .gir files before and after: a path, '-' for standard input, REVISION:PATH, "
        "or :PATH in the index, as git has them",
    )
    comparing.add_options(parser)
    add_output(parser)
    # What the name of the output ends in may say it.
    parser.set_defaults(format=None)
    parser.add_argument("--exit-zero", action="store_true", help="exit with status 0 even when the graphs differ")


def run(options: argparse.Namespace) -> int:
    """Compare and print."""
    from gradir.cli.suffixes import format_of_diff
    from gradir.files import check_apart
    from gradir.git.sides import sides

    options.format = format_of_diff(options.output, options.format, comparing.TEXT)
    comparing.check_options(options)
    before, after = sides(options.sides, _paths(options))
    for side in (before, after):
        if not side.revision:
            check_apart(side.path, options.output)
    a, b = comparing.loaded(before, after), comparing.loaded(after, before)
    found = comparing.compared(a, b, options)
    comparing.show(found, options)
    status = comparing.status_of(found, options)
    return 0 if options.exit_zero else status


def _paths(options: argparse.Namespace) -> int:
    """How many words stand after ``--``, which argparse drops."""
    given = options.arguments
    return len(given) - 1 - given.index("--") if "--" in given else 0
