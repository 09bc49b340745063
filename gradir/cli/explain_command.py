"""``gradir explain``: say why a parameter gets no gradient."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from gradir import files
from gradir.cli.parser import Parser, add_output
from gradir.cli.programs import add_request_options, make_request, program_output, running_program
from gradir.cli.rank_files import fill_in_own_rank
from gradir.cli.report import add_colour, find_columns, wants_colour, write_output
from gradir.cli.scripts import Script, add_script, describe_calls, parse_count, split_arguments
from gradir.cli.sources import GRAPH_HELP, Source, find_source, is_script, load, refuse_program_options, suggest_program
from gradir.cli.suffixes import check_no_source
from gradir.errors import CaptureError, GraphError, SpecError
from gradir.request import CaptureRequest

if TYPE_CHECKING:
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph
    from gradir.protocols import ReachedBackward

DESCRIPTION = "Find parameters that get no gradient, the line that loses it, and what to change."

EXAMPLES = (
    "gradir explain train.py:loss",
    "gradir explain train.py --lr 0.1",
    "gradir explain --step 3 train.py -- --lr 0.1 --step 50",
    "gradir explain net.py:Net --input 'float32[8,3,32,32]'",
    "gradir explain train.py:loss --allow 'teacher.*' --allow sample",
    'gradir explain train.py:loss --format markdown >> "$GITHUB_STEP_SUMMARY"',
    "gradir explain train.py:loss --overlay gradients.json",
    "gradir explain loss.gir",
)

DETAILS = """\
gradir runs a script as 'python SCRIPT ARGS' would, explains its first backward pass with the script's own optimizer,
and ends the script. If only the second backward pass fails, it explains that one. --step N names another. Put options
of gradir before SCRIPT or at the end of the line. Arguments after '--' always belong to the script.

A .gir file knows the cuts of its graph, but no values: nothing runs.

Allow intended causes in pyproject.toml, here or in a folder above:
  [tool.gradir]
  allow = ["teacher.*", "sample"]

Exit status: 0 no parameter that should learn lacks its gradient, 1 one does, 2 trouble.
"""

# Importing the formats would delay the help text.
_FORMATS: Final = ("text", "markdown", "json")
# Options of a program: after a script they are the script's own.
_FOREIGN: Final = ("--frontend", "--graph", "--input", "--seed")


def add_options(parser: Parser) -> None:
    add_script(parser, "GRAPH ...", f"{GRAPH_HELP}; or a script such as train.py, and its arguments")
    parser.allow_abbrev = False
    add_request_options(parser, "explain")
    group = parser.group("input")
    about = "of a script: explain the Nth backward (default: 1, or 2 if it fails)"
    group.add_argument("--step", metavar="N", type=parse_count, help=about)
    about = "expect these parameters or causes; '*' is any text; repeatable"
    group.add_argument("--allow", metavar="PATTERN", action="append", type=_check_pattern, default=[], help=about)
    add_output(parser)
    output = parser.group("output")
    output.add_argument("--format", choices=_FORMATS, default="text", help="format of the output (default: text)")
    output.add_argument("--all", action="store_true", help="write out the notes too")
    output.add_argument("--norms", action="store_true", help="print the gradient norm of each module too")
    add_colour(output)
    output.add_argument("--overlay", metavar="FILE", help="also write gradients for 'gradir export --overlay'")
    about = "graph that the overlay is for (default: autograd)"
    output.add_argument("--graph", choices=("autograd", "forward"), help=about)


def run(options: argparse.Namespace) -> int:
    from gradir.explanations.formats import Layout, format_explanation
    from gradir.project import project

    script = split_arguments(options, is_script=lambda word: options.is_module or is_script(word), foreign=_FOREIGN)
    options.output = fill_in_own_rank(options.output)
    options.spec = script.name
    if options.graph and options.overlay is None:
        raise SpecError("--graph needs --overlay FILE")
    # The program may change the working directory.
    settings, path = project(), files.Located(options.output)
    runs = options.is_module or is_script(script.name)
    source = Source(script.name) if runs else find_source(script.name)
    for target in filter(None, (options.output, options.overlay)):
        check_no_source(target)
        files.check_apart(source.path or "-", target)
    overlay = None if options.overlay is None else files.Located(options.overlay)
    if not runs and options.step is not None:
        raise SpecError(f"--step needs a script such as train.py, not {source.word}")
    graph: Graph | None = None
    if runs:
        found = _explain_script(options, script)
    elif source.is_program:
        found = _explain_program(options)
    else:
        found, graph = _explain_file(options, source)
    found = found.allow(settings.allow, settings.where).allow(options.allow, "--allow")
    if overlay is not None:
        with files.prefixing(options.spec, GraphError):
            drawn = found.overlay(graph)
        files.write_bytes(overlay, drawn.to_json().encode())
    layout = Layout(options.all, find_columns(options), wants_colour(options), options.norms)
    text = format_explanation(found, options.format, layout)
    write_output(path, text.encode("utf-8", "backslashreplace"), options.format)
    return int(found.level == "error")


def _explain_script(options: argparse.Namespace, script: Script) -> Explanation:
    from gradir.capturing import running

    script.check()
    refuse_program_options(options, script.name, but=("step", "values"))
    found: list[Explanation] = []
    errors: list[Exception] = []

    def explain_call(call: ReachedBackward) -> bool:
        try:
            found.append(call.explain())
        except Exception as error:  # noqa: BLE001 (not the script's error, so it is raised after the script)
            errors.append(error)
        # State that passes from one step to the next fails only in the second call.
        if options.step is None and len(found) == 1 and found[0].level != "error":
            return True
        # The same exit as from sys.exit(), which prints nothing in a thread either.
        raise SystemExit

    def explain_failure(error: BaseException) -> bool:
        count = len(found)
        found.extend(filter(None, (each.explain_failure(error) for each in seeing.values())))
        return len(found) > count

    request = CaptureRequest(step=options.step or 1, flow=True, values=options.values)
    with program_output(for_good=False), running(request, explain_call) as seeing:
        status = script.run(options, lambda: bool(errors), explain_failure)
    if found:
        return next((each for each in reversed(found) if each.level == "error"), found[0])
    if errors:
        raise errors[0]
    ended = f"ended with status {status}, and " if status else ""
    advice = ": there is nothing to explain"
    if not options.is_module and not any(each.calls for each in seeing.values()):
        advice = f"; name the program to explain, e.g. {suggest_program(script.name)}"
    raise SpecError(f"{script.name} {ended}{describe_calls(seeing, options.step or 1)}{advice}")


def _check_pattern(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a pattern is a name or a kind of cause, such as 'teacher.*' or detach")
    return text


def _explain_file(options: argparse.Namespace, source: Source) -> tuple[Explanation, Graph]:
    from gradir.explanations.from_cuts import explain_cuts

    graph = load(options, source).graph
    with files.prefixing(source.name, GraphError):
        return explain_cuts(graph), graph


def _explain_program(options: argparse.Namespace) -> Explanation:
    from msgspec.structs import replace

    from gradir.capturing import explain_request, running
    from gradir.claims import choose_frontend

    found: list[Explanation] = []
    with running_program(options, options.spec):
        recorded = CaptureRequest(flow=True, values=options.values)
        # If the import makes the target, the import is its forward pass.
        with running(recorded, lambda call: found.append(call.explain())) as seen:
            request = make_request(options, "explain")
            if not callable(request.target) and options.graph is None:
                with files.prefixing(options.spec, CaptureError, GraphError):
                    seeing = seen.get(choose_frontend(request))
                    if found:
                        return found[0]
                    if seeing is not None:
                        return seeing.explain(request.target)
        with files.prefixing(options.spec, CaptureError, GraphError):
            return explain_request(replace(request, graph=options.graph))
