"""``gradir capture``: from a SPEC to a ``.gir`` file."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from gradir.cli.encoding import add_encoding_options
from gradir.errors import CaptureError

if TYPE_CHECKING:
    from gradir.ir import Graph
    from gradir.protocols import Verification

__all__ = ["register"]

_DESCRIPTION = """\
Run what SPEC names and capture the autograd graph of what comes out.

SPEC is path/to/file.py:attr or package.module:attr, where attr is
  a tensor with a graph,
  a callable without arguments that returns a tensor, a tuple or dict of tensors, or (model, tensors), or
  a torch.nn.Module, or a class or factory of one, to be run on --input.
"""

_EPILOG = """\
examples:
  gradir capture examples/gpt.py:loss -o model.gir
  gradir capture examples/resnet.py:ResNet --input 'float32[2,3,32,32]' -o resnet.gir
  gradir capture examples/llama.py:loss --fake -o llama.gir
  gradir capture my_package.train:step | gradir export - --to tree
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "capture",
        help="capture a graph into a .gir file",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spec", metavar="SPEC", help="what to capture")
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help="where to write; '-' (default) is stdout")
    add_encoding_options(parser)
    parser.add_argument(
        "--input",
        metavar="TENSOR",
        action="append",
        default=[],
        help="an input of a module, dtype[sizes] or name=dtype[sizes]; repeat for more inputs",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the framework's random numbers (default: 0)")
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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Capture and write."""
    from gradir import api, registry
    from gradir.spec import load_target

    frontend = registry.frontend(options.frontend)
    # What the user's program prints must not end up in a file that goes to stdout.
    with contextlib.redirect_stdout(sys.stderr):
        target = load_target(options.spec)
        try:
            live = frontend.capture_target(
                target, options.input, seed=options.seed, fake=options.fake, sources=options.sources
            )
            checked = live.verify() if options.verify else None
        except CaptureError as error:
            raise CaptureError(f"{options.spec}: {error}") from error
    if checked is not None:
        _report(options.spec, checked)
    api.save(live.graph, options.output, format=options.format, compress=options.compress)
    if options.output != "-":
        print(f"wrote {options.output}: {_summary(live.graph)}", file=sys.stderr)
    return 0


def _report(spec: str, checked: Verification) -> None:
    if checked.mismatches:
        more = f" (and {len(checked.mismatches) - 1} more)" if len(checked.mismatches) > 1 else ""
        raise CaptureError(f"{spec}: the engine disagrees with the graph: {checked.mismatches[0]}{more}")
    counts = f"{checked.nodes:,} functions, {checked.edges:,} edges, {checked.fired:,} fired"
    print(f"verified {spec}: {counts}, 0 mismatches", file=sys.stderr)


def _summary(graph: Graph) -> str:
    from gradir.ir.totals import totals

    counts = totals(graph)
    cut = f", {len(graph.cuts)} parameters without gradient" if graph.cuts else ""
    return f"{counts.nodes:,} nodes, {counts.edges:,} edges, {counts.parameters:,} parameter elements{cut}"
