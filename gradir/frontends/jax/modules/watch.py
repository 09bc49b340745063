"""What notes modules and their calls while it is entered around a trace, whatever library they are of."""

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
from gradir.frontends.walks import below, paths_above, reached

# The number of a path follows, since a path may contain characters that a scope may not.
_MARK: Final = "gradir module "
_TRACES: Final = count()


class ModuleWatch(ExitStack):
    """Notes the class and the calls of each module by path; with ``arrays_only`` only arrays are leaves."""

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
        """Return the components of a module's path, from the scopes around an equation."""
        marks = [place for place, part in enumerate(parts) if part.startswith(_MARK)]
        path = [*self._paths][int(parts[marks[-1]].removeprefix(_MARK))] if marks else ""
        # Scopes that a program names inside a module belong below it.
        inside = parts[marks[-1] + 1 :] if marks else parts
        # equinox names its own layers by class, which adds nothing.
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


ModulesOf = Callable[[Any], Iterable[tuple[str, Any]]]
"""The modules in a value, each with its path: those in modules too, and the value itself if it is one."""


class _Known(NamedTuple):
    """A module, which is kept so that no other comes to have its identity, and its path."""

    module: object
    path: str


class _Running(NamedTuple):
    module: object
    known: Mapping[int, _Known]


class _Wrapped(NamedTuple):
    """The call of a class before and now, and how many that are entered need it."""

    before: Callable[..., Any]
    now: Callable[..., Any]
    needed: int


class _Entered(threading.local):
    def __init__(self) -> None:
        self.calls: list[WrappedCalls] = []


_LOCK: Final = threading.Lock()
_CLASSES: Final[dict[type, _Wrapped]] = {}
_ENTERED: Final = _Entered()


class WrappedCalls(ExitStack):
    """Puts every call of a module in this thread into the scope of the module's path."""

    def __init__(
        self,
        watch: ModuleWatch,
        base: type,
        modules_of: ModulesOf,
        *,
        is_noted: Callable[[type], bool] = lambda kind: True,  # noqa: ARG005
        path_of: Callable[[Any], str | None] = lambda module: None,  # noqa: ARG005
        found: Callable[[Any, str], None] = lambda module, path: None,  # noqa: ARG005
    ) -> None:
        """``path_of`` finds the path on a copy of a module, and ``found`` gets every module with its path."""
        super().__init__()
        self._watch, self._base, self._is_noted = watch, base, is_noted
        self._modules_of, self._path_of, self._found = modules_of, path_of, found
        self._given: dict[int, _Known] = {}
        self._classes: dict[str, type] = {}
        self._running: list[_Running] = []

    def give(self, arguments: Sequence[tuple[str, Any]]) -> None:
        """The function that is traced has these arguments, each with the path of what is in it."""
        for path, value in arguments:
            for key, known in self._known_in(value, path).items():
                self._given.setdefault(key, known)
                self._classes.setdefault(known.path, type(known.module))

    def __enter__(self) -> WrappedCalls:
        super().__enter__()
        with _LOCK:
            for kind in filter(self._is_noted, reached([self._base], type.__subclasses__)):
                before = vars(kind).get("__call__")
                if before is None:
                    continue
                if kind not in _CLASSES:
                    _CLASSES[kind] = _Wrapped(before, _scoped(before), 0)
                    # A class may forbid setting what its instances may not change.
                    type.__setattr__(kind, "__call__", _CLASSES[kind].now)
                _CLASSES[kind] = _CLASSES[kind]._replace(needed=_CLASSES[kind].needed + 1)
                self.callback(_unwrap, kind)
        _ENTERED.calls.append(self)
        self.callback(_ENTERED.calls.remove, self)
        return self

    def is_for(self, module: object) -> bool:
        """Return whether a module is of the library whose calls are noted."""
        return isinstance(module, self._base)

    def scope_of(self, module: Any) -> AbstractContextManager[object]:
        """Return the context in which a call of a module runs."""
        if self._running and self._running[-1].module is module:
            return nullcontext()
        known = self._running[-1].known if self._running else self._given
        found = self._given.get(id(module)) or known.get(id(module))
        path = self._path_of(module) if found is None else found.path
        # It is the root, unless another module is known to be at the top.
        if path is None and not self._running and self._classes.get("", type(module)) is type(module):
            known, path = self._known_in(module, ""), ""
        if path is None:
            return nullcontext()
        self._watch.note(path, type(module))
        # One above may run by another of its methods.
        for above in paths_above(path):
            if above != path and above in self._classes:
                self._watch.note_class(above, self._classes[above])
        scope = ExitStack()
        self._running.append(_Running(module, known))
        scope.callback(self._running.pop)
        scope.enter_context(self._watch.inside(path))
        return scope

    def _known_in(self, value: Any, path: str) -> dict[int, _Known]:
        known = {}
        for inside, module in self._modules_of(value):
            known[id(module)] = _Known(module, below(path, inside))
            self._found(module, known[id(module)].path)
        return known


def text_of(keys: Any) -> str:
    """Return a path in a pytree, with dots."""
    text: str = tree_util.keystr(keys, simple=True, separator=".")
    return text


def _unwrap(kind: type) -> None:
    with _LOCK:
        known = _CLASSES[kind]
        if known.needed > 1:
            _CLASSES[kind] = known._replace(needed=known.needed - 1)
            return
        del _CLASSES[kind]
        # The program may have put something of its own in its place.
        if vars(kind).get("__call__") is known.now:
            type.__setattr__(kind, "__call__", known.before)


def _scoped(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def scoped(module: Any, *args: Any, **kwargs: Any) -> Any:
        noting = next((each for each in reversed(_ENTERED.calls) if each.is_for(module)), None)
        with noting.scope_of(module) if noting is not None else nullcontext():
            return call(module, *args, **kwargs)

    return scoped
