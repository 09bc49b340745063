"""``gradir ranks``: the files of the ranks of a distributed training."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from gradir.cli.parser import add_output

if TYPE_CHECKING:
    from gradir.cli.parser import Parser

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "add_options", "run"]

HELP = "compare the ranks of a distributed training, and prove their collectives"
DESCRIPTION = """\
Group the ranks whose graphs are the same, say in what the others differ, and run the collectives of all ranks as \
programs that wait in each until all of its group are there. The files are those of 'gradir capture --collectives'."""

EPILOG = """\
examples:
  torchrun --nproc-per-node 4 --no-python gradir capture train.py:loss -o 'run.{rank}.gir' --collectives
  gradir ranks run.*.gir
  gradir ranks run.*.gir --fail-on hang --format markdown
  gradir ranks run.*.gir -o ranks.html
  gradir ranks run.*.gir --link pipeline.gir && gradir view pipeline.gir

exit status: 0 nothing of --fail-on was found, 1 something was, 2 trouble
"""

_DEFAULT: Final = "hang,graphs,cuts"
_BY_SUFFIX: Final = {".html": "html", ".json": "json", ".md": "markdown"}


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="the .gir files of the ranks of one run")
    parser.add_argument(
        "--fail-on",
        metavar="WHAT",
        type=_kinds,
        default=_kinds(_DEFAULT),
        help=f"what gives exit status 1, of hang, may-hang, graphs and cuts (default: {_DEFAULT})",
    )
    parser.add_argument(
        "--format",
        choices=("text", "markdown", "json", "html"),
        help="how to say it; html is a page with a graph for each group (default: by the suffix of -o, else text)",
    )
    parser.add_argument(
        "--link",
        metavar="GIR",
        help="also write one graph of all stages of a pipeline, linked where one sends what another receives",
    )
    add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Compare and print."""
    from pathlib import PurePath

    from gradir import files, link
    from gradir.world.examining import examined

    for path in options.files:
        files.check_apart(path, options.output)
        if options.link is not None:
            files.check_apart(path, options.link)
    found = examined(options.files)
    if options.link is not None:
        link(options.files).save(options.link)
    form = options.format or _BY_SUFFIX.get(PurePath(options.output).suffix, "text")
    files.write_bytes(options.output, found.to(form).encode())
    return int(any(finding.kind in options.fail_on for finding in found.findings))


def _kinds(text: str) -> frozenset[str]:
    kinds = {kind.replace("-", " ") for kind in text.split(",") if kind}
    unknown = sorted(kinds - {"hang", "may hang", "graphs", "cuts"})
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of hang, may-hang, graphs and cuts")
    return frozenset(kinds)
