"""``gradir run``: a training script as it is, and the graph of one of its backwards."""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gradir.cli.encoding import add_encoding_options
from gradir.cli.parser import Parser, add_traceback
from gradir.cli.programs import OwnOutput, program_output, summary
from gradir.cli.rank_files import for_rank
from gradir.cli.report import TROUBLE, one_line, report
from gradir.cli.sources import check_script
from gradir.errors import SpecError

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["DESCRIPTION", "DETAILS", "EXAMPLES", "add_options", "run"]

DESCRIPTION = "Run a training script and write the autograd graph of its first backward, where the script then ends."

EXAMPLES = (
    "gradir run train.py --lr 0.1 -o loss.gir",
    "gradir run -o loss.gir --step 3 train.py --lr 0.1 --step 50",
    "gradir run -o loss.gir --go-on -m my_package.train --config small.yaml",
    "torchrun --nproc-per-node 4 --no-python gradir run -o 'run.{rank}.gir' train.py",
)

DETAILS = """\
gradir runs the script as 'python SCRIPT ARGS' would, and records its modules and lines. Options of gradir stand before
SCRIPT, and everything after it belongs to the script. They may also be the last words of the line, with -o among them,
or ARGS may follow '--'.

A step is a call of backward in this process. With gradient accumulation or several losses there are several before the
optimizer's step. A call inside another does not count, and neither does autograd.grad.

Exit status: 0 done, 2 trouble, such as no backward; where the script fails or exits otherwise, its own status.
"""

_FAILED: Final = 1
"""The exit status of Python where a program raises."""


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    parser.usage = "%(prog)s [OPTIONS] SCRIPT [ARGS ...]\n       %(prog)s SCRIPT [ARGS ...] -o FILE [--step N]"
    group = parser.group("input")
    group.add_argument("--step", metavar="N", type=_step, default=1, help="capture the Nth backward (default: 1)")
    group.add_argument("--go-on", action="store_true", help="let the script run to its end")
    group.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module, as in python -m")
    parser.group("output").add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE (required); {rank} and {world} are filled in"
    )
    parser.add_argument(
        "program", metavar="SCRIPT ...", nargs=argparse.REMAINDER, help="script, folder or archive, and its arguments"
    )
    add_traceback(parser)
    add_encoding_options(parser)
    parser.allow_abbrev = False
    parser.set_defaults(parser=parser)


def run(options: argparse.Namespace) -> int:
    """Run the script, and write when it is there."""
    from gradir import files
    from gradir.cli.suffixes import check_graph_name

    name, arguments = _divided(options)
    if not options.is_module:
        check_script(name)
    if not files.working_folder():
        raise SpecError(f"cannot run {name}: the working directory was deleted; change to another one")
    options.output = for_rank(options.output)
    check_graph_name(options.output)
    # A training may take long before there is anything to write.
    if folder := files.folder_to_make(options.output):
        report(f"{folder} is not there yet: {name} has to make it")
    else:
        files.check_place(options.output)
    # There may be objects of the program that want to be finalized.
    atexit.unregister(gc.freeze)
    if files.is_stdout(options.output):
        with program_output(for_good=options.is_process) as own:
            return _Run(options, name, own).status(arguments)
    # To escape what standard output cannot show is gradir's way, and not Python's.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "backslashreplace":
        sys.stdout.reconfigure(errors="strict")
    return _Run(options, name).status(arguments)


def _step(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a call: 1 is the first")
    return int(text)


def _divided(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The script and its arguments; what options of gradir stand behind it are put among the others."""
    parser: Parser = options.parser
    if not options.program:
        parser.error("name the script to run")
    name, *words = options.program
    if options.output is not None:
        return name, words
    if "--" in words:
        place = words.index("--")
        own, arguments = words[:place], words[place + 1 :]
    else:
        place = parser.options_at_end(words)
        own, arguments = words[place:], words[:place]
    given = parser.parse_args(own, options)
    if given.program:
        parser.error(f"{given.program[0]} is no option of gradir: arguments of {name} stand behind '--'")
    if given.output is None:
        parser.error(f"where to write is not said: put -o FILE before {name}, or at the end of the line")
    if sum(word.partition("=")[0] in {"-o", "--output"} for word in own) > 1:
        parser.error(f"-o is there twice: if one is for {name}, put that of gradir before {name}")
    return name, arguments


class _Run:
    """One run of a script, and what became of its capture."""

    def __init__(self, options: argparse.Namespace, name: str, own: OwnOutput | None = None) -> None:
        """``own`` is standard output where the file goes there."""
        from gradir.files import Located

        self._options, self._name, self._own = options, name, own
        # The script may change the working directory.
        self._path = Located(options.output)
        self._error: Exception | None = None
        self._is_written = False

    def status(self, arguments: Sequence[str]) -> int:
        """Run, and tell how it ended."""
        from gradir.capturing import watching
        from gradir.request import CaptureRequest

        with watching(CaptureRequest(step=self._options.step, sources=True), self._reached) as calls:
            left = self._ended(arguments)
        if self._is_enough:
            if self._error is not None:
                raise self._error
            return 0
        if left is not None and left != 0:
            if not self._is_written:
                report(f"{self._name} ended before call number {self._options.step} of backward: nothing is written")
            # Python prints what is no number.
            raise SystemExit(left)
        if self._error is not None:
            return TROUBLE
        if not self._is_written:
            raise SpecError(f"{self._name} {_called(calls(), self._options.step)}: nothing is written")
        return 0

    @property
    def _is_enough(self) -> bool:
        """Whether the script was to end where it was captured, and was."""
        return not self._options.go_on and (self._is_written or self._error is not None)

    def _ended(self, arguments: Sequence[str]) -> object:
        """Run the script; gives its exit status, or what it says as it leaves."""
        from gradir.cli.program_errors import trimmed
        from gradir.script import NoScriptError, run_script

        options = self._options
        try:
            run_script(self._name, arguments, is_module=options.is_module, for_good=options.is_process)
        except (NoScriptError, KeyboardInterrupt):
            raise
        except SystemExit as left:
            return left.code
        except BaseException as error:  # noqa: BLE001 (it is the script's failure, whatever it is)
            if self._is_enough:
                # It was in the middle of its work, and may not clean up well.
                return None
            found = error if options.traceback else trimmed(error)
            sys.excepthook(type(found), found, found.__traceback__)
            return _FAILED
        return None

    def _reached(self, capture: Callable[[], Graph]) -> None:
        from gradir import api

        options = self._options
        try:
            graph = capture()
            if self._own is not None:
                self._own.write(api.dumps(graph, format=options.format, compress=options.compress))
            else:
                api.save(graph, self._path, format=options.format, compress=options.compress)
        except Exception as error:  # noqa: BLE001 (it is not the script's, and is raised again when that has ended)
            self._error = error
            if options.go_on:
                report(str(error))
        else:
            self._is_written = True
            if self._own is None:
                rest = "" if options.go_on else f"; {self._name} ends here (--go-on lets it run on)"
                print(one_line(f"wrote {options.output}: {summary(graph)}{rest}"), file=sys.stderr)
        if not options.go_on:
            # As if the script left by itself, which is quiet in a thread too.
            raise SystemExit


def _called(calls: int, step: int) -> str:
    from gradir.capturing import unable
    from gradir.ir.text import counted

    if not calls:
        why = " and ".join(unable("watching"))
        return f"never called backward in this process{why and f' ({why})'}"
    return f"called backward {counted(calls, 'time')}, and --step is {step}"
