"""Two workers share the architectures: what one compared, the other builds and captures once more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from wide.results import PROGRAM, Result
from wide.workers import Worker

__all__ = ["joined", "results_of"]


def results_of(
    workers: list[Worker], keys: list[str], tasks: tuple[str, str] = ("compared", "digested")
) -> Iterator[Result]:
    """The result of each, as they come, from a task and the one that another process does after it."""
    pool = _Pool(workers, keys, tasks)
    for number in range(len(workers)):
        threading.Thread(target=pool.work, args=(number,), daemon=True).start()
    for _ in keys:
        result = pool.done.get()
        if result is None:
            raise RuntimeError("a worker ended")
        yield result


class _Pool:
    """What is to be done, by whom, and what is done: ``None`` when a worker cannot go on."""

    def __init__(self, workers: list[Worker], keys: list[str], tasks: tuple[str, str]) -> None:
        self.done: SimpleQueue[Result | None] = SimpleQueue()
        self._workers, self._tasks = workers, tasks
        self._untouched: SimpleQueue[str] = SimpleQueue()
        for key in keys:
            self._untouched.put(key)
        self._to_digest: list[SimpleQueue[Result]] = [SimpleQueue() for _ in workers]
        self._finished = [threading.Event() for _ in workers]

    def work(self, number: int) -> None:
        """Be a thread of one of the workers."""
        other = 1 - number
        try:
            while self._compares_one(number):
                while not self._to_digest[number].empty():
                    self._digest(number)
            self._finished[number].set()
            while not (self._finished[other].is_set() and self._to_digest[number].empty()):
                self._digest(number)
        except BaseException:
            self.done.put(None)
            raise

    def _compares_one(self, number: int) -> bool:
        try:
            key = self._untouched.get_nowait()
        except Empty:
            return False
        result = self._workers[number].ask(self._tasks[0], key)
        (self._to_digest[1 - number] if result.digests else self.done).put(result)
        return True

    def _digest(self, number: int) -> None:
        with contextlib.suppress(Empty):
            compared = self._to_digest[number].get(timeout=0.2)
            again = self._workers[number].ask(self._tasks[1], compared.key, compared.choice)
            self.done.put(joined(compared, again))


def joined(compared: Result, digested: Result) -> Result:
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
