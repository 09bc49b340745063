"""``gradir check``: compare the graph of a program with the one in a file."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from gradir.cli import comparing, sources
from gradir.cli.parser import Parser, add_output
from gradir.cli.programs import Loaded, add_verify_option, captured, running_program, summary
from gradir.cli.report import one_line, report
from gradir.errors import GradirError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.ir import Graph
    from gradir.snapshots import Found

DESCRIPTION = "Compare a graph with the one in a .gir file, and fail when it is another."

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
    group.add_argument("--against", metavar="GRAPH", required=True, help="the graph that it should be")
    group.add_argument("--update", action="store_true", help="write --against where it is missing or differs")
    comparing.add_options(parser)
    add_output(parser)
    # The suffix of the output may say it.
    parser.set_defaults(format=None, takes_both=True)


def run(options: argparse.Namespace) -> int:
    from gradir import files, forwards, snapshots

    comparing.check_options(options)
    source, against = sources.source_of(options.file), _against(options.against)
    _expect_two(options, against)
    options.names = sources.short_names([against.name, source.name])
    # The program may change the working directory.
    path = files.Located(against.path) if against.path else None
    if options.output != "-":
        if against.path:
            files.check_apart(against.path, options.output)
        files.check_place(options.output)
        options.output = files.Located(options.output)
    programs, folder = [each.word if each.is_program else "" for each in (against, source)], files.working_folder()
    if against.is_program:
        return _compared(options, *sources.load_two(options, against, source), programs, folder)
    # The file is read first: a capture may take long.
    before = _before(options, against)
    beside = files.Located(forwards.forward_name(against.path or options.against))
    expected = None if before.graph is None else sources.with_forward(Loaded(before.graph), against)
    if options.graph is None and before.graph is None and (not before.fault or os.path.exists(beside)):
        options.graph = "both"
    now = _captured(options, source, before.graph)
    if expected is not None:
        status = _compared(options, expected, now, programs, folder)
        is_new = options.graph == "both" and expected.forward is None and now.forward is not None
        if not options.update or not (status or is_new):
            return status
    assert path is not None  # noqa: S101 (what is updated is a file)
    for graph, place in ((now.graph, path), (now.forward, beside)):
        if graph is not None:
            snapshots.write(graph, place, before)
            if before.fault and place.written == before.name:
                report(f"{before.name}: {before.fault}; rewritten")
            print(one_line(f"wrote {place.written}: {summary(graph)}"), file=sys.stderr)
    return 0


def _expect_two(options: argparse.Namespace, against: sources.Source) -> None:
    """Refuse to update anything but a file, and to read two graphs from standard input."""
    if options.update and (options.against == "-" or not against.path):
        raise GradirError(f"cannot update {options.against}; name a .gir file")
    if options.file == options.against == "-":
        raise GradirError("cannot read two graphs from standard input; name one as a file")


def _compared(options: argparse.Namespace, expected: Loaded, now: Loaded, programs: Sequence[str], folder: str) -> int:
    found = comparing.compare(expected, now, options, programs, folder)
    found.show(options)
    if options.update:
        return int(bool(found))
    status = found.status(options)
    if status and _against(options.against).path not in {"", "-"}:
        report(f"the graph differs from {options.against}; if that is meant, run this with --update")
    return status


def _captured(options: argparse.Namespace, source: sources.Source, expected: Graph | None) -> Loaded:
    """Return the graphs of a file, or of a program captured with the options of the expected graph."""
    if not source.is_program:
        sources.refuse_program_options(options, source.word)
        return sources.with_forward(sources.load(options, source), source)
    if expected is not None:
        sources.capture_as(options, expected)
    if options.graph == "forward" and options.verify:
        raise GradirError(
            f"--verify needs an autograd graph, but {options.against} is a graph of a forward pass; leave out --verify"
        )
    options.spec = source.word
    with running_program(options, source.word):
        found = captured(options, "graph")
    if found.raised:
        raise SpecError(found.raised)
    return found


def _against(word: str) -> sources.Source:
    """Return the file to compare with; one that does not exist yet may have any name."""
    is_absent = ":" not in word and not os.path.exists(word)
    return sources.Source(word) if is_absent else sources.source_of(word)


def _before(options: argparse.Namespace, against: sources.Source) -> Found:
    from gradir import snapshots

    if not against.path:
        return snapshots.Found(against.name, sources.load(options, against).graph)
    if not options.update:
        return snapshots.Found(options.against, snapshots.read(options.against, "--update"))
    return snapshots.read_to_update(options.against)
