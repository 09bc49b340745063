"""Two workers share the architectures: what one compared, the other builds and captures once more."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from wide.results import PROGRAM, Result
from wide.workers import Worker

__all__ = ["join_results", "results_of"]


def results_of(
    workers: Sequence[Worker], keys: Sequence[str], tasks: tuple[str, str] = ("compared", "digested")
) -> Iterator[Result]:
    """The result of each, as they come, from a task and the one that another process does after it."""
    locks = [threading.Lock() for _ in workers]

    def ask(number: int, task: str, *words: str) -> Result:
        with locks[number]:
            return workers[number].ask(task, *words)

    def result_of(place: int, key: str) -> Result:
        result = ask(place % 2, tasks[0], key)
        return join_results(result, ask(1 - place % 2, tasks[1], key, result.choice)) if result.digests else result

    # One more waits for each worker, so that none is idle.
    with ThreadPoolExecutor(2 * len(workers)) as pool:
        found = [pool.submit(result_of, place, key) for place, key in enumerate(keys)]
        try:
            for each in as_completed(found):
                yield each.result()
        finally:
            pool.shutdown(cancel_futures=True)


def join_results(compared: Result, digested: Result) -> Result:
    """Return one result with what another process found."""
    if digested.failure:
        compared.mismatches.append(f"built in one process, and not in another: {digested.failure}")
    compared.mismatches += digested.mismatches
    if digested.digests and compared.digests.get(PROGRAM) != digested.digests.get(PROGRAM):
        compared.failure, compared.detail = "program", "its graph of FX is another one in another process"
        return compared
    for name, digest in compared.digests.items():
        if digested.digests and digested.digests.get(name) != digest:
            compared.mismatches.append(f"{name}: another process writes other bytes")
    return compared
