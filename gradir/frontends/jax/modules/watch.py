"""What notes modules while it is entered around a trace, whatever library they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import count
from typing import Any, Final

import jax

from gradir.frontends.texts import plain_text

__all__ = ["ModuleWatch", "traced_anew"]

_MARK: Final = "gradir module "
"""What the scope of a module begins with. The number of its path follows: a path may hold what a scope may not."""

_TRACES: Final = count()


class ModuleWatch(ExitStack):
    """Notes the class of each module and how often it was called, by its path, while it is entered.

    With ``arrays_only`` Python's own numbers among the leaves are a part of the program.
    """

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, str] = {}
        self.calls: dict[str, int] = {}
        self.arrays_only = False
        self.running: list[str] = []
        self._paths: dict[str, int] = {}
        self._later: list[Callable[[], AbstractContextManager[object]]] = []
        self._given: list[Callable[[Sequence[tuple[str, Any]]], None]] = []

    def while_traced(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        """Have a context entered with the watch, and left with it."""
        self._later.append(context)

    def when_given(self, look: Callable[[Sequence[tuple[str, Any]]], None]) -> None:
        """Have the traced arguments looked at before the function runs, each with the path of what is in it."""
        self._given.append(look)

    def given(self, arguments: Sequence[tuple[str, Any]]) -> None:
        """The function is called with these arguments."""
        for look in self._given:
            look(arguments)

    def __enter__(self) -> ModuleWatch:
        super().__enter__()
        try:
            if self._later:
                self.enter_context(traced_anew())
            for context in self._later:
                self.enter_context(context())
        except BaseException:
            self.close()
            raise
        return self

    def note_class(self, path: str, kind: type) -> None:
        """A module of a class is at a path."""
        self.classes.setdefault(path, plain_text(kind.__name__))

    def note(self, path: str, kind: type) -> None:
        """A module of a class was called."""
        self.note_class(path, kind)
        self.calls[path] = self.calls.get(path, 0) + 1

    @contextmanager
    def inside(self, path: str) -> Iterator[None]:
        """A module runs: what is traced is in its scope, whatever scopes are around it."""
        number = self._paths.setdefault(path, len(self._paths))
        self.running.append(path)
        try:
            with jax.named_scope(f"{_MARK}{number}"):
                yield
        finally:
            self.running.pop()

    def module_path(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The components of a module's path, from the scopes around an equation.

        Scopes that a program names inside a module stand below it, but for those of equinox, which gives its own layers
        a scope each, of their class.
        """
        marks = [place for place, part in enumerate(parts) if part.startswith(_MARK)]
        path = [*self._paths][int(parts[marks[-1]].removeprefix(_MARK))] if marks else ""
        inside = parts[marks[-1] + 1 :] if marks else parts
        below = (part for part in inside if not part.startswith("eqx.nn."))
        return (*(path.split(".") if path else ()), *below)


def traced_anew() -> AbstractContextManager[object]:
    """Have JAX trace what it has traced before, in which no module would be noted, and keep none of it for others."""
    try:
        from jax.experimental.xla_metadata import set_xla_metadata
    except ImportError:
        return nullcontext()
    told: Any = set_xla_metadata
    context: AbstractContextManager[object] = told(gradir_trace=str(next(_TRACES)))
    return context
