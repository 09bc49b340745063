"""``gradir capture``: capture a program as a ``.gir`` file."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Final

from msgspec import Meta

from gradir import api, files, forwards
from gradir.cli import programs
from gradir.cli.parser import Parser, add_output, parse_as
from gradir.cli.programs import Loaded, add_verify_option, capture_program, running_program, summarize_graph
from gradir.cli.rank_files import fill_in_own_rank
from gradir.cli.report import RAISED, one_line, report
from gradir.cli.sources import is_program, refuse_program_options
from gradir.cli.suffixes import add_encoding_options, check_graph_name
from gradir.errors import SpecError

DESCRIPTION = "Run a program and write its autograd graph to a .gir file."

EXAMPLES = (
    "gradir capture train.py:loss -o loss.gir",
    "gradir capture net.py:Net --input 'float32[2,3,32,32]' -o net.gir",
    "gradir capture examples/llama.py:loss --fake -o llama.gir",
    "gradir capture examples/gpt.py:loss --graph forward -o forward.gir",
    "gradir capture train.py:loss --graph both -o loss.gir  # and loss.forward.gir, for gradir diff and check",
    "gradir capture train.py:loss -o loss.gir -- --width 64",
    "gradir capture model.pt2 -o model.gir",
    "gradir capture my_package.train:step | gradir export - --to tree",
    "gradir capture train.py:loss --rank 17 --world 1024 --collectives -o rank17.gir",
    "torchrun --nproc-per-node 4 --no-python gradir capture train.py:loss -o 'run.{rank}.gir' --collectives",
)

DETAILS = """\
'gradir help program' lists the forms of PROGRAM. In the name of -o, {rank} and {world} become the rank of this
process and the number of ranks.

Exit status: 0 done, 1 the program raised and the graph of its forward ends there, 2 trouble.
"""

# gradir makes lists of this length, and nobody has more processes.
_MOST: Final = 10_000_000
_RANK: Final = Annotated[int, Meta(ge=0, lt=_MOST)]
_WORLD: Final = Annotated[int, Meta(ge=1, le=_MOST)]


def add_options(parser: Parser) -> None:
    about = "program to capture, e.g. train.py:loss, my_package.train:loss or model.pt2"
    parser.add_argument("spec", metavar="PROGRAM", help=about)
    programs.add_request_options(parser, "capture", "program")
    add_verify_option(parser)
    _add_rank_options(parser)
    add_output(parser, "; {rank} and {world} are filled in")
    add_encoding_options(parser)
    parser.set_defaults(takes_both=True, parser=parser)


def run(options: argparse.Namespace) -> int:
    is_run = is_program(options.spec)
    _check_ranks(options)
    if not is_run:
        refuse_program_options(options, options.spec)
        if options.verify:
            raise SpecError(f"--verify runs a backward, and {options.spec} is a file; name a program")
    if isinstance(options.ranks, str):
        from gradir.cli.many_ranks import capture_ranks

        return capture_ranks(options)
    # The program may change the environment with the rank, the working directory and standard output.
    output = _choose_output(options)
    path, is_stdout = files.Located(output), files.is_stdout(output)
    forward_path = files.Located(forwards.forward_name(output))
    with running_program(options, options.spec, for_good=options.is_process) as write:
        graph, raised, forward, missing = _capture(options) if is_run else Loaded(api.load(options.spec))
        if is_stdout:
            write(api.dumps(graph, format=options.format, compress=options.compress))
        else:
            api.save(graph, path, format=options.format, compress=options.compress)
        if forward is not None:
            api.save(forward, forward_path, format=options.format, compress=options.compress)
    if raised:
        wrote = "the graph up to there" if is_stdout else f"{output} up to there: {summarize_graph(graph)}"
        report(f"{raised}; wrote {wrote}")
        return RAISED
    if not is_stdout:
        print(one_line(f"wrote {output}: {summarize_graph(graph)}"), file=sys.stderr)
    if forward is not None:
        print(one_line(f"wrote {forward_path.written}: {summarize_graph(forward)}"), file=sys.stderr)
    elif missing:
        report(f"{forward_path.written} is not written: {missing}")
    return 0


def _choose_output(options: argparse.Namespace) -> str:
    """Return the name of the file to write, and refuse one that cannot be a graph."""
    if options.world is None:
        output = fill_in_own_rank(options.output)
    else:
        output = options.output.replace("{rank}", str(options.ranks)).replace("{world}", str(options.world))
    check_graph_name(output)
    files.check_place(output)
    if options.graph == "both":
        if files.is_stdout(output):
            raise SpecError("--graph both writes two files; name them with -o FILE")
        files.check_place(forwards.forward_name(output))
    return output


def _capture(options: argparse.Namespace) -> Loaded:
    from gradir.capturing import simulate_rank

    alone = simulate_rank(options.ranks, options.world, options.frontend) if options.world else nullcontext()
    with alone:
        return capture_program(options, "capture", "program")


def _add_rank_options(parser: Parser) -> None:
    group = parser.group("distributed")
    which = group.add_mutually_exclusive_group()
    about = "with --world, capture as rank R without data"
    which.add_argument("--rank", metavar="R", dest="ranks", type=partial(parse_as, _RANK), help=about)
    about = "with --world, capture all ranks or a sample"
    which.add_argument("--ranks", dest="ranks", choices=("sample", "all"), help=about)
    about = "number of ranks, with --rank or --ranks"
    group.add_argument("--world", metavar="W", type=partial(parse_as, _WORLD), help=about)


def _check_ranks(options: argparse.Namespace) -> None:
    """Refuse incomplete or impossible options of ranks, and capture a single rank without data."""
    ranks, world = options.ranks, options.world
    if (ranks is None) != (world is None):
        raise SpecError(
            f"--world {world} needs --rank R, --ranks sample or --ranks all"
            if ranks is None
            else f"--rank{'' if isinstance(ranks, int) else 's'} {ranks} needs --world W, the number of ranks"
        )
    if world is None:
        return
    if isinstance(ranks, str) and options.graph == "both":
        raise SpecError(f"--graph both is for one process: leave out --ranks {ranks}")
    if isinstance(ranks, int) and ranks >= world:
        raise SpecError(f"--rank {ranks} is out of range: --world {world} has the ranks 0 to {world - 1}")
    options.fake = True
