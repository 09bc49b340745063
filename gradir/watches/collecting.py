"""Make a watch of its records as they come."""

from __future__ import annotations

from typing import Final

from gradir.watches.model import Finding, Modules, Step, Watch

# Of more steps some are left out, so that a long training takes no more memory than a short one.
_MOST: Final = 2_000


class Collected:
    """Collects records; of many steps it keeps those at equal distances, and the last."""

    def __init__(self) -> None:
        self.ended = ""
        self.findings: list[Finding] = []
        self._modules: tuple[str, ...] = ()
        self._steps: list[Step] = []
        self._last: Step | None = None
        self._every, self._count = 1, 0

    def add(self, record: Modules | Step | Finding) -> None:
        """Add a record."""
        if isinstance(record, Modules):
            self._modules = record.paths
        elif isinstance(record, Finding):
            self.findings.append(record)
        else:
            self._count += 1
            self._last = record
            if (self._count - 1) % self._every == 0:
                self._steps.append(record)
            if len(self._steps) > _MOST:
                self._steps = self._steps[::2]
                self._every *= 2

    def watch(self) -> Watch:
        """Return the watch of the records so far."""
        steps = [*self._steps]
        if self._last is not None and steps[-1] is not self._last:
            steps.append(self._last)
        return Watch(self._modules, tuple(steps), tuple(self.findings), self._count, self.ended)
