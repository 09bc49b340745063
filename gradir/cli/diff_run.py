"""``gradir diff --run``: run both programs with equal weights and inputs, and report what differs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from gradir.cli.main import command_parser
from gradir.cli.programs import request_of, running_program
from gradir.cli.report import TROUBLE, one_line, report
from gradir.cli.subprocesses import command_line, program_words
from gradir.errors import GradirError, SpecError
from gradir.progress import stage

if TYPE_CHECKING:
    from gradir.ir import Graph, Node
    from gradir.protocols import Alike, Distance

_OWN: Final = "gradir: "
# Modules and names that are listed unless all are asked for.
_MOST: Final = 10


def run_both(options: argparse.Namespace, specs: Sequence[str], graphs: Sequence[Graph], folder: str) -> str:
    """Run both programs, each in a process that starts in a ``folder``, and return what there is to say, as text."""
    from msgspec import convert

    from gradir.protocols import Alike

    first, second = specs
    with TemporaryDirectory() as place:
        path = os.path.join(place, "run")
        _started(options, first, {"path": path, "pairs": None}, folder)
        said = _started(options, second, {"path": path, "pairs": _pairs(*graphs)}, folder)
    return "".join(f"{one_line(line)}\n" for line in _report_lines(convert(json.loads(said), Alike), specs, options))


def main() -> int:
    """Run one program, as the process that another one starts."""
    from msgspec import to_builtins

    from gradir import capturing

    job, spec, *words = sys.argv[1:]
    known = argparse.Namespace(arguments=[spec, *words], is_process=True)
    options = command_parser("diff").parse_args([spec, spec, *words], known)
    options.spec, options.graph = spec, None
    given = json.loads(job)
    try:
        with running_program(options, spec) as own:
            found = capturing.run_alike(request_of(options, "graph"), given["path"], given["pairs"])
            # A NaN is one, and not null.
            own.write(json.dumps(to_builtins(found)).encode())
    except GradirError as error:
        report(str(error))
        return TROUBLE
    return 0


def _started(options: argparse.Namespace, spec: str, job: object, folder: str) -> bytes:
    line = command_line([json.dumps(job), spec, *program_words(options)], "gradir.cli.diff_run")
    with stage(f"running {spec}"):
        done = subprocess.run(  # noqa: S603 (gradir itself)
            line, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=folder or None
        )
    if done.returncode:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith(_OWN)]
        last = lines[-1].removeprefix(_OWN) if lines else f"its process ended with status {done.returncode}"
        raise SpecError(f"cannot run {spec} beside the other: {last}")
    return done.stdout


def _pairs(a: Graph, b: Graph) -> dict[str, str]:
    """Pair the parameters of the second graph with those of the first, by name or else by place in the graph."""
    from gradir.diffs.matching import match

    before, after = _parameters(a), _parameters(b)
    pairs = {name: name for name, node in after.items() if name in before and _shape(node) == _shape(before[name])}
    for old, new in match(a, b).nodes.items():
        one, other = a.nodes[old], b.nodes[new]
        if one.role == other.role == "parameter" and one.names and other.names and _shape(one) == _shape(other):
            taken = one.names[0] in pairs.values()
            if other.names[0] not in pairs and not taken:
                pairs[other.names[0]] = one.names[0]
    return pairs


def _parameters(graph: Graph) -> dict[str, Node]:
    return {node.names[0]: node for node in graph.nodes.values() if node.role == "parameter" and node.names}


def _shape(node: Node) -> object:
    return node.outputs[0].shape if node.outputs else None


def _report_lines(found: Alike, specs: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    count = found.paired + len(found.own)
    yield f"run with equal weights, inputs and seed: {found.paired} of {count} parameters of {specs[1]} paired"
    yield from _named(found.own, specs[1], "keep their own values", options)
    yield from _named(found.left, specs[0], "have no counterpart", options)
    for number, distance in enumerate(found.outputs):
        name = "output" if len(found.outputs) == 1 else f"output {number}"
        yield f"  {name}: {_told(distance) if distance else 'of other sizes, or in one program alone'}"
    yield from _named(found.lost, specs[1], "get no gradient, and do in the other program", options)
    yield from _named(found.gained, specs[0], "get no gradient, and do in the other program", options)
    if not found.gradients:
        yield "  gradients: none of the same sizes in both"
        return
    worst = max(found.gradients.items(), key=lambda each: _key(each[1]))
    where = f", in {worst[0]}" if worst[1].absolute else ""
    yield f"  gradients of {len(found.gradients)} parameters: {_told(worst[1])}{where}"
    modules: dict[str, Distance] = {}
    for name, distance in found.gradients.items():
        module = name.rpartition(".")[0]
        modules[module] = max(modules.get(module, distance), distance, key=_key)
    changed = sorted((each for each in modules.items() if each[1].absolute), key=lambda each: _key(each[1]))[::-1]
    for name, distance in changed if options.full else changed[:_MOST]:
        yield f"    {name or '(top level)'}: {_told(distance)}"
    if len(changed) > _MOST and not options.full:
        yield f"    and {len(changed) - _MOST} more modules; --full lists them"


def _named(names: Sequence[str], of: str, what: str, options: argparse.Namespace) -> Iterator[str]:
    if names:
        shown = names if options.full else names[:_MOST]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        yield f"  {len(names)} of {of} {what}: {', '.join(shown)}{more}"


def _key(distance: Distance) -> tuple[bool, float]:
    """Return a sort key by size, where NaN is the largest."""
    # Only NaN is unequal to itself.
    return distance.absolute != distance.absolute, distance.absolute


def _told(distance: Distance) -> str:
    if distance.absolute != distance.absolute:
        return "NaN in one of the two"
    if not distance.absolute:
        return "equal"
    return f"differs by up to {distance.absolute:.3g} ({distance.relative:.2g} of the largest)"
