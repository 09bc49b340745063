"""``gradir watch``: run a training script unchanged, and report errors step by step."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec

from gradir import api, files
from gradir.cli.parser import Parser, add_traceback
from gradir.cli.rank_files import fill_in_own_rank
from gradir.cli.report import add_colour, can_redraw, escape_commands, report
from gradir.cli.scripts import Script, add_script, parse_count, split_arguments
from gradir.cli.sources import is_script
from gradir.cli.subprocesses import make_command
from gradir.errors import SpecError
from gradir.explanations.formats import Layout
from gradir.explanations.model import Cause
from gradir.files import Located
from gradir.request import CaptureRequest
from gradir.watches.model import Collector, Finding, Step
from gradir.watches.watch_formats import End, Head, format_watch, json_line, short_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gradir.explanations.model import Explanation
    from gradir.protocols import ReachedBackward, Watching
    from gradir.watches.model import Modules, Number, Watch

DESCRIPTION = "Run a training script to its end and find problems in its steps."

EXAMPLES = (
    "gradir watch train.py --lr 0.1",
    "gradir watch train.py --steps 500 -o watch.html",
    "gradir watch --go-on -o watch.jsonl train.py -- --steps 50",
    "gradir watch --capture-on-finding found train.py",
    "torchrun --nproc-per-node 4 --no-python gradir watch -o 'watch.{rank}.jsonl' train.py",
)

DETAILS = """\
gradir runs the script as 'python SCRIPT ARGS' would, leaves its results as they are, and answers on standard error. It
explains the first backward pass. Then it looks at each step of an optimizer for a loss, gradients or parameters that
are not finite, parameters that do not move, gradients that vanish or are never cleared, and memory that grows.

With --go-on the script continues after a step that is not finite. Otherwise gradir ends it there. In both cases it runs
the script again, silently, up to this step to find the operation, unless you pass --no-replay.

Put options of gradir before SCRIPT or at the end of the line. Arguments after '--' always belong to the script.

Under torchrun no script runs twice, and gradir fills in {rank} and {world} in FILE.

Exit status: 0 nothing is wrong, 1 something is, 2 trouble, such as no step of an optimizer. If the script fails and
gradir finds nothing, the script's own.
"""

# After a finding of these kinds, further steps show nothing new.
_FATAL: Final = frozenset({"loss_explodes", "loss_not_finite", "nonfinite_grad", "parameter_not_finite"})

_MOST_GRAPHS: Final = 3
_SUFFIXES: Final = (".html", ".jsonl", ".md")


def add_options(parser: Parser) -> None:
    add_script(parser, "SCRIPT ...", "script, folder or archive, and its arguments")
    parser.allow_abbrev = False
    parser.take_program_arguments()
    group = parser.group("input")
    about = "end the script after N steps of an optimizer"
    group.add_argument("--steps", metavar="N", type=parse_count, help=about)
    group.add_argument("--go-on", action="store_true", help="continue after a step that is not finite")
    group.add_argument("--no-replay", action="store_true", help="never run the script again to find the operation")
    output = parser.group("output")
    output.add_argument("-o", "--output", metavar="FILE", help="write a .html page, .jsonl lines or .md to FILE")
    output.add_argument("--all", action="store_true", help="write out the notes too")
    about = "write graphs of the first steps with an error to DIR"
    output.add_argument("--capture-on-finding", metavar="DIR", help=about)
    add_colour(output)
    add_traceback(parser)


def run(options: argparse.Namespace) -> int:
    script = split_arguments(options, is_script=lambda _: True)
    script.check()
    if not options.is_module and not is_script(script.name) and not os.path.exists(script.name):
        raise SpecError(f"{script.name}: no such script")
    if options.output is not None:
        options.output = fill_in_own_rank(options.output)
        if not options.output.endswith(_SUFFIXES):
            known = f"{', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}"
            raise SpecError(f"cannot write {options.output}: name a file that ends in {known}")
        files.check_apart(script.name, options.output)
        files.check_place(options.output)
    if options.capture_on_finding is not None:
        if options.no_replay or "LOCAL_RANK" in os.environ:
            raise SpecError(
                "cannot use --capture-on-finding with --no-replay or torchrun, because it runs the script again"
            )
        Path(options.capture_on_finding).mkdir(parents=True, exist_ok=True)
    # A script that sets no seed gets the same random numbers when it runs again.
    random.seed(0)
    return _Run(options, script).run()


class _Run:
    def __init__(self, options: argparse.Namespace, script: Script) -> None:
        self._options, self._script = options, script
        self._collected = Collector()
        self._folder = os.getcwd()
        self._path = None if options.output is None else Located(options.output)
        self._lines: IO[str] | None = None
        self._fatal: Finding | None = None
        self._is_enough = False
        self._backward = 0
        self._backward_of: dict[int, int] = {}
        self._seeing: Mapping[str, Watching] = {}
        # The script may change the environment.
        self._is_live = can_redraw(sys.stderr)

    def run(self) -> int:
        from gradir.claims import describe_lacking

        options = self._options
        if self._path is not None and options.output.endswith(".jsonl"):
            # With line buffering, a killed run leaves whole lines.
            self._lines = Path(options.output).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 (closed below)
            self._lines.write(json_line(Head()))
        status, interrupted = self._run_script()
        if self._is_live:
            # Clear the line of the progress.
            sys.stderr.write("\r\x1b[K")
        if status and not self._collected.ended:
            self._collected.ended = f"the script ended with status {status}"
        self._replay()
        graphs = self._capture()
        watch = self._collected.watch()
        self._write(watch, graphs)
        if watch.count or watch.findings:
            self._print(watch)
        if interrupted is not None:
            raise interrupted
        if status and not watch:
            if not watch.count:
                report(f"{self._script.name} ended before its first step, and nothing else was found")
            raise SystemExit(status)
        if not watch.count and not watch.findings:
            why = " and ".join(describe_lacking("watching"))
            why = f" ({why})" if why else "; name the script that trains"
            raise SpecError(f"cannot watch: {self._script.name} never stepped an optimizer in this process{why}")
        return int(bool(watch))

    def _write(self, watch: Watch, graphs: Mapping[int, str]) -> None:
        from gradir.watches.page import page

        if self._lines is not None:
            self._lines.write(json_line(End(watch.verdict, watch.level, watch.count, watch.ended)))
            self._lines.close()
        elif self._path is not None:
            is_page = self._options.output.endswith(".html")
            shown = page(watch, graphs) if is_page else format_watch(watch, "markdown")
            files.write_bytes(self._path, shown.encode())

    def _run_script(self) -> tuple[object, KeyboardInterrupt | None]:
        from gradir.capturing import watching

        status: object = None
        interrupted: KeyboardInterrupt | None = None
        with watching(self._handle_record) as self._seeing:
            try:
                status = self._script.run(self._options, lambda: self._is_enough, self._handle_failure)
            except KeyboardInterrupt as error:
                interrupted = error
                self._collected.ended = "the script was interrupted"
            for each in self._seeing.values():
                with suppress(SystemExit):
                    each.finish()
        return status, interrupted

    def _print(self, watch: Watch) -> None:
        """Print on standard error, since standard output belongs to the script."""
        import shutil

        if sys.stderr is None:
            return
        is_coloured = self._options.color == "always" or (self._options.color == "auto" and self._is_live)
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        text = format_watch(watch, "text", Layout(self._options.all, width, is_coloured))
        sys.stderr.write(escape_commands(text))

    def _handle_record(self, record: Modules | Step | Finding) -> None:
        """Handle a record while the script runs; end the script after a fatal finding or the last wanted step."""
        if isinstance(record, Finding) and record.cause.kind in _FATAL:
            # Explain only the first, since a NaN makes all later values NaN.
            if self._fatal is None:
                self._fatal, self._backward = record, self._backwards
                if not self._options.go_on:
                    self._collected.ended = f"the script was ended at step {record.step} (--go-on lets it run on)"
                    self._end()
            return
        self._add(record)
        if isinstance(record, Finding):
            self._backward_of.setdefault(record.step, self._backwards)
        if isinstance(record, Step):
            self._show(record)
            if record.number == self._options.steps:
                self._end()

    def _end(self) -> None:
        # The same exit as from sys.exit(), which prints nothing in a thread either.
        self._is_enough = True
        raise SystemExit

    def _handle_failure(self, error: BaseException) -> bool:
        self._collected.ended = f"the script raised {type(error).__name__}"
        self._backward = self._backwards
        return False

    def _replay(self) -> None:
        finding, has_raised = self._fatal, self._collected.ended.startswith("the script raised")
        if finding is None and not has_raised:
            return
        step = sum(each.steps for each in self._seeing.values()) + 1 if finding is None else finding.step
        found = None
        # A finite gradient made these parameters infinite, so the backward pass has no cause.
        is_known = finding is not None and finding.cause.kind in {"loss_explodes", "parameter_not_finite"}
        # Under torchrun a single rank would wait for the others.
        if not is_known and not self._options.no_replay and "LOCAL_RANK" not in os.environ:
            report(f"running {self._script.name} once more, up to step {step}, to find the operation")
            found = _run_again(self._script, self._backward, self._folder, self._graph_of(step))
        how = "found by running the script once more"
        if found is not None and not has_raised and found.loss != self._find_expected_loss():
            how += f", where the loss was {found.loss} and not {self._find_expected_loss()}"
        if found is not None and found.causes:
            for cause in found.causes:
                self._add(Finding(step, cause, how, {} if finding is None else finding.loops))
        elif finding is not None:
            self._add(finding)

    @property
    def _backwards(self) -> int:
        return sum(each.backwards for each in self._seeing.values())

    def _find_expected_loss(self) -> Number | None:
        """Return the loss of the step that was not finite, if it is finite itself."""
        is_lost = self._fatal is not None and self._fatal.cause.kind == "loss_not_finite"
        loss = self._collected.last and self._collected.last.loss
        return loss if isinstance(loss, float) and not is_lost else None

    def _graph_of(self, step: int) -> str:
        folder = self._options.capture_on_finding
        return "" if folder is None else str(Path(self._folder, folder, f"step-{step}.gir"))

    def _capture(self) -> dict[int, str]:
        """Capture the first steps with an error in another run, and return their pages by step."""
        if self._options.capture_on_finding is None:
            return {}
        pages = {}
        steps = dict.fromkeys(each.step for each in self._collected.findings if each.cause.level == "error")
        for step in [*steps][:_MOST_GRAPHS]:
            graph = Path(self._graph_of(step))
            if not graph.exists():
                report(f"running {self._script.name} once more, up to step {step}, to capture its graph")
                _run_again(self._script, self._backward_of.get(step, self._backward), self._folder, str(graph))
            if graph.exists():
                page = graph.with_suffix(".html")
                page.write_text(api.load(graph).to("html"), encoding="utf-8")
                folder = Path(self._folder, self._options.output or "").parent
                pages[step] = Path(os.path.relpath(page, folder)).as_posix()
        return pages

    def _add(self, record: Modules | Step | Finding) -> None:
        self._collected.add(record)
        if self._lines is not None:
            self._lines.write(json_line(record))

    def _show(self, step: Step) -> None:
        if not self._is_live:
            return
        parts = [f"step {step.number:,}", f"loss {short_number(step.loss)}", f"gradient {short_number(step.norm)}"]
        sys.stderr.write(f"\r\x1b[K{'  '.join(parts)}  {step.memory / 2**20:,.0f} MiB\r")


class Replay(msgspec.Struct, frozen=True):
    """The result of running a script again: the loss of the backward pass, and the causes that explain it."""

    loss: float | None = None
    causes: tuple[Cause, ...] = ()


def _run_again(script: Script, step: int, folder: str, graph: str) -> Replay | None:
    """Run a script again, silently, up to its backward number ``step``, and write that graph to the file ``graph``."""
    with tempfile.TemporaryDirectory() as place:
        result = Path(place) / "replay.json"
        words = [str(result), str(step), graph, str(int(script.is_module)), script.name, *script.arguments]
        subprocess.run(  # noqa: S603 (gradir itself)
            make_command(words, "gradir.cli.watch_command"),
            cwd=folder,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return msgspec.json.decode(result.read_bytes(), type=Replay)
        except (OSError, msgspec.DecodeError):
            return None


def main() -> int:
    """Run the script of the command line, and write the causes that explain its backward pass."""
    result, step, graph, is_module, name, *arguments = sys.argv[1:]
    from gradir.capturing import running
    from gradir.spec import run_script

    def write(loss: float | None, explanations: Iterable[Explanation]) -> None:
        causes = tuple(cause for each in explanations for cause in each.causes if cause.level == "error")
        Path(result).write_bytes(msgspec.json.encode(Replay(loss, causes)))

    def explain_call(call: ReachedBackward) -> None:
        loss = call.loss
        explanation = call.explain()
        if graph:
            api.save(call.capture(), graph)
        write(loss if loss is not None and isfinite(loss) else None, [explanation])
        raise SystemExit

    request = CaptureRequest(step=int(step), flow=True, sources=True, values=True)
    with running(request, explain_call) as seeing:
        try:
            run_script(name, arguments, is_module=is_module == "1", for_good=True)
        except Exception as error:  # noqa: BLE001 (whatever the script raises)
            write(None, filter(None, [each.explain_failure(error) for each in seeing.values()]))
    return 0
