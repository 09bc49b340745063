"""Capture several ranks without the others, each in a new process, since a framework remembers its first mesh."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from gradir import api, files
from gradir.cli.rank_files import fill_in_own_rank
from gradir.cli.report import PREFIX, RAISED, TROUBLE, one_line, report
from gradir.cli.subprocesses import make_command
from gradir.distributed.words import span
from gradir.errors import SpecError
from gradir.ir import Rank
from gradir.ir.memo import group_by_key
from gradir.progress import stage

_WHICH: Final = "--ranks"

_SHARDED: Final = re.compile(r"(?P<dimension>.+):(?:Strided)?Shard\((?P<axis>\d+)[,)]")


class _Ranks:
    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        self._options = options
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.results: dict[int, subprocess.CompletedProcess[str]] = {}

    def file(self, rank: int) -> str:
        return os.path.join(self._folder, f"{rank}-{os.path.basename(make_rank_name(self._options, rank))}")  # noqa: PTH118, PTH119

    def run(self, ranks: Sequence[int], *more: str) -> bool:
        """Capture ranks in this order, stop starting others after a failure, and return whether all succeeded."""
        total, failed = len(ranks) + len(self.results), False
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        progress = stage("capturing ranks", total, lambda: len(self.results))
        with progress, ThreadPoolExecutor(processors or 1) as pool:
            started = {pool.submit(self._capture, rank, more): rank for rank in ranks}
            try:
                for each in as_completed(started):
                    if not each.cancelled():
                        result = self.results[started[each]] = each.result()
                        failed |= result.returncode not in (0, RAISED)
                    if failed:
                        pool.shutdown(wait=False, cancel_futures=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in self._processes:
                    process.kill()
                raise
        return not failed

    def _capture(self, rank: int, more: Sequence[str]) -> subprocess.CompletedProcess[str]:
        options = self._options
        words, rest = list(options.arguments), list(options.program_arguments)
        end = len(words) - len(rest) - 1
        shared = _drop_which(words[:end] if words[end] == "--" else words)
        own = ["--rank", str(rank), "--world", str(options.world), "-o", self.file(rank)]
        process = subprocess.Popen(  # noqa: S603 (gradir itself)
            make_command([*shared, *more, *own, "--", *rest]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        self._processes.append(process)
        output, _ = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output.decode(errors="replace"))


def _drop_which(words: Sequence[str]) -> Iterator[str]:
    remaining = iter(words)
    for word in remaining:
        if word == _WHICH:
            next(remaining)
        elif not word.startswith(f"{_WHICH}="):
            yield word


def make_rank_name(options: argparse.Namespace, rank: int) -> str:
    """Return the name of the file of a rank."""
    return fill_in_own_rank(options.output, {"RANK": str(rank), "WORLD_SIZE": str(options.world)})


def capture_ranks(options: argparse.Namespace) -> int:
    """Capture the ranks that ``--ranks`` names, and write all of their files, or none if one fails.

    Raises:
        SpecError: the files would have one name, or another option cannot be used with a sample.
    """
    from gradir.cli.suffixes import check_graph_name

    if "{rank}" not in options.output:
        raise SpecError(
            f"--ranks {options.ranks} writes a file for each rank: put {{rank}} into -o, as in run.{{rank}}.gir"
        )
    if options.ranks == "sample" and options.verify:
        raise SpecError(
            "cannot use --verify with --ranks sample: finding the mesh uses the graph up; use --rank or --ranks all"
        )
    check_graph_name(make_rank_name(options, 0))
    files.check_place(make_rank_name(options, 0))
    with TemporaryDirectory(prefix="gradir-ranks-") as folder:
        captures = _Ranks(options, folder)
        ranks: Sequence[int] = range(options.world)
        if options.ranks == "sample":
            ranks = _choose_sample(options, captures)
        if captures.run([rank for rank in ranks if rank not in captures.results]) and ranks:
            return _write_all(options, captures, ranks)
        return _report_failure(captures.results)


def _choose_sample(options: argparse.Namespace, captures: _Ranks) -> Sequence[int]:
    if not captures.run([0], "--graph", "autograd", "--collectives") or captures.results[0].returncode:
        return ()
    graph = api.load(captures.file(0))
    if not options.collectives:
        del captures.results[0]
    assert graph.rank is not None  # noqa: S101 (a graph with --collectives has one)
    parameters = [node.outputs[0] for node in graph.nodes.values() if node.outputs and node.role == "parameter"]
    return choose_ranks(graph.rank, [(meta.shape, meta.placements) for meta in parameters])


def _write_all(options: argparse.Namespace, captures: _Ranks, ranks: Sequence[int]) -> int:
    for rank in ranks:
        files.write_bytes(make_rank_name(options, rank), Path(captures.file(rank)).read_bytes())
    lines = {rank: captures.results[rank].stdout.splitlines() or [""] for rank in ranks}
    _print_by_ranks((line, rank) for rank in ranks for line in lines[rank][:-1])
    part = "a sample" if len(ranks) < options.world else "all"
    print(one_line(f"wrote {options.output} for {len(ranks):,} of {options.world:,} ranks, {part}"), file=sys.stderr)
    _print_by_ranks((lines[rank][-1].rpartition(": ")[2], rank) for rank in ranks)
    return max(captures.results[rank].returncode for rank in ranks)


def _print_by_ranks(lines: Iterable[tuple[str, int]]) -> None:
    for line, ranks in group_by_key(lines).items():
        print(one_line(f"{span(ranks)}: {line}"), file=sys.stderr)


def _report_failure(results: Mapping[int, subprocess.CompletedProcess[str]]) -> int:
    rank = min(rank for rank, each in results.items() if each.returncode not in (0, RAISED)) if results else 0
    *first, last = results[rank].stdout.splitlines() or [""]
    for line in first:
        print(one_line(line), file=sys.stderr)
    reason = last.removeprefix(PREFIX) or f"its process ended with {results[rank].returncode}"
    report(f"rank {rank}: {reason}; no file is written of any rank")
    return TROUBLE


def choose_ranks(first: Rank, parameters: Iterable[tuple[Sequence[object] | None, Sequence[str]]]) -> tuple[int, ...]:
    """Return the ranks at the corners of the first rank's mesh, and those next to which shards differ in size.

    ``parameters`` has the whole shape of each parameter and its placements. The result contains the first and last
    place in each dimension of the mesh, and the places whose shard is smaller than the one before. Ranks outside known
    dimensions form one more dimension.
    """
    dimensions = {name: first.groups[name] for name in first.coordinates if name in first.groups}
    places = {name: {0, len(ranks) - 1} for name, ranks in dimensions.items()}
    for shape, placements in parameters:
        for placement in placements:
            found = _SHARDED.match(placement)
            if found is None or shape is None or found["dimension"] not in places:
                continue
            size = shape[int(found["axis"])] if int(found["axis"]) < len(shape) else None
            if isinstance(size, int):
                places[found["dimension"]] |= _find_uneven(size, len(dimensions[found["dimension"]]))
    chosen = [[dimensions[name][place] for place in sorted(taken)] for name, taken in places.items()]
    # The file lacks a dimension without collectives. The last rank is also the last one in that dimension.
    chosen.append([0, max(0, first.world - 1 - sum(ranks[-1] for ranks in dimensions.values()))])
    # The first rank is 0 in each dimension, so a rank is the sum over the dimensions.
    ranks = {sum(parts) for parts in product(*chosen)}
    return tuple(sorted({rank for rank in ranks if rank < first.world} | {first.world - 1}))


def _find_uneven(size: int, parts: int) -> set[int]:
    if not size or size % parts == 0:
        return set()
    full = size // -(-size // parts)
    return {place for place in (full - 1, full, full + 1) if 0 <= place < parts}
