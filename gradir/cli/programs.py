"""Share the options of commands that run a program, and capture it."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from gradir.cli.parser import Parser, add_traceback
from gradir.cli.rank_files import read_launcher
from gradir.cli.report import one_line, report
from gradir.errors import CaptureError, FileError, SpecError
from gradir.files import working_folder

if TYPE_CHECKING:
    from gradir.ir import Graph
    from gradir.protocols import CaptureRequest, Verification

# Writes to standard output.
Writer: TypeAlias = Callable[[bytes], None]

_STDOUT: Final = 1
_STDERR: Final = 2
_OUT_OF_MEMORY: Final = re.compile("(?i)out of memory|allocate memory")


class Loaded(NamedTuple):
    """A graph, the error that ended the program, and the forward graph of the same run or the reason of its absence."""

    graph: Graph
    raised: str = ""
    forward: Graph | None = None
    missing: str = ""


def add_request_options(parser: Parser, *uses: str) -> None:
    """Add the options of a `CaptureRequest` for these uses, and the arguments after ``--``."""
    from gradir.cli.plugin_options import add_declared
    from gradir.request import list_options

    for each in list_options(*uses).values():
        if each.flag is not None:
            add_declared(parser.group(each.option.group), each)
    add_traceback(parser)
    parser.take_program_arguments()


def add_verify_option(parser: Parser) -> None:
    """Add the option that compares the graph with a real backward pass."""
    about = "fail unless a real backward agrees with the graph"
    parser.group("advanced").add_argument("--verify", action="store_true", help=about)


def _write(descriptor: int, data: bytes) -> None:
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    # If the reader closed the pipe, the command ends without an error.
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError("standard output", "written", error.strerror, error.errno) from error


@contextmanager
def program_output(*, for_good: bool) -> Iterator[Writer]:
    """Send all output inside to standard error; with ``for_good`` also later output, such as of exit handlers.

    Yield a function that writes to standard output.
    """
    with redirect_stdout(sys.stderr):
        try:
            _flush()
            own = os.dup(_STDOUT)
        except OSError:
            # Standard output is closed.
            yield partial(_write, _STDOUT)
            return
        # C code and subprocesses write to the descriptor, not to sys.stdout.
        with suppress(OSError):
            os.dup2(_STDERR, _STDOUT)
        try:
            yield partial(_write, own)
        finally:
            _flush()
            if not for_good:
                os.dup2(own, _STDOUT)
                os.close(own)


def _flush() -> None:
    with suppress(OSError, ValueError):
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()


@contextmanager
def running_program(options: argparse.Namespace, spec: str, *, for_good: bool = False) -> Iterator[Writer]:
    """Redirect a program's output as `program_output` does, and pass its arguments in sys.argv."""
    from gradir.spec import program_arguments

    if not working_folder():
        raise SpecError(f"cannot run {spec}: the working directory was deleted; change to another one")

    words = [spec.rpartition(":")[0], *options.program_arguments]
    with program_output(for_good=for_good) as write, program_arguments(words, for_good=for_good):
        yield write


def make_request(options: argparse.Namespace, *uses: str) -> CaptureRequest:
    """Run a program inside `running_program`, and return a request to capture its result with the options."""
    from msgspec.structs import replace

    from gradir.capturing import expect_possible
    from gradir.request import CaptureRequest, list_options

    values = {name: getattr(options, name) for name, each in list_options(*uses).items() if each.flag is not None}
    # argparse makes a list of a repeated option.
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    request = CaptureRequest(is_program=True, **plain)
    # The program may run long, so check this first.
    expect_possible(request, verify=getattr(options, "verify", False))
    return replace(request, target=_load_target(options))


def capture_program(options: argparse.Namespace, *uses: str) -> Loaded:
    """Run and capture a program inside `running_program`, and verify the graph if requested."""
    from gradir import capturing
    from gradir.protocols import StoppedError

    request = make_request(options, *uses)
    try:
        if request.graph == "both" and getattr(options, "takes_both", False):
            both = capturing.capture_both(request, verify=options.verify)
        elif not options.verify:
            return Loaded(capturing.capture_graph(request))
        else:
            # Nothing runs after this, so the backward pass may free the graph.
            graph, checked = capturing.capture_and_verify(request, keep_graph=False)
            both = capturing.Both(graph, checked=checked)
    except StoppedError as error:
        return Loaded(error.graph, f"{options.spec}: {error}")
    except CaptureError as error:
        raise CaptureError(f"{options.spec}: {error}{_advise_forward(error, request)}") from error
    if both.checked is not None:
        _report_verification(options.spec, both.checked)
    missing = f"{options.spec} gives none ({both.missing})" if both.missing else ""
    return Loaded(both.graph, "", both.forward, missing)


def _advise_forward(error: CaptureError, request: CaptureRequest) -> str:
    """Return advice if the program raised and the front-end can record the operations before."""
    from traceback import walk_tb

    from gradir import claims

    cause = error.__cause__
    if not isinstance(error, SpecError) or cause is None or request.graph == "forward" or request.fake:
        return ""
    # A backend raises in all ranks except the faulty one.
    if request.collectives and not request.dry and isinstance(cause, RuntimeError) and read_launcher() is not None:
        return "; if another rank ended first, --dry captures this one, and sends nothing"
    if "forward" not in claims.kinds()[claims.choose_frontend(request)].features:
        return ""
    if "fake" in claims.kinds()[claims.choose_frontend(request)].features and _OUT_OF_MEMORY.search(str(error)):
        return "; --fake runs it without data"
    forward = "--graph forward captures what ran before"
    if isinstance(cause, RuntimeError):
        return f"; 'gradir explain' finds the cause, and {forward}"
    has_begun = any(frame.f_code.co_name == "forward" for frame, _ in walk_tb(cause.__traceback__))
    return f"; {forward}" if has_begun else ""


def _load_target(options: argparse.Namespace) -> object:
    from gradir import capturing, claims, registry
    from gradir.spec import load_target

    # Python must finalize the objects of the program.
    atexit.unregister(gc.freeze)
    if options.frontend is not None:
        registry.frontend(options.frontend)
    # The import may make tensors. A later call starts from the same seed again.
    with capturing.seeding(options.seed or 0):
        try:
            return load_target(options.spec)
        except SpecError as error:
            raise SpecError(f"{error}{claims.advice(error.__cause__)}") from error


def summarize_graph(graph: Graph) -> str:
    """Return a graph in one line."""
    from gradir.ir.cuts import cut_counts
    from gradir.ir.text import pluralize
    from gradir.ir.totals import totals

    counts = totals(graph)
    places, missing, hidden = cut_counts(graph)
    size = f"{pluralize(counts.nodes, 'node')}, {pluralize(counts.edges, 'edge')}"
    text = f"{size}, {pluralize(counts.parameters, 'parameter element')}"
    text += f", {pluralize(places, 'cut')}" if places else ""
    text += f", {pluralize(missing, 'parameter')} without gradient" if missing else ""
    return text + (f", {pluralize(hidden, 'parameter')} hidden" if hidden else "")


def _report_verification(spec: str, checked: Verification) -> None:
    if checked.mismatches:
        more = f" (and {len(checked.mismatches) - 1} more)" if len(checked.mismatches) > 1 else ""
        who = "the graph contradicts itself" if checked.skipped else "the engine disagrees with the graph"
        raise CaptureError(f"{spec}: {who}: {checked.mismatches[0]}{more}")
    counts = f"{checked.nodes:,} functions, {checked.edges:,} edges"
    if checked.skipped:
        report(f"checked {spec}: {counts}, 0 mismatches; {checked.skipped}")
    else:
        print(f"verified {one_line(spec)}: {counts}, {checked.executed:,} executed, 0 mismatches", file=sys.stderr)
