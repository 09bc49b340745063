"""What the commands that capture have in common: the options, and running what a SPEC names."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gradir.cli.parser import add_traceback
from gradir.cli.program_output import OwnOutput, program_output
from gradir.cli.report import one_line
from gradir.errors import CaptureError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.cli.parser import Parser
    from gradir.ir import Graph
    from gradir.protocols import LiveCapture, Verification

__all__ = [
    "RAISED",
    "SPEC_HELP",
    "add_capture_options",
    "add_exchange_options",
    "add_graph_option",
    "add_noting_options",
    "add_run_options",
    "captured",
    "captured_so_far",
    "check_is_graph_file",
    "names_file",
    "running_program",
    "summary",
    "target_of",
]

RAISED: Final = 1
"""The exit status where a program raised, and what there is of its graph was written or shown."""

_SEEDS: Final = 2**63
_SUFFIXES: Final = (".gir", ".gir.gz", ".gir.zst")

SPEC_HELP: Final = """\
SPEC is path/to/file.py:attr or package.module:attr, where attr is
  what a front-end takes, which is found by that, or by the framework that the program has imported,
  a callable without arguments that returns it, or (model, what the model returned), for 'gradir explain'
    also (model, what it returned, optimizer), or
  a model, or a class or factory of one, to be run on --input.

What stands behind '--' is handed over in sys.argv, while the program is imported and while it runs.
The program is run, so a SPEC of a change that you do not trust runs its author's code.
"""


def add_run_options(parser: Parser, *, tell: bool = True) -> None:
    """Add the options of how a SPEC is run; with ``tell`` the help lists the front-ends, which takes time to find."""
    if tell:
        parser.add_later(lambda: _tell_frontends(parser))
    parser.add_argument(
        "--input",
        metavar="TENSOR",
        action="append",
        default=[],
        help="an input of a module, dtype[sizes] or name=dtype[sizes]; repeat for more inputs",
    )
    parser.add_argument("--seed", type=_seed, help="seed of the framework's random numbers (default: 0)")
    parser.add_argument("--frontend", metavar="NAME", help="the front-end to use (default: the one that SPEC is for)")
    add_traceback(parser)
    parser.take_program_arguments()


def add_capture_options(parser: Parser) -> None:
    """Add SPEC and the options of how it is run and captured."""
    parser.add_argument("spec", metavar="SPEC", help="what to capture")
    add_run_options(parser)
    add_noting_options(parser)
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run a real backward too, and write nothing unless the engine agrees with the graph",
    )


def add_noting_options(parser: Parser) -> None:
    """Add the options that say what is noted of a run."""
    parser.add_argument(
        "--fake", action="store_true", help="run on tensors without data: a model of any size takes seconds"
    )
    parser.add_argument(
        "--sources",
        action="store_true",
        help="note the source line of each operation and the variable it is assigned to",
    )
    parser.add_argument(
        "--flow",
        action="store_true",
        help="note every operation of the forward, for the places where gradient stops",
    )


def add_exchange_options(parser: Parser) -> None:
    """Add the options of what one of several processes notes."""
    parser.add_argument(
        "--collectives",
        action="store_true",
        help="in one of several processes, note its rank and what it exchanges with the others, also in a backward, "
        "which runs for that and sends nothing",
    )
    parser.add_argument(
        "--step",
        metavar="K",
        type=_call,
        default=1,
        help="with --collectives, capture the Kth call of SPEC; those before run with their backward",
    )


def add_graph_option(parser: Parser, verb: str) -> None:
    """Add the option that chooses between the graphs of a program."""
    parser.add_argument(
        "--graph",
        choices=("autograd", "forward"),
        help=f"what to {verb}: the autograd graph (default), or every operation of the forward, also of one that "
        "raises",
    )


def names_file(spec: str) -> bool:
    """Whether what may be a file or a SPEC is a file, which need not be there."""
    # Nobody who mistypes a name has a module imported.
    if ":" not in spec or spec.endswith(_SUFFIXES):
        return True
    from pathlib import Path

    return Path(spec).is_file()


def check_is_graph_file(
    spec: str, options: argparse.Namespace, names: Iterable[str], *, may_be_absent: bool = False
) -> None:
    """Refuse a file that cannot be one of a graph, and, of ``names``, options that are for programs.

    One that ``may_be_absent`` is left to what reads it.

    Raises:
        SpecError: there is one of them, or the file is a program or not there.
    """
    for name in names:
        if getattr(options, name) != options.parser.get_default(name):
            raise SpecError(f"--{name} is for a program, and {spec} is a file: name path/to/file.py:attr")
    if options.program_arguments:
        raise SpecError(f"what stands behind '--' is for a program, and {spec} is a file: name path/to/file.py:attr")
    # No path: a command on a file starts without what makes one.
    if spec.endswith(".py") or not (spec == "-" or may_be_absent or os.path.exists(spec)):  # noqa: PTH110
        what = "is a program, not a graph" if spec.endswith(".py") else "there is no such file"
        raise SpecError(f"{spec}: {what}; what a program makes is named path/to/file.py:attr, or module:attr")


def _tell_frontends(parser: Parser) -> None:
    from gradir.abilities import Records
    from gradir.choosing import ABILITIES, kinds

    told = []
    for name, kind in kinds().items():
        can = ", ".join(
            text for ability, text in ABILITIES.items() if ability is not Records and issubclass(kind, ability)
        )
        told.append(f"  {name} takes {kind.takes};\n    it can {can or 'do no more than capture'}")
    parser.description = f"{parser.description}\n\nfront-ends:\n" + "\n".join(told)


@contextmanager
def running_program(options: argparse.Namespace, spec: str, *, for_good: bool = False) -> Iterator[OwnOutput]:
    """Let a program print to standard error, see `program_output`, and find its arguments, if there are any."""
    from gradir.script import program_arguments

    words = [spec.rpartition(":")[0], *options.program_arguments]
    with program_output(for_good=for_good) as own, program_arguments(words, for_good=for_good):
        yield own


def captured(options: argparse.Namespace, *, forward: bool = False) -> Graph:
    """Run what the options name, capture, and verify when asked to; to be called inside `running_program`.

    With ``forward`` it is the graph of the forward.

    Raises:
        StoppedError: a forward raised behind some operation.
        CaptureError: the SPEC cannot be run or has no graph, or the engine disagrees with what was captured.
    """
    from gradir import choosing, registry
    from gradir.abilities import Flows, Seeds, StoppedError, Verifies

    target = target_of(options)
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
        raise CaptureError(f"{options.spec}: {error}") from error
    if checked is not None:
        _report(options.spec, checked)
    return live.graph


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
    """What the SPEC names; the program is run, to be called inside `running_program`.

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
    number = int(text)
    if not 0 <= number < _SEEDS:
        raise argparse.ArgumentTypeError(f"{text}: a seed is from 0 to {_SEEDS - 1}")
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
