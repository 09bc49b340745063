"""Watch a training of the ``Trainer`` of Lightning.

trainer = Trainer(..., callbacks=[WatchCallback()])
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

import gradir
from gradir.watcher import Watcher


class WatchCallback(Callback):
    """Watches a training and prints the verdict at its end; ``report`` has the findings.

    With ``stop`` a finding of level error ends the training after its batch.
    """

    def __init__(self, *, stop: bool = False) -> None:
        self.report: gradir.Watch | None = None
        self._stop = stop
        self._watcher: Watcher | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch."""
        self._watcher = gradir.watch(pl_module, trainer.optimizers).__enter__()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End the training if there is an error and ``stop`` is set."""
        if self._stop and self._watcher is not None and self._watcher.report():
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Print the verdict."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Explain the error, and print the verdict."""
        self._end(exception)

    def _end(self, error: BaseException | None = None) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.__exit__(None if error is None else type(error), error, None)
            self.report = watcher.report()
            print(self.report)
