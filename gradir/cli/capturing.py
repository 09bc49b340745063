"""What the commands that capture have in common: the options, and running what a program argument names."""

from __future__ import annotations

import argparse
import atexit
import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gradir.cli.parser import add_traceback
from gradir.cli.program_output import OwnOutput, program_output
from gradir.cli.report import one_line
from gradir.errors import CaptureError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.cli.parser import Parser
    from gradir.ir import Graph
    from gradir.protocols import LiveCapture, Verification

__all__ = [
    "add_capture_options",
    "add_exchange_options",
    "add_graph_option",
    "add_noting_options",
    "add_run_options",
    "captured",
    "captured_so_far",
    "running_program",
    "summary",
    "target_of",
]

_SEEDS: Final = 2**63


def add_run_options(parser: Parser) -> None:
    """Add the options of how a program is run."""
    group = parser.group("input")
    group.add_argument(
        "--input",
        metavar="TENSOR",
        action="append",
        default=[],
        help="an input of the module: dtype[sizes] or name=dtype[sizes]; repeatable",
    )
    group.add_argument("--seed", type=_seed, metavar="N", help="seed of the random numbers (default: 0)")
    advanced = parser.group("advanced")
    advanced.add_argument("--frontend", metavar="NAME", help="front-end to use (default: the one that claims it)")
    add_traceback(parser)
    parser.take_program_arguments()


def add_capture_options(parser: Parser) -> None:
    """Add the program, and the options of how it is run and captured."""
    parser.add_argument("spec", metavar="PROGRAM", help="what to capture, e.g. train.py:loss or my_package.train:loss")
    add_run_options(parser)
    add_noting_options(parser)
    add_verify_option(parser)


def add_verify_option(parser: Parser) -> None:
    """Add the option that compares what is captured with a real backward."""
    parser.group("advanced").add_argument(
        "--verify", action="store_true", help="fail unless a real backward agrees with the graph"
    )


def add_noting_options(parser: Parser) -> None:
    """Add the options that say what is recorded of a run."""
    group = parser.group("input")
    group.add_argument("--fake", action="store_true", help="run without data: a model of any size takes seconds")
    group.add_argument("--sources", action="store_true", help="record source lines and variable names")
    group.add_argument("--flow", action="store_true", help="record the places where gradient stops")


def add_exchange_options(parser: Parser) -> None:
    """Add the options of what one of several processes exchanges."""
    group = parser.group("distributed")
    group.add_argument(
        "--collectives", action="store_true", help="record what this rank exchanges; a dry backward runs"
    )
    group.add_argument(
        "--step",
        metavar="K",
        type=_call,
        default=1,
        help="with --collectives, capture the Kth call; earlier ones run their backward",
    )


def add_graph_option(parser: Parser) -> None:
    """Add the option that chooses between the graphs of a program."""
    parser.group("input").add_argument(
        "--graph",
        choices=("autograd", "forward"),
        help="autograd graph (default), or every operation of the forward, even one that raises",
    )


@contextmanager
def running_program(options: argparse.Namespace, spec: str, *, for_good: bool = False) -> Iterator[OwnOutput]:
    """Let a program print to standard error, see `program_output`, and find its arguments, if there are any.

    Raises:
        SpecError: the working directory was deleted, where frameworks end the process.
    """
    from gradir.files import working_folder
    from gradir.script import program_arguments

    if not working_folder():
        raise SpecError(f"cannot run {spec}: the working directory was deleted; change to another one")

    words = [spec.rpartition(":")[0], *options.program_arguments]
    with program_output(for_good=for_good) as own, program_arguments(words, for_good=for_good):
        yield own


def captured(options: argparse.Namespace, *, forward: bool = False) -> Graph:
    """Run what the options name, capture, and verify when asked to; to be called inside `running_program`.

    With ``forward`` it is the graph of the forward.

    Raises:
        StoppedError: a forward raised behind some operation.
        CaptureError: the program cannot be run or has no graph, or the engine disagrees with what was captured.
    """
    from gradir import choosing, registry
    from gradir.abilities import Flows, Seeds, StoppedError, Verifies

    target, name = target_of(options), ""
    try:
        name = choosing.running(target, options.frontend)
        if options.seed is not None:
            choosing.able(name, Seeds)
        verifies = choosing.able(name, Verifies) if options.verify else None
        with registry.frontend.failing(name):
            if forward:
                flows = choosing.able(name, Flows)
                return flows.forward_target(target, options.input, seed=options.seed or 0, fake=options.fake)
            live = registry.expect_live(name, _live(name, target, options))
            # Nothing runs after this, so that the graph may be used up.
            checked = verifies.verify(live, keep_graph=False) if verifies is not None else None
    except StoppedError as error:
        raise StoppedError(f"{options.spec}: {error}", error.graph) from error
    except CaptureError as error:
        advice = _forward_advice(error, name) if name and not forward and not options.fake else ""
        raise CaptureError(f"{options.spec}: {error}{advice}") from error
    if checked is not None:
        _report(options.spec, checked)
    return live.graph


def _forward_advice(error: CaptureError, name: str) -> str:
    """What else to try where the program itself raised, and the front-end can record what ran before."""
    from gradir import registry
    from gradir.abilities import Flows

    cause = error.__cause__
    if not isinstance(error, SpecError) or cause is None or not isinstance(registry.frontend(name), Flows):
        return ""
    forward = "--graph forward captures what ran before"
    if isinstance(cause, RuntimeError):
        return f"; 'gradir explain' finds the cause, and {forward}"
    trace = cause.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_name != "forward":
        trace = trace.tb_next
    return "" if trace is None else f"; {forward}"


def captured_so_far(options: argparse.Namespace) -> tuple[Graph, str]:
    """The same of the graph that ``--graph`` names, and what was raised where a forward ends before its time.

    Raises:
        CaptureError: as `captured`, but for such a forward.
    """
    from gradir.abilities import StoppedError

    try:
        return captured(options, forward=options.graph == "forward"), ""
    except StoppedError as error:
        return error.graph, str(error)


def target_of(options: argparse.Namespace) -> object:
    """What the program names; the program is run, to be called inside `running_program`.

    Raises:
        SpecError: there is no such thing.
    """
    from gradir import choosing, registry
    from gradir.spec import load_target

    # There may be objects of the program that want to be finalized.
    atexit.unregister(gc.freeze)
    if options.frontend is not None:
        registry.frontend(options.frontend)
    # Before the import, which may make tensors; what is called later starts from the same seed again.
    with choosing.seeding(options.seed or 0):
        try:
            return load_target(options.spec)
        except SpecError as error:
            raise SpecError(f"{error}{choosing.advice(error.__cause__)}") from error


def _live(name: str, target: object, options: argparse.Namespace) -> LiveCapture:
    from gradir import choosing, registry
    from gradir.abilities import Exchanges, Fakes, Flows, Runs
    from gradir.spec import called

    frontend = registry.frontend(name)
    if getattr(options, "collectives", False):
        return choosing.able(name, Exchanges).capture_exchange_target(
            target,
            options.input,
            seed=options.seed or 0,
            sources=options.sources,
            flow=options.flow,
            fake=options.fake,
            step=options.step,
        )
    if options.flow:
        return choosing.able(name, Flows).capture_flow_target(
            target, options.input, seed=options.seed or 0, sources=options.sources, fake=options.fake
        )
    if options.fake or options.input or options.sources or isinstance(frontend, Runs):
        run = (
            choosing.able(name, Fakes).capture_fake_target if options.fake else choosing.able(name, Runs).capture_target
        )
        return run(target, options.input, seed=options.seed or 0, sources=options.sources)
    return frontend.capture(called(target) if callable(target) and not frontend.claims(target) else target)


def _call(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a call: 1 is the first")
    return int(text)


def _seed(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number < _SEEDS:
        raise argparse.ArgumentTypeError(f"expected a seed from 0 to {_SEEDS - 1}, not {text!r}")
    return number


def summary(graph: Graph) -> str:
    """A graph in one line."""
    from gradir.ir.text import counted
    from gradir.ir.totals import totals

    counts = totals(graph)
    hidden = sum(1 for cut in graph.cuts if cut.kind == "hidden")
    places = sum(cut.is_place for cut in graph.cuts)
    none = len(graph.cuts) - hidden - places
    cut = f", {counted(places, 'cut')}" if places else ""
    cut += f", {counted(none, 'parameter')} without gradient" if none else ""
    cut += f", {counted(hidden, 'parameter')} hidden" if hidden else ""
    graph_size = f"{counted(counts.nodes, 'node')}, {counted(counts.edges, 'edge')}"
    return f"{graph_size}, {counted(counts.parameters, 'parameter element')}{cut}"


def _report(spec: str, checked: Verification) -> None:
    if checked.mismatches:
        more = f" (and {len(checked.mismatches) - 1} more)" if len(checked.mismatches) > 1 else ""
        raise CaptureError(f"{spec}: the engine disagrees with the graph: {checked.mismatches[0]}{more}")
    counts = f"{checked.nodes:,} functions, {checked.edges:,} edges, {checked.fired:,} fired"
    print(f"verified {one_line(spec)}: {counts}, 0 mismatches", file=sys.stderr)
