"""``gradir run``: run an unchanged training script, and write the graph of one of its backward passes."""

from __future__ import annotations

import argparse
import io
import os
import sys
import threading
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from gradir import api, files
from gradir.cli.parser import Parser, add_traceback, parse_as
from gradir.cli.programs import Writer, program_output, summarize_graph
from gradir.cli.rank_files import fill_in_own_rank, read_launcher
from gradir.cli.report import TROUBLE, one_line, report
from gradir.cli.scripts import Script, add_script, describe_calls, parse_count
from gradir.cli.suffixes import add_encoding_options, check_graph_name
from gradir.errors import CaptureError, SpecError
from gradir.files import Located
from gradir.request import CaptureRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradir.ir import Graph
    from gradir.protocols import ReachedBackward, Running

DESCRIPTION = "Run a training script and write the autograd graph of its first backward, where the script then ends."

EXAMPLES = (
    "gradir run train.py --lr 0.1 -o loss.gir",
    "gradir run -o loss.gir --step 3 train.py --lr 0.1 --step 50",
    "gradir run -o loss.gir --go-on -m my_package.train --config small.yaml",
    "torchrun --nproc-per-node 4 --no-python gradir run -o 'run.{rank}.gir' train.py",
)

DETAILS = """\
gradir runs the script as 'python SCRIPT ARGS' would, and records its modules and lines. Options of gradir come before
SCRIPT, and everything after it belongs to the script. They may also be the last words of the line, with -o among them,
or ARGS may follow '--'.

A step is a call of backward in this process. With gradient accumulation or several losses there are several before the
optimizer's step. A call inside another does not count, and neither does autograd.grad.

Where a launcher such as torchrun starts several processes, each file has its rank and the collectives of that rank, for
'gradir ranks'. A dry backward, which sends no data, finds the collectives of the backward.

Exit status: 0 done, 2 trouble, such as no backward; where the script fails or exits otherwise, its own status.
"""

_LAST: Final = {
    "starts": "still waits for its first step, in",
    "waits": "waits without progress in",
    "fails": "failed after",
    "left": "waits for a rank that was captured, in",
    "raises": "raised an error after",
}
_NO_FAILURE: Final = frozenset({"joins", "left"})
_PATIENCE: Final = Annotated[int, Meta(ge=0, le=10**9)]
# Seconds from the backward pass to the optimizer's step; then gradir ends the script.
_LONGEST_STEP: Final = 10.0


def add_options(parser: Parser) -> None:
    parser.usage = "%(prog)s [OPTIONS] SCRIPT [ARGS ...]\n       %(prog)s SCRIPT [ARGS ...] -o FILE [--step N]"
    group = parser.group("input")
    about = "capture the Nth backward (default: 1)"
    group.add_argument("--step", metavar="N", type=parse_count, default=1, help=about)
    group.add_argument("--go-on", action="store_true", help="let the script run to its end")
    group.add_argument("--flow", action="store_true", help="record the places where gradient stops")
    about = "record the collectives of this rank (default: if torchrun started it, without --go-on)"
    group.add_argument("--collectives", action=argparse.BooleanOptionalAction, help=about)
    group.add_argument("--dry", action="store_true", help="record collectives, but send no data in the captured step")
    about = "end if a collective waits for so long (default: 60; 0: never)"
    group.add_argument("--patience", metavar="SECONDS", type=partial(parse_as, _PATIENCE), default=60, help=about)
    about = "write to FILE (required); {rank} and {world} are filled in"
    parser.group("output").add_argument("-o", "--output", metavar="FILE", help=about)
    add_script(parser, "SCRIPT ...", "script, folder or archive, and its arguments")
    add_traceback(parser)
    add_encoding_options(parser)
    parser.allow_abbrev = False


def run(options: argparse.Namespace) -> int:
    script = _split_arguments(options)
    if options.dry and (options.go_on or options.collectives is False):
        options.parser.error("cannot use --dry with --go-on or --no-collectives, since it trains nothing")
    script.check()
    if options.collectives and options.go_on:
        raise SpecError("cannot use --collectives with --go-on: its dry backward frees the graph")
    options.output = fill_in_own_rank(options.output)
    check_graph_name(options.output)
    # A training may run long before gradir writes the file, so check its place now.
    if folder := files.folder_to_make(options.output):
        report(f"{folder} does not exist yet: {script.name} must create it")
    else:
        files.check_place(options.output)
    if files.is_stdout(options.output):
        with program_output(for_good=options.is_process) as write:
            return _Run(options, script, write).run()
    # To escape what standard output cannot show is gradir's way, and not Python's.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "backslashreplace":
        sys.stdout.reconfigure(errors="strict")
    return _Run(options, script).run()


def _split_arguments(options: argparse.Namespace) -> Script:
    """Divide a command line into the script and its arguments; options of gradir after it join the others."""
    parser: Parser = options.parser
    if not options.program:
        parser.error(f"the following arguments are required: {options.required}")
    name, *words = options.program
    if options.output is not None:
        return Script(name, words, options.is_module)
    if "--" in words:
        place = words.index("--")
        own, arguments = words[:place], words[place + 1 :]
    else:
        place = parser.find_options_at_end(words)
        own, arguments = words[place:], words[:place]
    given = parser.parse_args(own, options)
    if given.program:
        parser.error(f"{given.program[0]} is not an option of gradir; put arguments of {name} after '--'")
    if given.output is None:
        fault = f"-o belongs to {name} here" if "-o" in arguments else "missing output file"
        parser.error(f"{fault}: put -o FILE before {name}, or at the end of the line")
    if sum(word.partition("=")[0] in {"-o", "--output"} for word in own) > 1:
        parser.error(f"-o is given twice; if one is for {name}, put that of gradir before {name}")
    return Script(name, arguments, options.is_module)


def _end(status: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)


class _Run:
    def __init__(self, options: argparse.Namespace, script: Script, write: Writer | None = None) -> None:
        """Prepare the capture; without ``write``, the graph goes to a file and not to standard output."""
        self._options, self._script, self._write = options, script, write
        # The script may change the working directory.
        self._path = Located(options.output)
        self._launched = None if options.collectives is False else read_launcher()
        self._error: Exception | None = None
        self._seeing: Mapping[str, Running] = {}
        self._is_written = self._has_stopped = self._has_started = self._is_left = False
        self._process = os.getpid()
        # The watchdog and the main thread may both have a reason to write; a handler interrupts the latter.
        self._writing = threading.RLock()
        # A script that never steps has no later collectives to record.
        self._timer = threading.Timer(_LONGEST_STEP, _end, [0])
        self._timer.daemon = True

    def run(self) -> int:
        from gradir.capturing import running
        from gradir.cli.waiting import Watchdog

        options, name = self._options, self._script.name
        collectives = bool(options.collectives or options.dry or (self._launched and not options.go_on))
        request = CaptureRequest(
            sources=True, collectives=collectives, step=options.step, flow=options.flow, dry=options.dry
        )
        watchdog = None
        if self._launched and collectives and Watchdog.is_possible():
            watchdog = Watchdog(options.patience, self._count_waiting, self._stop, self._try_to_write_stopped)
        with running(request, self._handle_backward) as self._seeing, watchdog or nullcontext():
            status = self._script.run(options, lambda: self._is_enough, self._handle_failure)
            self._timer.cancel()
            if self._finish(is_failure=bool(status)):
                return 0
        if self._is_enough:
            if self._error is not None:
                raise self._error
            return 0
        if status is not None and status != 0:
            if not (self._is_written or self._has_stopped):
                report(f"{name} ended before call number {options.step} of backward; gradir wrote no file")
            # Python prints the status if it is a message.
            raise SystemExit(status)
        if self._error is not None:
            return TROUBLE
        if not self._is_written:
            raise SpecError(f"{name} {describe_calls(self._seeing, options.step)}; gradir wrote no file")
        return 0

    def _finish(self, *, is_failure: bool) -> bool:
        from pathlib import Path

        whole = next(filter(None, (each.finish() for each in self._seeing.values())), None)
        if whole is not None and not (is_failure or self._has_stopped or self._error):
            self._save(whole)
        calls = sum(each.calls for each in self._seeing.values())
        if self._is_left:
            return True
        if self._is_enough or not (self._has_started or (not is_failure and (calls or self._has_stopped))):
            return False
        if self._write_stopped("ends"):
            reason = f"{self._script.name} {describe_calls(self._seeing, self._options.step)}"
            report(f"{reason}: wrote {self._options.output} without a graph")
            return not is_failure
        if self._has_started:
            # The file says that the rank still waits.
            Path(self._path).unlink()
        return False

    def _count_waiting(self) -> int | None:
        if self._is_written or self._error is not None:
            return None
        counts = [count for each in self._seeing.values() if (count := each.waiting) is not None]
        return sum(counts) if counts else None

    def _handle_failure(self, error: BaseException) -> bool:
        """Write the collectives before a failure; return whether it is none, as in ``Join``."""
        is_failure = not isinstance(error, SystemExit)
        return self._launched is not None and is_failure and self._try_to_write_stopped("fails", error) in _NO_FAILURE

    def _stop(self, why: str) -> bool:
        """Write the collectives and end a process that waits or must end; return whether it ends by itself."""
        with self._writing:
            if not self._has_stopped and (reason := self._try_to_write_stopped(why)) not in ("", "starts"):
                _end(0 if reason in _NO_FAILURE else TROUBLE)
            return self._has_stopped

    def _try_to_write_stopped(self, why: str, error: BaseException | None = None) -> str:
        """Write as `_write_stopped` does, but report errors, which must not hide the script's or end the watchdog."""
        try:
            with self._writing:
                return self._write_stopped(why, error)
        except Exception as own:  # noqa: BLE001
            report(str(own))
            return why

    def _write_stopped(self, why: str, error: BaseException | None = None) -> str:
        """Write the collectives of a step without a backward pass; return why it stopped, or an empty text."""
        if self._write is not None or self._is_written or os.getpid() != self._process:
            return ""
        graph = next(filter(None, (each.capture_stopped(why, error) for each in self._seeing.values())), None)
        if graph is None or graph.rank is None:
            return ""
        # A signal may interrupt the lines below. A rank may wait before its first step without a fault.
        self._has_stopped = graph.rank.stopped != "starts"
        self._is_left = graph.rank.stopped == "left"
        self._has_started = not self._has_stopped
        from gradir.distributed.words import describe_collective

        self._save(graph)
        if graph.rank.stopped in _LAST:
            last = describe_collective(graph.collectives[-1]) if graph.collectives else "the start of the script"
            dry = ", or run with --dry, which sends no data" if graph.rank.stopped in ("waits", "fails", "left") else ""
            report(
                f"rank {graph.rank.rank} {_LAST[graph.rank.stopped]} {last}: wrote {self._options.output} without a "
                f"graph; compare the ranks with 'gradir ranks'{dry}"
            )
        return graph.rank.stopped

    @property
    def _is_enough(self) -> bool:
        return not self._options.go_on and (self._is_written or self._error is not None)

    def _capture(self, call: ReachedBackward) -> Graph:
        try:
            return call.capture()
        except CaptureError as error:
            if self._options.collectives is not None or self._launched is None or self._options.dry:
                raise
            raise CaptureError(f"{error}; --no-collectives captures the graph alone") from error

    def _handle_backward(self, call: ReachedBackward) -> None:
        graph = self._capture_and_write(call)
        if self._options.go_on:
            return
        is_alone = self._write is not None or graph is None or graph.rank is None or not graph.rank.backend
        if is_alone or not call.go_on(self._write_step):
            # The same exit as from sys.exit(), which prints nothing in a thread either.
            raise SystemExit
        if self._is_written:
            self._timer.start()

    def _capture_and_write(self, call: ReachedBackward) -> Graph | None:
        """Capture a graph and write it, unless it is part of a pipeline, which needs the whole step."""
        from msgspec.structs import replace

        from gradir.claims import expect_feature
        from gradir.ir import Rank

        options = self._options
        try:
            for name in (name for name, each in self._seeing.items() if each.calls):
                for feature in filter(vars(options).get, ("flow", "collectives")):
                    expect_feature(name, feature, f"--{feature}")
            graph = self._capture(call)
            if graph.rank is None and self._launched is not None:
                graph = replace(graph, rank=Rank(*self._launched))
            if self._write is not None:
                self._write(api.dumps(graph, format=options.format, compress=options.compress))
                self._is_written = True
            elif options.go_on or graph.rank is None or not (call.is_piped or graph.rank.backend):
                self._save(graph)
            elif not call.is_piped:
                # The rank accumulates until a step of the optimizer, which writes the file again.
                self._save(replace(graph, rank=replace(graph.rank, accumulates=True)))
        except Exception as error:  # noqa: BLE001 (not the script's error, so it is raised after the script)
            self._error = error
            if options.go_on:
                report(str(error))
            return None
        return graph

    def _write_step(self, graph: Graph) -> None:
        self._save(graph)
        raise SystemExit

    def _save(self, graph: Graph) -> None:
        api.save(graph, self._path, format=self._options.format, compress=self._options.compress)
        if graph.rank is not None and graph.rank.stopped:
            return
        if not self._is_written:
            rest = "" if self._options.go_on else f"; {self._script.name} ends here (--go-on lets it run on)"
            print(one_line(f"wrote {self._options.output}: {summarize_graph(graph)}{rest}"), file=sys.stderr)
        self._is_written = True
