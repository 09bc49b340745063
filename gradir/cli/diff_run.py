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

from msgspec import convert, to_builtins

from gradir.cli.main import make_parser
from gradir.cli.programs import make_request, running_program
from gradir.cli.report import PREFIX, TROUBLE, one_line, report
from gradir.cli.subprocesses import list_program_options, make_command
from gradir.errors import GradirError, SpecError
from gradir.progress import stage
from gradir.protocols import Alike, Distance

if TYPE_CHECKING:
    from gradir.ir import Graph, Node

# Without --full, at most this many modules and names are listed.
_MOST: Final = 10


def run_both(options: argparse.Namespace, specs: Sequence[str], graphs: Sequence[Graph], folder: str) -> str:
    """Run both programs, each in a subprocess that starts in a ``folder``, and return the report."""
    first, second = specs
    with TemporaryDirectory() as place:
        path = os.path.join(place, "run")
        _run_program(options, first, {"path": path, "pairs": None}, folder)
        printed = _run_program(options, second, {"path": path, "pairs": _pair_parameters(*graphs)}, folder)
    return "".join(f"{one_line(line)}\n" for line in _report_lines(convert(json.loads(printed), Alike), specs, options))


def main() -> int:
    """Run one program in the subprocess that `run_both` starts."""
    from gradir import capturing

    job, spec, *words = sys.argv[1:]
    known = argparse.Namespace(arguments=[spec, *words], is_process=True)
    options = make_parser("diff").parse_args([spec, spec, *words], known)
    options.spec, options.graph = spec, None
    settings = json.loads(job)
    try:
        with running_program(options, spec) as write:
            found = capturing.run_alike(make_request(options, "graph"), settings["path"], settings["pairs"])
            # json writes NaN, and msgspec would write null.
            write(json.dumps(to_builtins(found)).encode())
    except GradirError as error:
        report(str(error))
        return TROUBLE
    return 0


def _run_program(options: argparse.Namespace, spec: str, job: object, folder: str) -> bytes:
    line = make_command([json.dumps(job), spec, *list_program_options(options)], "gradir.cli.diff_run")
    with stage(f"running {spec}"):
        done = subprocess.run(  # noqa: S603 (gradir itself)
            line, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=folder or None
        )
    if done.returncode:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith(PREFIX)]
        last = lines[-1].removeprefix(PREFIX) if lines else f"its process ended with status {done.returncode}"
        raise SpecError(f"cannot run {spec} beside the other: {last}")
    return done.stdout


def _pair_parameters(a: Graph, b: Graph) -> dict[str, str]:
    """Pair the parameters of the second graph with those of the first, by name or else by place in the graph."""
    from gradir.diffs.matching import match

    before, after = _find_parameters(a), _find_parameters(b)
    pairs = {name: name for name, node in after.items() if name in before and node.shape == before[name].shape}
    matched = match(a, b).nodes
    new_names = {node.id: name for name, node in after.items() if name not in pairs}
    for name in [name for name in before if name not in pairs]:
        new_name = new_names.get(matched.get(before[name].id, ""))
        if new_name is not None and after[new_name].shape == before[name].shape:
            pairs[new_name] = name
    return pairs


def _find_parameters(graph: Graph) -> dict[str, Node]:
    return {node.names[0]: node for node in graph.nodes.values() if node.role == "parameter" and node.names}


def _report_lines(found: Alike, specs: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    count = found.paired + len(found.own)
    yield f"run with equal weights, inputs and seed: {found.paired} of {count} parameters of {specs[1]} paired"
    yield from _list_names(found.own, specs[1], "keep their own values", options)
    yield from _list_names(found.left, specs[0], "have no counterpart", options)
    for number, distance in enumerate(found.outputs):
        name = "output" if len(found.outputs) == 1 else f"output {number}"
        yield f"  {name}: {_describe(distance) if distance else 'of other sizes, or in one program alone'}"
    yield from _list_names(found.lost, specs[1], "get no gradient, and do in the other program", options)
    yield from _list_names(found.gained, specs[0], "get no gradient, and do in the other program", options)
    if not found.gradients:
        yield "  gradients: none of the same sizes in both"
        return
    worst = max(found.gradients.items(), key=lambda each: _sort_key(each[1]))
    where = f", in {worst[0]}" if worst[1].absolute else ""
    yield f"  gradients of {len(found.gradients)} parameters: {_describe(worst[1])}{where}"
    modules: dict[str, Distance] = {}
    for name, distance in found.gradients.items():
        module = name.rpartition(".")[0]
        modules[module] = max(modules.get(module, distance), distance, key=_sort_key)
    changed = sorted((each for each in modules.items() if each[1].absolute), key=lambda each: _sort_key(each[1]))[::-1]
    for name, distance in changed if options.full else changed[:_MOST]:
        yield f"    {name or '(top level)'}: {_describe(distance)}"
    if len(changed) > _MOST and not options.full:
        yield f"    and {len(changed) - _MOST} more modules; --full lists them"


def _list_names(names: Sequence[str], spec: str, verb: str, options: argparse.Namespace) -> Iterator[str]:
    if names:
        shown = names if options.full else names[:_MOST]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        yield f"  {len(names)} of {spec} {verb}: {', '.join(shown)}{more}"


def _sort_key(distance: Distance) -> tuple[bool, float]:
    """Return a sort key by size; NaN is the largest."""
    # Only NaN is unequal to itself.
    return distance.absolute != distance.absolute, distance.absolute


def _describe(distance: Distance) -> str:
    if distance.absolute != distance.absolute:
        return "NaN in one of the two"
    if not distance.absolute:
        return "equal"
    return f"differs by up to {distance.absolute:.3g} ({distance.relative:.2g} of the largest)"
