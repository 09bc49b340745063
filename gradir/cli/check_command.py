"""``gradir check``: compare the graph of a program with the one in a file."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from gradir import files, forwards, snapshots
from gradir.cli import comparing, sources
from gradir.cli.parser import Parser, add_output
from gradir.cli.programs import Loaded, add_verify_option, summarize_graph
from gradir.cli.report import one_line, report
from gradir.errors import GradirError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.ir import Graph

DESCRIPTION = "Compare a graph with the one in a .gir file, and fail if they differ."

EXAMPLES = (
    "gradir check train.py:loss --against loss.gir",
    "gradir check train.py:loss --against loss.gir --update  # accept the change",
    "gradir check train.py:loss --against main:loss.gir",
    "gradir check train.py:loss --against loss.gir -o loss.html",
    'gradir check train.py:loss --against loss.gir --format markdown >> "$GITHUB_STEP_SUMMARY"',
)

DETAILS = """\
gradir captures the program as the file was captured: with source lines, with the flow of the forward, or the graph of
the forward. It compares that too where 'gradir capture --graph both' or --update wrote it beside the file.

Exit status: 0 the graphs are equal, or no condition of --fail-on holds, 1 they differ, 2 trouble.
"""


def add_options(parser: Parser) -> None:
    sources.add_graph_argument(parser)
    add_verify_option(parser)
    group = parser.group("input")
    group.add_argument("--against", metavar="GRAPH", required=True, help="expected graph")
    group.add_argument("--update", action="store_true", help="write --against if it is missing or differs")
    comparing.add_options(parser)
    add_output(parser)
    # The suffix of the output may choose the format.
    parser.set_defaults(format=None, takes_both=True)


def run(options: argparse.Namespace) -> int:
    comparing.check_options(options)
    source, against = sources.find_source(options.file), _find_expected(options.against)
    _check_sides(options, against)
    options.names = sources.shorten_names([against.name, source.name])
    # The program may change the working directory.
    path = files.Located(against.path) if against.path else None
    if options.output != "-":
        if against.path:
            files.check_apart(against.path, options.output)
        files.check_place(options.output)
        options.output = files.Located(options.output)
    programs, folder = [each.word if each.is_program else "" for each in (against, source)], files.working_folder()
    if against.is_program:
        return _compare(options, *sources.load_two(options, against, source), programs, folder)
    # The file comes first, since a capture may take long.
    old = _read_expected(options, against, source)
    forward_path = files.Located(forwards.forward_name(against.path or options.against))
    expected = None if old.graph is None else sources.add_forward(Loaded(old.graph), against)
    if options.graph is None and old.graph is None and (not old.fault or os.path.exists(forward_path)):
        options.graph = "both"
    current = _load_current(options, source, old.graph)
    if expected is not None:
        status = _compare(options, expected, current, programs, folder)
        is_new = options.graph == "both" and expected.forward is None and current.forward is not None
        if not options.update or not (status or is_new):
            return status
    assert path is not None  # noqa: S101 (--update needs a file)
    for graph, place in ((current.graph, path), (current.forward, forward_path)):
        if graph is not None:
            snapshots.write(graph, place, old)
            if old.fault and place.written == old.name:
                report(f"{old.name}: {old.fault}; rewritten")
            print(one_line(f"wrote {place.written}: {summarize_graph(graph)}"), file=sys.stderr)
    return 0


def _check_sides(options: argparse.Namespace, against: sources.Source) -> None:
    if options.update and (options.against == "-" or not against.path):
        raise GradirError(f"cannot update {options.against}; name a .gir file")
    if options.file == options.against == "-":
        raise GradirError("cannot read two graphs from standard input; name one as a file")


def _compare(
    options: argparse.Namespace, expected: Loaded, current: Loaded, programs: Sequence[str], folder: str
) -> int:
    diffs = comparing.compare_both(expected, current, options, programs, folder)
    diffs.write(options)
    if options.update:
        return int(bool(diffs))
    status = diffs.choose_status(options)
    if status and _find_expected(options.against).path not in {"", "-"}:
        report(f"the graph differs from {options.against}; if that is intended, run this with --update")
    return status


def _load_current(options: argparse.Namespace, source: sources.Source, expected: Graph | None) -> Loaded:
    """Return the graphs of a file, or of a program captured with the options of the expected graph."""
    if not source.is_program:
        return sources.add_forward(sources.load(options, source), source)
    if expected is not None:
        sources.capture_as(options, expected)
    if options.graph == "forward" and options.verify:
        raise GradirError(
            f"--verify needs an autograd graph, but {options.against} is a graph of a forward pass; leave out --verify"
        )
    current = sources.load(options, source)
    if current.raised:
        raise SpecError(current.raised)
    return current


def _find_expected(word: str) -> sources.Source:
    """Return the file to compare with; a missing one may have any name."""
    is_absent = ":" not in word and not os.path.exists(word)
    return sources.Source(word) if is_absent else sources.find_source(word)


def _read_expected(options: argparse.Namespace, against: sources.Source, source: sources.Source) -> snapshots.Found:
    if not against.path:
        return snapshots.Found(against.name, sources.load(options, against, source).graph)
    if not options.update:
        return snapshots.Found(options.against, snapshots.read(options.against, "--update"))
    return snapshots.read_to_update(options.against)
