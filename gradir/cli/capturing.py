"""What the commands that capture have in common: the options, and running what a SPEC names."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from gradir.cli.report import one_line
from gradir.errors import CaptureError

if TYPE_CHECKING:
    from gradir.ir import Graph
    from gradir.protocols import Verification

__all__ = ["SPEC_HELP", "add_capture_options", "captured", "located", "summary"]

_SEEDS: Final = 2**63

SPEC_HELP: Final = """\
SPEC is path/to/file.py:attr or package.module:attr, where attr is
  a tensor with a graph,
  a callable without arguments that returns a tensor, a tuple or dict of tensors, or (model, tensors), or
  a torch.nn.Module, or a class or factory of one, to be run on --input.

The program is run, so a SPEC of a change that you do not trust runs its author's code.
"""


def add_capture_options(parser: argparse.ArgumentParser) -> None:
    """Add SPEC and the options that say how it is run."""
    parser.add_argument("spec", metavar="SPEC", help="what to capture")
    parser.add_argument(
        "--input",
        metavar="TENSOR",
        action="append",
        default=[],
        help="an input of a module, dtype[sizes] or name=dtype[sizes]; repeat for more inputs",
    )
    parser.add_argument("--seed", type=_seed, default=0, help="seed of the framework's random numbers (default: 0)")
    parser.add_argument(
        "--fake", action="store_true", help="run on tensors without data: a model of any size takes seconds"
    )
    parser.add_argument(
        "--sources",
        action="store_true",
        help="note the source line of each operation and the variable it is assigned to",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run a real backward too, and write nothing unless the engine agrees with the graph",
    )
    parser.add_argument("--frontend", default="torch", help="the front-end to use (default: torch)")


def captured(options: argparse.Namespace) -> Graph:
    """Run what the options name, capture, and verify when asked to; to be called inside `program_output`.

    Raises:
        CaptureError: the SPEC cannot be run or has no graph, or the engine disagrees with what was captured.
    """
    from gradir import registry
    from gradir.spec import load_target

    frontend = registry.frontend(options.frontend)
    # Before the import, which may make tensors; what is called later starts from the same seed again.
    frontend.seed(options.seed)
    target = load_target(options.spec)
    try:
        live = frontend.capture_target(
            target, options.input, seed=options.seed, fake=options.fake, sources=options.sources
        )
        # Nothing runs after this, so that the graph may be used up.
        checked = live.verify(keep_graph=False) if options.verify else None
    except CaptureError as error:
        raise CaptureError(f"{options.spec}: {error}") from error
    if checked is not None:
        _report(options.spec, checked)
    return live.graph


def located(path: str) -> str:
    """Where a file is, should the program change the working directory; it ends as the path does."""
    return os.path.join(os.getcwd(), path) if path else path  # noqa: PTH109, PTH118 (pathlib forgets how a path ends)


def _seed(text: str) -> int:
    number = int(text)
    if not 0 <= number < _SEEDS:
        raise argparse.ArgumentTypeError(f"{text}: a seed is from 0 to {_SEEDS - 1}")
    return number


def summary(graph: Graph) -> str:
    """A graph in one line."""
    from gradir.ir.text import counted
    from gradir.ir.totals import totals

    counts = totals(graph)
    hidden = sum(1 for cut in graph.cuts if cut.kind == "hidden")
    cut = f", {counted(len(graph.cuts) - hidden, 'parameter')} without gradient" if len(graph.cuts) > hidden else ""
    cut += f", {counted(hidden, 'parameter')} hidden" if hidden else ""
    graph_size = f"{counted(counts.nodes, 'node')}, {counted(counts.edges, 'edge')}"
    return f"{graph_size}, {counted(counts.parameters, 'parameter element')}{cut}"


def _report(spec: str, checked: Verification) -> None:
    if checked.mismatches:
        more = f" (and {len(checked.mismatches) - 1} more)" if len(checked.mismatches) > 1 else ""
        raise CaptureError(f"{spec}: the engine disagrees with the graph: {checked.mismatches[0]}{more}")
    counts = f"{checked.nodes:,} functions, {checked.edges:,} edges, {checked.fired:,} fired"
    print(f"verified {one_line(spec)}: {counts}, 0 mismatches", file=sys.stderr)
