"""``gradir capture``: from a SPEC to a ``.gir`` file."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from gradir.errors import CaptureError

if TYPE_CHECKING:
    from gradir.ir import Graph

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
    parser.add_argument("--format", choices=["json"], default="json", help="the encoding of the file (default: json)")
    parser.add_argument(
        "--input",
        metavar="TENSOR",
        action="append",
        default=[],
        help="an input of a module, dtype[sizes] or name=dtype[sizes]; repeat for more inputs",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the framework's random numbers (default: 0)")
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
            graph = frontend.capture_target(target, options.input, seed=options.seed)
        except CaptureError as error:
            raise CaptureError(f"{options.spec}: {error}") from error
    api.save(graph, options.output, format=options.format)
    if options.output != "-":
        print(f"wrote {options.output}: {_summary(graph)}", file=sys.stderr)
    return 0


def _summary(graph: Graph) -> str:
    from gradir.ir.totals import totals

    counts = totals(graph)
    cut = f", {len(graph.cuts)} parameters without gradient" if graph.cuts else ""
    return f"{counts.nodes:,} nodes, {counts.edges:,} edges, {counts.parameters:,} parameter elements{cut}"
