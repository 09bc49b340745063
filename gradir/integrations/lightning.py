"""Watch a training of the ``Trainer`` of Lightning.

trainer = Trainer(..., callbacks=[WatchCallback()])
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from gradir.integrations import TrainingWatch


class WatchCallback(TrainingWatch, Callback):
    """Watches a training of Lightning; see `TrainingWatch`."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch."""
        self._begin(pl_module, trainer.optimizers)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End the training if there is an error and ``stop`` is set."""
        if self._must_stop():
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Print the verdict."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Explain the error, and print the verdict."""
        self._end(exception)
