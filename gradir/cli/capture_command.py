"""``gradir capture``: from a program to a ``.gir`` file."""

from __future__ import annotations

import argparse
import sys

from gradir.cli.encoding import add_encoding_options
from gradir.cli.parser import Parser, add_output
from gradir.cli.programs import add_request_options, add_verify_option, captured, running_program, summary
from gradir.cli.rank_files import for_rank, of_rank
from gradir.cli.rank_options import add_rank_options, check_ranks, standing_in
from gradir.cli.report import one_line, report
from gradir.cli.sources import RAISED, program_of

__all__ = ["DESCRIPTION", "DETAILS", "EXAMPLES", "add_options", "run"]

DESCRIPTION = "Run a program and write the autograd graph of what it computes to a .gir file."

EXAMPLES = (
    "gradir capture train.py:loss -o loss.gir",
    "gradir capture net.py:Net --input 'float32[2,3,32,32]' -o net.gir",
    "gradir capture examples/llama.py:loss --fake -o llama.gir",
    "gradir capture examples/gpt.py:loss --graph forward -o forward.gir",
    "gradir capture train.py:loss -o loss.gir -- --width 64",
    "gradir capture my_package.train:step | gradir export - --to tree",
    "gradir capture train.py:loss --rank 17 --world 1024 --collectives -o rank17.gir",
    "torchrun --nproc-per-node 4 --no-python gradir capture train.py:loss -o 'run.{rank}.gir' --collectives",
)

DETAILS = """\
'gradir help program' lists the forms of PROGRAM. In the name of -o, {rank} and {world} stand for the rank of this
process and the number of ranks.

Exit status: 0 done, 1 the program raised and the graph of its forward ends there, 2 trouble.
"""


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    parser.add_argument("spec", metavar="PROGRAM", help="what to capture, e.g. train.py:loss or my_package.train:loss")
    add_request_options(parser, "capture", "program")
    add_verify_option(parser)
    add_rank_options(parser)
    add_output(parser, "; {rank} and {world} are filled in")
    add_encoding_options(parser)


def run(options: argparse.Namespace) -> int:
    """Capture and write."""
    from gradir import api, files
    from gradir.cli.suffixes import check_graph_name

    program_of(options.spec)
    check_ranks(options)
    if isinstance(options.ranks, str):
        from gradir.cli.many_ranks import capture_ranks

        return capture_ranks(options)
    # The program may change the environment, which says the rank.
    output = (
        for_rank(options.output) if options.world is None else of_rank(options.output, options.ranks, options.world)
    )
    check_graph_name(output)
    files.check_place(output)
    # The program may change the working directory, and its standard output is not that of this command.
    path = files.Located(output)
    is_stdout = files.is_stdout(output)
    with running_program(options, options.spec, for_good=options.is_process) as own:
        with standing_in(options):
            graph, raised = captured(options, "capture", "program")
        if is_stdout:
            own.write(api.dumps(graph, format=options.format, compress=options.compress))
        else:
            api.save(graph, path, format=options.format, compress=options.compress)
    if raised:
        wrote = "the graph up to there" if is_stdout else f"{output} up to there: {summary(graph)}"
        report(f"{raised}; wrote {wrote}")
        return RAISED
    if not is_stdout:
        print(one_line(f"wrote {output}: {summary(graph)}"), file=sys.stderr)
    return 0
