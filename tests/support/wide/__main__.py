"""Compare every architecture, and write docs/verification-wide.md."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from wide.page import page
from wide.results import ROOT, Kept, Result
from wide.workers import Worker

FOLDER = ROOT / ".verification-wide"
PAGE = ROOT / "docs" / "verification-wide.md"


def main(words: Sequence[str]) -> int:
    options = _options(words)
    workers = [Worker(seed, FOLDER / "packages") for seed in (1, 2)]
    try:
        return _run(workers, options)
    finally:
        for worker in workers:
            worker.close()


def _run(workers: list[Worker], options: argparse.Namespace) -> int:
    keys = workers[0].keys()
    kept = Kept(FOLDER, fresh=options.fresh, stale=options.stale)
    wanted = _wanted(keys, kept, options)
    if options.again:
        kept.forget(wanted)
    todo = [key for key in wanted if key not in kept.results]
    started = time.monotonic()
    for done, result in enumerate(_results(workers, todo), 1):
        kept.add(result)
        said = result.failure or "; ".join(result.mismatches[:2]) or f"{result.nodes} nodes"
        print(f"{done}/{len(todo)} {result.key}: {said} {result.detail[:150]}", file=sys.stderr, flush=True)
    print(f"{len(todo)} in {(time.monotonic() - started) / 60:.1f} minutes", file=sys.stderr)
    results = [kept.results[key] for key in keys if key in kept.results]
    if len(results) == len(keys):
        PAGE.write_text(page(results), encoding="utf-8")
    else:
        print(f"{len(keys) - len(results)} are missing, so the page is not written", file=sys.stderr)
    wrong = [result for result in results if result.key in set(wanted) and result.mismatches]
    for result in wrong:
        print(f"{result.key}: {len(result.mismatches)} mismatches: {'; '.join(result.mismatches[:3])}")
    return 1 if wrong else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m wide", description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--stale", action="store_true", help="keep results of another state of the code")
    parser.add_argument("--only", nargs="+", metavar="KEY", help="family/name, or a part of it, of those to look at")
    parser.add_argument("--again", choices=("wrong", "failed", "all"), help="look again at these of the chosen ones")
    parser.add_argument("--limit", type=int, metavar="N", help="look at so many at most")
    parser.add_argument("--sample", action="store_true", help="look at the sample of `make test` only")
    return parser.parse_args(words)


def _wanted(keys: list[str], kept: Kept, options: argparse.Namespace) -> list[str]:
    if options.sample:
        from wide.sample import SAMPLE

        keys = [key for key in keys if key in SAMPLE]
    if options.only:
        keys = [key for key in keys if any(part == key or part in f"{key}/" for part in options.only)]
    if options.again in {"wrong", "failed"}:
        keys = [key for key in keys if key in kept.results and _is(options.again, kept.results[key])]
    return keys[: options.limit]


def _is(kind: str, result: Result) -> bool:
    return bool(result.mismatches if kind == "wrong" else result.failure)


def _results(workers: list[Worker], keys: list[str]):
    """The result of each, as they come: one worker compares, and the other captures once more."""
    pending: list[SimpleQueue[tuple[str, str]]] = [SimpleQueue() for _ in workers]
    # Comparing takes longer, so they take turns at it.
    for number, key in enumerate(keys):
        pending[number % 2].put(("compared", key))
        pending[1 - number % 2].put(("digested", key))
    answers: SimpleQueue[tuple[str, Result]] = SimpleQueue()

    def work(worker: Worker, tasks: SimpleQueue[tuple[str, str]]) -> None:
        while True:
            try:
                task, key = tasks.get_nowait()
            except Empty:
                return
            answers.put((task, worker.ask(task, key)))

    threads = [
        threading.Thread(target=work, args=pair, daemon=True) for pair in zip(workers, pending, strict=True)
    ]
    for thread in threads:
        thread.start()
    halves: dict[str, dict[str, Result]] = {}
    for _ in range(2 * len(keys)):
        task, result = answers.get()
        halves.setdefault(result.key, {})[task] = result
        if len(halves[result.key]) == 2:
            yield _joined(**halves.pop(result.key))


def _joined(compared: Result, digested: Result) -> Result:
    if compared.failure:
        return compared
    if digested.failure:
        compared.mismatches.append(f"built in one process, and not in another: {digested.failure}")
    for name, digest in compared.digests.items():
        if digested.digests and digested.digests.get(name) != digest:
            compared.mismatches.append(f"{name}: another process writes other bytes")
    return compared


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
