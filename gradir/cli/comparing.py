"""What the commands that compare have in common: the options, showing a diff, and the exit status."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from gradir.errors import FormatError, GradirError

if TYPE_CHECKING:
    from gradir.diff.model import Diff
    from gradir.git.sides import Side
    from gradir.ir import Graph

__all__ = ["add_comparison_options", "check_comparison_options", "compared", "loaded", "show", "status_of"]

_NTH: Final = ("first", "second")


def add_comparison_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a diff is made and shown."""
    parser.add_argument(
        "--format",
        choices=["text", "markdown", "json", "mermaid", "dot", "svg"],
        default="text",
        help="text (default), a report for a pull request, data, or a picture of what changed and what is near it",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="text form: every change by itself, equal ones too, and all that is in modules that came or went",
    )
    parser.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="colour of the text form")
    parser.add_argument(
        "--ignore",
        metavar="FIELDS",
        action="append",
        default=[],
        help="fields that do not count, such as source,attrs.eps,saved; also scopes, cuts, order, indices and sequence",
    )
    parser.add_argument(
        "--normalize",
        action="store_true",
        help="ignore what another release of the framework changes by itself: its own names, lines, equal operations",
    )
    parser.add_argument(
        "--fail-on",
        metavar="CONDITIONS",
        help="exit with status 1 only where one holds: cuts, params, saved-bytes>5%%, nodes>10, edges",
    )


def check_comparison_options(options: argparse.Namespace) -> None:
    """Refuse wrong values before anything is loaded.

    Raises:
        GradirError: a field or a condition that there is not.
    """
    from gradir.diff.ignoring import check_names

    check_names(_ignored(options))
    if options.fail_on is not None:
        from gradir.diff.report.conditions import parsed

        if not options.fail_on.strip():
            raise GradirError("--fail-on needs a condition, such as cuts; leave it out to fail on any difference")
        parsed(options.fail_on)


def compared(a: Graph, b: Graph, options: argparse.Namespace) -> Diff:
    """The diff that the options ask for; says where another release, or other options, made one of the two."""
    from gradir import api
    from gradir.cli.report import report

    found = api.diff(a, b, ignore=_ignored(options), normalize=options.normalize)
    made = [(graph.producer.framework, graph.producer.framework_version) for graph in (a, b)]
    if all(name for name, _ in made) and made[0] != made[1]:
        hint = "" if options.normalize or made[0][0] != made[1][0] else "; --normalize leaves out what that changes"
        report(f"comparing a graph of {' '.join(made[0])} with one of {' '.join(made[1])}{hint}")
    noted = [any(node.source is not None for node in graph.nodes.values()) for graph in (a, b)]
    if noted[0] != noted[1] and "source" not in _ignored(options):
        report(
            f"only the {_NTH[noted.index(True)]} graph has source lines; --ignore source,names leaves out what they add"
        )
    return found


def loaded(side: Side, other: Side | None = None) -> Graph:
    """The graph of one side; ``other`` is the side that a renamed file is looked for from.

    Raises:
        GradirError: it cannot be read.
    """
    from gradir import api

    if not side.revision:
        return api.load(side.path)
    try:
        return api.loads(side.blob(other))
    except FormatError as error:
        raise error.moved(file=side.name) from error


def show(a: Graph, b: Graph, diff: Diff, options: argparse.Namespace) -> None:
    """Print a diff."""
    from gradir import files

    files.write_bytes("-", _shown(a, b, diff, options))


def status_of(a: Graph, b: Graph, diff: Diff, options: argparse.Namespace) -> int:
    """The exit status: 1 for a difference or, with conditions, where one holds, which is then said."""
    if not options.fail_on:
        return 1 if diff else 0
    from gradir.cli.report import report
    from gradir.diff.report.conditions import findings, parsed

    fails = False
    for finding in findings(diff, (a, b), parsed(options.fail_on)):
        report(finding.text)
        fails = fails or finding.fails
    return 1 if fails else 0


def _ignored(options: argparse.Namespace) -> list[str]:
    return [name for words in options.ignore for name in words.split(",")]


def _shown(a: Graph, b: Graph, diff: Diff, options: argparse.Namespace) -> bytes:
    if options.format == "json":
        from gradir.diff.document import encode

        return encode(diff)
    if options.format == "text":
        from gradir.diff.report.text import ANSI, NO_COLOUR, render_brief, render_text

        palette = ANSI if _wants_colour(options.color) else NO_COLOUR
        render = render_text if options.full else render_brief
        return render(diff, (a, b), palette=palette, width=_columns()).encode()
    from gradir import api
    from gradir.cli.report import report
    from gradir.review import changed_part, markdown

    if options.format == "markdown":
        return markdown(a, b, diff).encode()
    part = changed_part(a, b, diff)
    if diff and not part.nodes:
        report("no node changed by itself: there is nothing to draw; --format text says what there is")
    return (
        api.render(part, "svg", legend=True) if options.format == "svg" else api.export(part, options.format).encode()
    )


def _columns() -> int | None:
    if not _is_terminal():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _wants_colour(choice: str) -> bool:
    if choice != "auto":
        return choice == "always"
    # https://no-color.org
    return _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
