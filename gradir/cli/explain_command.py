"""``gradir explain``: why a parameter gets no gradient."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from gradir.cli.capturing import SPEC_HELP, add_run_options, check_is_graph_file, names_file, running_program, target_of
from gradir.cli.parser import add_output
from gradir.errors import CaptureError, GraphError, SpecError

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph
    from gradir.overlays import Overlay

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "add_options", "run"]

HELP = "tell which parameters get no gradient, and why"
DESCRIPTION = (
    "Run what SPEC names, and tell which parameters get a gradient from what comes out, at which line the others lose "
    f"it, and what to do. Of a .gir file, tell what its cuts say, without running anything.\n\n{SPEC_HELP}"
)

EPILOG = """\
examples:
  gradir explain train.py:loss
  gradir explain net.py:Net --input 'float32[8,3,32,32]'
  gradir explain train.py:loss --allow 'teacher.*' --allow sample
  gradir explain train.py:loss --format markdown >> "$GITHUB_STEP_SUMMARY"
  gradir explain train.py:loss --overlay gradients.json
  gradir explain loss.gir

what is meant may also stand in pyproject.toml, here or in a folder above:
  [tool.gradir]
  allow = ["teacher.*", "sample"]

in tests, the pytest fixture gradient_flow fails with what this prints: gradient_flow.check(loss, model=model)

exit status: 0 no parameter that should learn lacks its gradient, 1 one does, 2 trouble
"""

# Spelled out here: the forms are not imported to print a help text.
_FORMATS: Final = ("text", "markdown", "json")


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    parser.add_argument("spec", metavar="SPEC|FILE", help="what to explain, or a .gir file; '-' is standard input")
    add_run_options(parser)
    parser.add_argument(
        "--values",
        action=argparse.BooleanOptionalAction,
        help="run a backward, to find gradients that are zero or not finite (default: where the graph is small)",
    )
    parser.add_argument(
        "--allow",
        metavar="PATTERN",
        action="append",
        type=_pattern,
        default=[],
        help="parameters by name, or a kind of cause, that are meant to be so, beside those of pyproject.toml; '*' is "
        "any text; repeat for more",
    )
    add_output(parser)
    parser.add_argument("--format", choices=_FORMATS, default="text", help="text (default), markdown or json")
    parser.add_argument(
        "--overlay", metavar="FILE", help="write the gradients and statuses for 'gradir export --overlay' too"
    )
    parser.add_argument(
        "--graph",
        choices=("autograd", "forward"),
        help="of a program: which graph the overlay is for, as in 'gradir capture --graph' (default: autograd)",
    )


def run(options: argparse.Namespace) -> int:
    """Run or load, explain, print."""
    from pathlib import Path

    from gradir import files
    from gradir.project import project

    if options.graph and options.overlay is None:
        raise SpecError("--graph belongs to --overlay FILE")
    # Before the program runs, which may change the working directory.
    own, path = project(Path.cwd()), files.Located(options.output)
    is_file = names_file(options.spec)
    if is_file and options.overlay is not None:
        files.check_apart(options.spec, options.overlay)
    overlay = None if options.overlay is None else files.Located(options.overlay)
    found, graph = _of_file(options) if is_file else (_of_program(options), None)
    found = found.allowing(own.allow, own.where).allowing(options.allow, "--allow")
    if overlay is not None:
        files.write_bytes(overlay, _overlay(found, graph, options.spec).to_json().encode())
    files.write_bytes(path, found.to(options.format).encode("utf-8", "backslashreplace"))
    return int(found.level == "error")


def _pattern(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a pattern is a name or a kind of cause, such as 'teacher.*' or detach")
    return text


def _of_file(options: argparse.Namespace) -> tuple[Explanation, Graph]:
    from gradir import api, files
    from gradir.explanations.stored import explained

    check_is_graph_file(options.spec, options, ("input", "seed", "values", "frontend", "graph"))
    graph = api.load(options.spec)
    try:
        return explained(graph), graph
    except GraphError as error:
        raise GraphError(f"{files.name_of(options.spec)}: {error}") from error


def _overlay(found: Explanation, graph: Graph | None, spec: str) -> Overlay:
    try:
        return found.overlay(graph)
    except GraphError as error:
        raise SpecError(f"{spec}: {error}") from error


def _of_program(options: argparse.Namespace) -> Explanation:
    from gradir import choosing, registry
    from gradir.abilities import Explains

    with running_program(options, options.spec):
        target = target_of(options)
        try:
            name = choosing.running(target, options.frontend)
            explains = choosing.able(name, Explains)
            with registry.frontend.failing(name):
                return explains.explain_target(
                    target,
                    options.input,
                    seed=options.seed or 0,
                    values=options.values,
                    graph=options.graph or "autograd",
                )
        except (CaptureError, GraphError) as error:
            raise type(error)(f"{options.spec}: {error}") from error
