"""Record modules and their calls during a trace, for all libraries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from itertools import count
from typing import Any, Final, NamedTuple

import jax
from jax import tree_util

from gradir.frontends.texts import plain_text
from gradir.frontends.walks import find_reachable, join_paths, paths_above

# The number of a path follows, since the name of a scope cannot contain every character of a path.
_MARK: Final = "gradir module "
_TRACES: Final = count()
Arguments = Sequence[tuple[str, Any]]
"""Arguments of a function, each with the path that the names of its leaves begin with."""


class ModuleWatch(ExitStack):
    """Records the class and the calls of each module by path; with ``arrays_only`` only arrays are leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, str] = {}
        self.calls: dict[str, int] = {}
        self.arrays_only = False
        self.running: list[str] = []
        self._paths: dict[str, int] = {}
        self._contexts: list[Callable[[], AbstractContextManager[object]]] = []
        self._listeners: list[Callable[[Arguments], None]] = []

    def add(
        self, context: Callable[[], AbstractContextManager[object]], listener: Callable[[Arguments], None] | None = None
    ) -> None:
        """Enter a context with the watch, and pass the traced arguments to ``listener`` before the function runs."""
        self._contexts.append(context)
        self._listeners += [listener] if listener is not None else []

    def note_arguments(self, arguments: Arguments) -> None:
        """Record the arguments of the function, which is about to run."""
        for listener in self._listeners:
            listener(arguments)

    def __enter__(self) -> ModuleWatch:
        super().__enter__()
        try:
            if self._contexts:
                self.enter_context(force_retrace())
            for context in self._contexts:
                self.enter_context(context())
        except BaseException:
            self.close()
            raise
        return self

    def note_class(self, path: str, kind: type) -> None:
        """Record the class of the module at a path."""
        self.classes.setdefault(path, plain_text(kind.__name__))

    def note(self, path: str, kind: type) -> None:
        """Record a call of the module at a path."""
        self.note_class(path, kind)
        self.calls[path] = self.calls.get(path, 0) + 1

    @contextmanager
    def inside(self, path: str) -> Iterator[None]:
        """Put traced operations into the scope of the module at a path, regardless of enclosing scopes."""
        number = self._paths.setdefault(path, len(self._paths))
        self.running.append(path)
        try:
            with jax.named_scope(f"{_MARK}{number}"):
                yield
        finally:
            self.running.pop()

    def module_path(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the components of a module's path, from the scopes around an equation."""
        marks = [place for place, part in enumerate(parts) if part.startswith(_MARK)]
        path = [*self._paths][int(parts[marks[-1]].removeprefix(_MARK))] if marks else ""
        # Scopes that a program names inside a module belong below it.
        inside = parts[marks[-1] + 1 :] if marks else parts
        # equinox names its own layers by class, which adds nothing.
        own = (part for part in inside if not part.startswith("eqx.nn."))
        return (*(path.split(".") if path else ()), *own)


def force_retrace() -> AbstractContextManager[object]:
    """Make JAX trace functions again instead of reusing a cached trace without modules, or caching this one."""
    try:
        from jax.experimental.xla_metadata import set_xla_metadata
    except ImportError:
        return nullcontext()
    untyped: Any = set_xla_metadata
    context: AbstractContextManager[object] = untyped(gradir_trace=str(next(_TRACES)))
    return context


ModulesOf = Callable[[Any], Iterable[tuple[str, Any]]]
"""Return all modules in a value, each with its path: nested modules too, and the value itself if it is a module."""


class _Known(NamedTuple):
    """A module with its path. The reference keeps the module alive, so no other gets its id()."""

    module: object
    path: str


class _Running(NamedTuple):
    module: object
    known: Mapping[int, _Known]


class _Wrapped(NamedTuple):
    """The original and the wrapped ``__call__`` of a class, and how many `WrappedCalls` use it."""

    original: Callable[..., Any]
    wrapped: Callable[..., Any]
    users: int


class _Active(threading.local):
    def __init__(self) -> None:
        self.calls: list[WrappedCalls] = []


_LOCK: Final = threading.Lock()
_CLASSES: Final[dict[type, _Wrapped]] = {}
_ACTIVE: Final = _Active()


class WrappedCalls(ExitStack):
    """Puts every call of a module in this thread into the scope of the module's path."""

    def __init__(
        self,
        watch: ModuleWatch,
        base: type,
        modules_of: ModulesOf,
        *,
        has_scope: Callable[[type], bool] = lambda kind: True,  # noqa: ARG005
        path_of: Callable[[Any], str | None] = lambda module: None,  # noqa: ARG005
        mark: Callable[[Any, str], None] = lambda module, path: None,  # noqa: ARG005
    ) -> None:
        """Watch the classes derived from ``base``.

        ``has_scope`` selects classes, ``path_of`` reads the path of a copied module, and ``mark`` gets every module
        with its path.
        """
        super().__init__()
        self._watch, self.base, self._has_scope = watch, base, has_scope
        self._modules_of, self._path_of, self._mark = modules_of, path_of, mark
        self._arguments: dict[int, _Known] = {}
        self._classes: dict[str, type] = {}
        self._running: list[_Running] = []

    def note_arguments(self, arguments: Arguments) -> None:
        """Record the modules in the arguments of the traced function."""
        for path, value in arguments:
            for key, known in self._find_modules(value, path).items():
                self._arguments.setdefault(key, known)
                self._classes.setdefault(known.path, type(known.module))

    def __enter__(self) -> WrappedCalls:
        super().__enter__()
        with _LOCK:
            for kind in filter(self._has_scope, find_reachable([self.base], type.__subclasses__)):
                original = vars(kind).get("__call__")
                if original is None:
                    continue
                if kind not in _CLASSES:
                    _CLASSES[kind] = _Wrapped(original, _wrap_call(original), 0)
                    # A metaclass may refuse this assignment.
                    type.__setattr__(kind, "__call__", _CLASSES[kind].wrapped)
                _CLASSES[kind] = _CLASSES[kind]._replace(users=_CLASSES[kind].users + 1)
                self.callback(_restore_call, kind)
        _ACTIVE.calls.append(self)
        self.callback(_ACTIVE.calls.remove, self)
        return self

    def scope_of(self, module: Any) -> AbstractContextManager[object]:
        """Return the context for a call of a module."""
        if self._running and self._running[-1].module is module:
            return nullcontext()
        known = self._running[-1].known if self._running else self._arguments
        found = self._arguments.get(id(module)) or known.get(id(module))
        path = self._path_of(module) if found is None else found.path
        # It is the root, unless another module is at the top.
        if path is None and not self._running and self._classes.get("", type(module)) is type(module):
            known, path = self._find_modules(module, ""), ""
        if path is None:
            return nullcontext()
        self._watch.note(path, type(module))
        # An enclosing module may run another method than ``__call__``.
        for above in paths_above(path):
            if above != path and above in self._classes:
                self._watch.note_class(above, self._classes[above])
        scope = ExitStack()
        self._running.append(_Running(module, known))
        scope.callback(self._running.pop)
        scope.enter_context(self._watch.inside(path))
        return scope

    def _find_modules(self, value: Any, path: str) -> dict[int, _Known]:
        known = {}
        for inside, module in self._modules_of(value):
            known[id(module)] = _Known(module, join_paths(path, inside))
            self._mark(module, known[id(module)].path)
        return known


def keys_text(keys: Any) -> str:
    """Return a path in a pytree, with dots."""
    return str(tree_util.keystr(keys, simple=True, separator="."))


def _restore_call(kind: type) -> None:
    with _LOCK:
        known = _CLASSES[kind]
        if known.users > 1:
            _CLASSES[kind] = known._replace(users=known.users - 1)
            return
        del _CLASSES[kind]
        # The program may have replaced the call meanwhile.
        if vars(kind).get("__call__") is known.wrapped:
            type.__setattr__(kind, "__call__", known.original)


def _wrap_call(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def wrapper(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        active = next((each for each in reversed(_ACTIVE.calls) if isinstance(module, each.base)), None)
        with active.scope_of(module) if active is not None else nullcontext():
            return call(module, *args, **kwargs)

    return wrapper
