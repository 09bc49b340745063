"""``gradir diff``: what changed between two ``.gir`` files."""

from __future__ import annotations

import argparse
import os
import sys

__all__ = ["register"]

_EPILOG = """\
examples:
  gradir diff main.gir branch.gir
  gradir capture model.py:loss | gradir diff model.gir -

exit status: 0 no difference, 1 a difference, 2 trouble
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "diff",
        help="compare two .gir files",
        description="Compare two captured graphs node by node, and group the differences by module.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A", help="the .gir file before; '-' is stdin")
    parser.add_argument("b", metavar="B", help="the .gir file after")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="how to show it (default: text)")
    parser.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="colour of the text form")
    parser.add_argument("--exit-zero", action="store_true", help="exit with status 0 even when the graphs differ")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare and print."""
    from gradir import api, files

    found = api.diff(api.load(options.a), api.load(options.b))
    if options.format == "json":
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    else:
        from gradir.diff.text import ANSI, NO_COLOUR, render_text

        text = render_text(found, palette=ANSI if _wants_colour(options.color) else NO_COLOUR)
    files.write_bytes("-", text.encode())
    return 1 if found and not options.exit_zero else 0


def _wants_colour(choice: str) -> bool:
    if choice != "auto":
        return choice == "always"
    # https://no-color.org
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
