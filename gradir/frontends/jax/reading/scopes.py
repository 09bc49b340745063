"""The module of each equation, and the table of modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradir.frontends.jax.modules.watch import ModuleWatch
from gradir.frontends.jax.reading.jaxprs import elements_of
from gradir.frontends.jax.reading.values import Context, Step, Value
from gradir.frontends.texts import plain_text
from gradir.ir import Scope
from gradir.ir.model import bounded

__all__ = ["Scopes"]


class Scopes:
    """Gives equations their scope, and knows which there are and how often each runs."""

    def __init__(self, modules: ModuleWatch, owned: Iterable[Value], contexts: Iterable[Context]) -> None:
        """``owned`` are the differentiated leaves, ``contexts`` those of all equations of the graph."""
        self._modules = modules
        self._owned = list(owned)
        self._rounds: dict[str, int] = {}
        self._paths: dict[tuple[Step, ...], str] = {}
        for context in contexts:
            if context.steps not in self._paths:
                self._paths[context.steps] = self._path(_shown(context.steps))
        self._known: dict[str, None] = {}
        for path in (*modules.classes, *self._paths.values()):
            self._known.update(dict.fromkeys(above for above in _upwards(path) if above))
        for steps in self._paths:
            self._note_rounds(steps)

    def of(self, context: Context) -> str:
        """The path of an equation's scope."""
        return self._paths[context.steps]

    def path_of(self, context: Context) -> str:
        """The path that an equation's scope would have, which need not be in the graph."""
        return self._paths.get(context.steps) or self._path(_shown(context.steps))

    def owner(self, name: str) -> str:
        """The module that a leaf of this name is of, as far as it ran."""
        path = name.rpartition(".")[0]
        return path if path in self._known else ""

    def _note_rounds(self, steps: tuple[Step, ...]) -> None:
        """Loops are told of what is named first in them and is a module, or else of their own body."""
        for number, step in enumerate(steps):
            if step.rounds is None:
                continue
            inside = [place for place, later in enumerate(steps) if place > number and not later.is_body]
            paths = (self._path(_shown(steps[: place + 1])) for place in (*inside, number))
            found = next((path for path in paths if path in self._known), "")
            self._rounds.setdefault(found, step.rounds)

    def _path(self, parts: Sequence[str]) -> str:
        return ".".join(self._modules.module_path(tuple(parts)))

    def table(self) -> list[Scope]:
        """The modules from the top, each with the elements of its leaves."""
        own: dict[str, int] = {}
        total: dict[str, int] = {}
        for value in self._owned:
            path = value.name.rpartition(".")[0]
            elements = elements_of(value.aval) or 0
            own[path] = own.get(path, 0) + elements
            for above in _upwards(path):
                total[above] = total.get(above, 0) + elements
        paths: dict[str, None] = {"": None}
        for path in (*self._known, *own):
            paths.update(dict.fromkeys(_upwards(path)))
        return [
            Scope(
                plain_text(path),
                plain_text(self._modules.classes.get(path, "")),
                calls=self._modules.calls.get(path, 0),
                own=bounded(own.get(path, 0)),
                total=bounded(total.get(path, 0)),
                trainable=bounded(total.get(path, 0)),
                rounds=self._rounds.get(path, 0),
            )
            for path in sorted(paths, key=_by_number)
        ]


def _shown(steps: Sequence[Step]) -> list[str]:
    """What is named, and behind it the bodies that nothing named stands in."""
    last = max((number for number, step in enumerate(steps) if not step.is_body), default=-1)
    return [step.name for number, step in enumerate(steps) if not step.is_body or number > last]


def _upwards(path: str) -> list[str]:
    found = [path]
    while path:
        path = path.rpartition(".")[0]
        found.append(path)
    return found


def _by_number(path: str) -> list[tuple[int, int, str]]:
    """What sorts paths so that layer 2 stands before layer 10."""
    parts = path.split(".") if path else []
    return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts]
