"""Watch a training from inside of a program."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from gradir.claims import expect_feature, find_claimant
from gradir.errors import CaptureError, warn
from gradir.explanations.verdict import place_text
from gradir.protocols import Watching
from gradir.watches.model import Collector, Finding, Modules, Step, Watch

_TAG: Final = "gradir"


class Watcher:
    """Watches the training that runs while it is entered; see `gradir.watch`."""

    def __init__(self, model: object = None, optimizers: Iterable[object] = (), frontend: str | None = None) -> None:
        self._model, self._optimizers = model, tuple(optimizers)
        self._frontend = expect_feature(find_claimant(model, *self._optimizers, chosen=frontend), "watching")
        self._collected = Collector()
        self._writers: list[Any] = []
        self._entered: AbstractContextManager[Watching] | None = None
        self._seeing: Watching | None = None

    def __enter__(self) -> Watcher:
        if self._entered is not None:
            raise CaptureError("this training is already watched")
        self._entered = self._frontend.watching(self._add, model=self._model, optimizers=self._optimizers)
        self._seeing = self._entered.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered, self._entered = self._entered, None
        if entered is None or self._seeing is None:
            return
        if error is not None:
            found = self._seeing.explain_failure(error)
            for cause in () if found is None else found.causes:
                self._add(Finding(self._seeing.steps + 1, cause))
            self._collected.ended = f"it raised {type(error).__name__}"
        self._seeing.finish()
        entered.__exit__(kind, error, trace)

    def report(self) -> Watch:
        """Return the steps and the findings so far."""
        return self._collected.watch()

    def log_to(self, writer: Any) -> None:
        """Write the values and findings of further steps to TensorBoard, with a writer such as ``SummaryWriter``.

        The writer must have ``add_scalar(tag, value, step)`` and ``add_text(tag, text, step)``.
        """
        self._writers.append(writer)

    def _add(self, record: Modules | Step | Finding) -> None:
        self._collected.add(record)
        if isinstance(record, Finding):
            source = record.cause.source
            where = "" if source is None else f" ({place_text(source)})"
            if record.cause.level == "error":
                warn(f"{record.text}{where}")
            for writer in self._writers:
                writer.add_text(f"{_TAG}/finding", f"{record.text}{where}", record.step)
        elif isinstance(record, Step):
            scalars: list[tuple[str, Any]]
            scalars = [("loss", record.loss), ("gradient", record.norm), ("memory", record.memory)]
            # A step has no norms until the modules are known.
            for tag, values in (("gradient", record.norms), ("update", record.ratios)):
                paths = zip(self._collected.modules, values, strict=False)
                scalars += [(f"{tag}/{path or 'model'}", value) for path, value in paths]
            for writer in self._writers:
                for tag, value in scalars:
                    if value is not None:
                        writer.add_scalar(f"{_TAG}/{tag}", float(value), record.number)
