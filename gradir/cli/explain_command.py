"""``gradir explain``: why a parameter gets no gradient."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from gradir.cli.parser import Parser, add_output
from gradir.cli.programs import add_request_options, request_of, running_program
from gradir.cli.report import add_colour, columns, wants_colour
from gradir.cli.sources import GRAPH_HELP, load, refuse_program_options, source_of
from gradir.cli.suffixes import check_no_source
from gradir.errors import CaptureError, GraphError, SpecError

if TYPE_CHECKING:
    from gradir.cli.sources import Source
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph
    from gradir.overlays import Overlay

__all__ = ["DESCRIPTION", "DETAILS", "EXAMPLES", "add_options", "run"]

DESCRIPTION = "Find parameters that get no gradient, the line that loses it, and what to change."

EXAMPLES = (
    "gradir explain train.py:loss",
    "gradir explain net.py:Net --input 'float32[8,3,32,32]'",
    "gradir explain train.py:loss --allow 'teacher.*' --allow sample",
    'gradir explain train.py:loss --format markdown >> "$GITHUB_STEP_SUMMARY"',
    "gradir explain train.py:loss --overlay gradients.json",
    "gradir explain loss.gir",
)

DETAILS = """\
A .gir file knows the cuts of its graph, but no values: nothing runs.

Causes that are meant can also stand in pyproject.toml, here or in a folder above:
  [tool.gradir]
  allow = ["teacher.*", "sample"]

In tests, the pytest fixture gradient_flow fails with the same text:
  gradient_flow.check(loss, model=model)

Exit status: 0 no parameter that should learn lacks its gradient, 1 one does, 2 trouble.
"""

# Spelled out here: the forms are not imported to print a help text.
_FORMATS: Final = ("text", "markdown", "json")


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    parser.add_argument("spec", metavar="GRAPH", help=GRAPH_HELP)
    add_request_options(parser, "explain")
    parser.set_defaults(parser=parser)
    parser.group("input").add_argument(
        "--allow",
        metavar="PATTERN",
        action="append",
        type=_pattern,
        default=[],
        help="parameters, or a kind of cause, that are meant; '*' is any text; repeatable",
    )
    add_output(parser)
    output = parser.group("output")
    output.add_argument("--format", choices=_FORMATS, default="text", help="format of the output (default: text)")
    output.add_argument("--all", action="store_true", help="write out the notes too")
    add_colour(output)
    output.add_argument("--overlay", metavar="FILE", help="also write gradients for 'gradir export --overlay'")
    output.add_argument(
        "--graph", choices=("autograd", "forward"), help="graph that the overlay is for (default: autograd)"
    )


def run(options: argparse.Namespace) -> int:
    """Run or load, explain, print."""
    from gradir import files
    from gradir.explanations.forms import written
    from gradir.project import project

    if options.graph and options.overlay is None:
        raise SpecError("--graph belongs to --overlay FILE")
    # Before the program runs, which may change the working directory.
    own, path = project(), files.Located(options.output)
    source = source_of(options.spec)
    for target in filter(None, (options.output, options.overlay)):
        check_no_source(target)
        files.check_apart(source.path or "-", target)
    overlay = None if options.overlay is None else files.Located(options.overlay)
    found, graph = (_of_program(options), None) if source.is_program else _of_file(options, source)
    found = found.allowing(own.allow, own.where).allowing(options.allow, "--allow")
    if overlay is not None:
        files.write_bytes(overlay, _overlay(found, graph, options.spec).to_json().encode())
    shown = written(found, options.format, all=options.all, width=columns(options), color=wants_colour(options))
    files.write_bytes(path, shown.encode("utf-8", "backslashreplace"))
    return int(found.level == "error")


def _pattern(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a pattern is a name or a kind of cause, such as 'teacher.*' or detach")
    return text


def _of_file(options: argparse.Namespace, source: Source) -> tuple[Explanation, Graph]:
    from gradir.explanations.stored import explained

    refuse_program_options(options, source.word)
    graph = load(options, source).graph
    try:
        return explained(graph), graph
    except GraphError as error:
        raise GraphError(f"{source.name}: {error}") from error


def _overlay(found: Explanation, graph: Graph | None, spec: str) -> Overlay:
    try:
        return found.overlay(graph)
    except GraphError as error:
        raise SpecError(f"{spec}: {error}") from error


def _of_program(options: argparse.Namespace) -> Explanation:
    from msgspec.structs import replace

    from gradir.capturing import explained

    with running_program(options, options.spec):
        request = request_of(options, "explain")
        try:
            return explained(replace(request, graph=options.graph))
        except (CaptureError, GraphError) as error:
            raise type(error)(f"{options.spec}: {error}") from error
