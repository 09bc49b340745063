"""``gradir diff``: compare two graphs."""

from __future__ import annotations

import argparse

from gradir import files
from gradir.cli import comparing
from gradir.cli.parser import Parser, add_output
from gradir.cli.report import write_output
from gradir.cli.sources import add_program_options, find_two_sources, load_two, report_raised, shorten_names
from gradir.errors import GradirError

DESCRIPTION = "Compare two graphs node by node, and group the differences by module."

EXAMPLES = (
    "gradir diff main.gir branch.gir",
    "gradir diff main:model.gir train.py:loss  # main and now",
    "gradir diff old.py:loss new.py:loss",
    "gradir diff --run old.py:loss new.py:loss  # with equal weights: how far are loss and gradients apart",
    "gradir diff HEAD model.gir  # as committed, and now",
    "gradir diff HEAD~1 HEAD -- model.gir  # the file in two revisions",
    "gradir diff :model.gir model.gir  # the file in the index; :2: and :3: are the sides of a conflict",
    "gradir diff main.gir branch.gir --format markdown --fail-on cuts,lost-inputs,params",
    "gradir diff main.gir branch.gir -o change.svg",
)

DETAILS = """\
'gradir diff REVISION FILE' compares the file with the one in a git revision, and 'gradir diff REVISION REVISION FILE'
the file in two. Put '--' before FILE where a file has the name of the revision.

Of programs, gradir compares the autograd graph and the graph of the forward. Of a file it compares the second too where
'gradir capture --graph both' wrote it beside the file, as loss.forward.gir beside loss.gir.

Exit status: 0 no difference, or no condition of --fail-on holds, 1 a difference, 2 trouble.
"""


def add_options(parser: Parser) -> None:
    parser.usage = "gradir diff [OPTIONS] A B [-- ARGS]"
    about = "two graphs: .gir files, '-' (standard input), REVISION:FILE, or programs such as train.py:loss"
    parser.add_argument("sides", metavar="A B", nargs="+", help=about)
    add_program_options(parser)
    comparing.add_options(parser)
    add_output(parser)
    # The suffix of the output may choose the format.
    parser.set_defaults(format=None, takes_both=True)
    about = "run both with equal weights and inputs; compare gradients"
    parser.group("comparison").add_argument("--run", dest="run_both", action="store_true", help=about)
    parser.group("comparison").add_argument("--exit-zero", action="store_true", help="exit with 0 even on a difference")


def run(options: argparse.Namespace) -> int:
    comparing.check_options(options)
    before, after = find_two_sources(options)
    if options.run_both and not (before.is_program and after.is_program and options.output == "-"):
        raise GradirError("--run runs two programs and prints: name both without -o, e.g. old.py:loss new.py:loss")
    options.names = shorten_names([before.name, after.name])
    for source in (before, after):
        files.check_apart(source.path or "-", options.output)
    # A program may change the working directory.
    options.output = options.output if options.output == "-" else files.Located(options.output)
    folder = files.working_folder()
    a, b = load_two(options, before, after)
    report_raised(a)
    report_raised(b)
    programs = [source.word if source.is_program else "" for source in (before, after)]
    diffs = comparing.compare_both(a, b, options, programs, folder)
    diffs.write(options)
    if options.run_both:
        from gradir.cli.diff_run import run_both

        write_output("-", f"\n{run_both(options, programs, (a.graph, b.graph), folder)}".encode())
    status = diffs.choose_status(options)
    return 0 if options.exit_zero else status
