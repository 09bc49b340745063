"""Callbacks with which training libraries watch a training."""

from __future__ import annotations

import gradir
from gradir.watcher import Watcher


class TrainingWatch:
    """Watches a training and prints the verdict at its end; ``report`` has the findings.

    With ``stop`` a finding of level error ends the training after its step.
    """

    def __init__(self, *, stop: bool = False) -> None:
        self.report: gradir.Watch | None = None
        self._stop = stop
        self._watcher: Watcher | None = None

    def _begin(self, model: object, optimizer: object) -> None:
        # A library may not report the end of an earlier training that raised.
        self._end()
        self._watcher = gradir.watch(model, optimizer).__enter__()

    def _must_stop(self) -> bool:
        return self._stop and self._watcher is not None and bool(self._watcher.report())

    def _end(self, error: BaseException | None = None) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.__exit__(None if error is None else type(error), error, None)
            self.report = watcher.report()
            print(self.report)
