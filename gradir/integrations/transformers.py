"""Watch a training of the ``Trainer`` of transformers.

trainer = Trainer(..., callbacks=[WatchCallback()])
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

import gradir
from gradir.watcher import Watcher


class WatchCallback(TrainerCallback):
    """Watches a training and prints the verdict at its end; ``report`` has the findings.

    With ``stop`` a finding of level error ends the training after its step.
    """

    def __init__(self, *, stop: bool = False) -> None:
        self.report: gradir.Watch | None = None
        self._stop = stop
        self._watcher: Watcher | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Begin to watch."""
        # The library does not report the end of an earlier training that raised.
        self._end()
        optimizer = kwargs.get("optimizer")
        # accelerate wraps the optimizer that steps.
        self._watcher = gradir.watch(kwargs.get("model"), getattr(optimizer, "optimizer", optimizer)).__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        """End the training if there is an error and ``stop`` is set."""
        if self._stop and self._watcher is not None and self._watcher.report():
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Print the verdict."""
        self._end()

    def _end(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.__exit__(None, None, None)
            self.report = watcher.report()
            print(self.report)
