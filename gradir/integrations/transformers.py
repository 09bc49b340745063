"""Watch a training of the ``Trainer`` of transformers.

trainer = Trainer(..., callbacks=[WatchCallback()])
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from gradir.integrations import TrainingWatch


class WatchCallback(TrainingWatch, TrainerCallback):
    """Watches a training of transformers; see `TrainingWatch`."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Begin to watch."""
        optimizer = kwargs.get("optimizer")
        # accelerate wraps the optimizer that steps.
        self._begin(kwargs.get("model"), getattr(optimizer, "optimizer", optimizer))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        """End the training if there is an error and ``stop`` is set."""
        if self._must_stop():
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Print the verdict."""
        self._end()
