"""What notes modules while it is entered around a trace, whatever library they are of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from typing import Any, NamedTuple

import jax

from gradir.frontends.texts import plain_text

__all__ = ["ModuleWatch", "WrappedCalls", "subclasses"]


class ModuleWatch(ExitStack):
    """Notes the class of each module and how often it was called, by its path, while it is entered.

    With ``arrays_only`` Python's own numbers among the leaves are a part of the program.
    """

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, str] = {}
        self.calls: dict[str, int] = {}
        self.root = ""
        self.arrays_only = False
        self._later: list[Callable[[], AbstractContextManager[object]]] = []

    def while_traced(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        """Have a context entered with the watch, and left with it."""
        self._later.append(context)

    def __enter__(self) -> ModuleWatch:
        super().__enter__()
        for context in self._later:
            self.enter_context(context())
        return self

    def note(self, path: str, kind: type) -> None:
        """A module of a class was called."""
        self.classes.setdefault(path, plain_text(kind.__name__))
        self.calls[path] = self.calls.get(path, 0) + 1

    def module_path(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The components of a module's path, from the scopes around an equation.

        Equinox gives its own layers a scope each, of their class, beside the one of their place. A module of linen that
        is handed to another runs in the scopes of that one, and has its own path at the end of them.
        """
        named = tuple(part for part in parts if not part.startswith("eqx.nn."))
        named = named[1:] if self.root and named[:1] == (self.root,) else named
        for end in range(len(named), 0, -1):
            for start in range(end):
                if ".".join(named[start:end]) in self.classes:
                    return named[start:]
        return named


class _Running(NamedTuple):
    paths: Mapping[int, str]
    path: str
    module: object


class WrappedCalls(ExitStack):
    """While it is entered, every call of a module stands in a scope: its path below the module that was called first.

    ``paths_of`` gives the paths of the modules in one by identity, and ``path_of`` that of one which is in none of
    them, such as a copy. The thread that enters it is the one whose calls are noted.
    """

    def __init__(
        self,
        watch: ModuleWatch,
        classes: Iterable[type],
        paths_of: Callable[[Any], Mapping[int, str]],
        path_of: Callable[[Any], str | None] = lambda module: None,  # noqa: ARG005
    ) -> None:
        super().__init__()
        self._watch = watch
        self._classes = [kind for kind in dict.fromkeys(classes) if "__call__" in vars(kind)]
        self._paths_of = paths_of
        self._path_of = path_of
        self._running: list[_Running] = []
        self._thread = 0

    def __enter__(self) -> WrappedCalls:
        super().__enter__()
        self._thread = threading.get_ident()
        for kind in self._classes:
            call = vars(kind)["__call__"]
            # A class may forbid setting what its instances may not change.
            self.callback(type.__setattr__, kind, "__call__", call)
            type.__setattr__(kind, "__call__", self._wrapped(call))
        return self

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def scoped(module: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread or (self._running and self._running[-1].module is module):
                return call(module, *args, **kwargs)
            with self._scope_of(module):
                return call(module, *args, **kwargs)

        return scoped

    def _scope_of(self, module: Any) -> AbstractContextManager[object]:
        outer = self._running[-1] if self._running else None
        paths = self._paths_of(module) if outer is None else outer.paths
        path = paths.get(id(module))
        if path is None:
            path = self._path_of(module)
        if path is None:
            return nullcontext()
        self._watch.note(path, type(module))
        above = f"{outer.path}." if outer is not None and outer.path else ""
        relative = path.removeprefix(above)
        scope = ExitStack()
        self._running.append(_Running(paths, path, module))
        scope.callback(self._running.pop)
        if relative:
            scope.enter_context(jax.named_scope(relative))
        return scope


def subclasses(kind: type) -> Iterator[type]:
    """A class and all that are derived from it, some of them perhaps twice."""
    left = [kind]
    while left:
        found = left.pop()
        yield found
        left += type.__subclasses__(found)
