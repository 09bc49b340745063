"""``gradir ranks``: compare the files of the ranks of a distributed training."""

from __future__ import annotations

import argparse
from typing import Final

from gradir import files, link
from gradir.cli.parser import Parser, add_output
from gradir.cli.report import write_output

DESCRIPTION = "Compare the ranks of a distributed run, and prove that their collectives fit together."

EXAMPLES = (
    "torchrun --nproc-per-node 4 --no-python gradir run -o 'run.{rank}.gir' train.py && gradir ranks run.*.gir",
    "gradir ranks run.*.gir --fail-on hang --format markdown",
    "gradir ranks run.*.gir -o ranks.html",
    "gradir ranks run.*.gir --link pipeline.gir && gradir view pipeline.gir",
)

DETAILS = """\
The files are those that 'gradir run' writes under torchrun, or 'gradir capture --collectives'. gradir groups the ranks
whose graphs are equal, reports how the others differ, and runs the collectives of all ranks as programs that wait in
each until all of its group are there. If the files have no collectives, it compares graphs and parameters alone.

Exit status: 0 nothing of --fail-on was found, 1 something was, 2 trouble.
"""

_DEFAULT: Final = "hang,mixed,missing,values,graphs,cuts"
_WIDTH: Final = 80
_BY_SUFFIX: Final = {".html": "html", ".json": "json", ".md": "markdown"}


def add_options(parser: Parser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="the .gir files of the ranks of one run")
    output = parser.group("output")
    about = f"exit with 1 on these of hang, may-hang, mixed, missing, values, graphs, cuts (default: {_DEFAULT})"
    parser.group("comparison").add_argument(
        "--fail-on", metavar="WHAT", type=_parse_kinds, default=_parse_kinds(_DEFAULT), help=about
    )
    about = "format of the report (default: by the suffix of -o, or text)"
    output.add_argument("--format", choices=("text", "markdown", "json", "html"), help=about)
    output.add_argument("--full", action="store_true", help="text and markdown: list every graph and finding")
    output.add_argument("--link", metavar="GIR", help="also write one graph of all stages of a pipeline")
    add_output(parser)


def run(options: argparse.Namespace) -> int:
    from pathlib import PurePath

    from gradir.distributed.comparison import compare_ranks
    from gradir.distributed.words import render_ranks

    for path in options.files:
        files.check_apart(path, options.output)
        if options.link is not None:
            files.check_apart(path, options.link)
    found = compare_ranks(options.files)
    if options.link is not None:
        link(options.files).save(options.link)
    form = options.format or _BY_SUFFIX.get(PurePath(options.output).suffix, "text")
    text = render_ranks(found, form, full=options.full)
    write_output(options.output, (_wrap_text(text) if form == "text" else text).encode(), form)
    return int(any(finding.kind in options.fail_on for finding in found.findings))


def _wrap_text(text: str) -> str:
    """Wrap lines to the width of a terminal without breaking names."""
    import textwrap

    wrap = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False)
    lines: list[str] = []
    for line in text.splitlines():
        wrap.subsequent_indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += wrap.wrap(line)
    return "".join(f"{line}\n" for line in lines)


def _parse_kinds(text: str) -> frozenset[str]:
    from gradir.distributed.model import KINDS

    kinds = {kind.replace("-", " ") for kind in text.split(",") if kind}
    unknown = sorted(kinds - {*KINDS})
    if unknown:
        names = ", ".join(kind.replace(" ", "-") for kind in KINDS)
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {names}")
    return frozenset(kinds)
