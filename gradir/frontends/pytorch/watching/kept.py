"""Graphs of earlier steps that are still alive, and who keeps them."""

from __future__ import annotations

import ast
import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice, pairwise
from statistics import median
from types import FrameType, ModuleType
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from gradir.explanations.model import Cause, Excerpt, Level
from gradir.frontends.paths import ShownPaths, is_installed
from gradir.frontends.pytorch.private import (
    ACCUMULATOR,
    PACKED,
    fields_of,
    next_sequence_number,
    own_modules,
    sequence_number,
)
from gradir.frontends.pytorch.reading.saved import is_stale, saved_tensor
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.sources import is_commands, is_internal
from gradir.frontends.pytorch.watching.loops import parsed, variables_of
from gradir.frontends.texts import plain_text
from gradir.ir import Source
from gradir.ir.text import counted

__all__ = ["Kept", "Variables"]

_FIRST_LOOK: Final = 4
_ENOUGH: Final = 3
"""So many looks in which the number of functions grew by as much a step are proof."""

_LEAST_STEPS: Final = 4
_ALIKE: Final = 0.5
_DEEPEST: Final = 4
_MANY: Final = 4
"""So many times what a step makes is more than one step's."""

_REMEMBERED: Final = 1_000
"""So many steps of a long training are enough to know how much one makes."""

_MOST_VALUES: Final = 100_000
_MOST_FUNCTIONS: Final = 1_000


class _Look(NamedTuple):
    step: int
    functions: int


class Kept:
    """Counts at some steps the functions of graphs that are alive, which takes as long as many objects are alive."""

    def __init__(self) -> None:
        self._looks: list[_Look] = []
        self._next = _FIRST_LOOK
        self._began: deque[int] = deque(maxlen=_REMEMBERED)
        self.waiting: set[str] = set()
        """Who, of the causes given last, keeps graphs that no backward has gone through: one may still come."""

    def note(self, step: int) -> int | None:
        """Count the functions alive after a step, if it is one at which they are counted."""
        self._began.append(next_sequence_number())
        if step < self._next:
            return None
        self._next = step * 2
        return self.look(step)

    def look(self, step: int) -> int:
        """Count them now."""
        functions = len(_functions_behind(_tensors_with_graph()))
        if not self._looks or self._looks[-1].step < step:
            self._looks.append(_Look(step, functions))
        return functions

    @property
    def grows(self) -> bool:
        """Whether more are alive after each step, in all looks alike."""
        looks = self._looks[-_ENOUGH:]
        if len(looks) < _ENOUGH or looks[-1].step - looks[0].step < _LEAST_STEPS:
            return False
        rates = [(after.functions - before.functions) / (after.step - before.step) for before, after in pairwise(looks)]
        return min(rates) >= 1 and min(rates) >= _ALIKE * max(rates)

    @property
    def has_fallen(self) -> bool:
        """Whether the last look found fewer than the one before."""
        return len(self._looks) > 1 and self._looks[-1].functions < self._looks[-2].functions

    @property
    def is_window(self) -> bool:
        """Whether the last look found more than the one before, or as much, but no longer so many more a step."""
        return len(self._looks) > 1 and not self.grows and not self.has_fallen

    def causes(self, variables: Variables, frame: FrameType | None) -> Iterator[Cause]:
        """Who keeps graphs that are older than the last step."""
        before = self._began[-2] if len(self._began) > 1 else 0
        alive = _tensors_with_graph()
        oldest = _oldest(alive)
        old = {id(tensor): tensor for tensor in alive if oldest.get(tensor.grad_fn, before) < before}
        holders = sorted(_holders(old, variables, frame), key=lambda holder: -len(holder.tensors))
        # What is only computed of what is carried over keeps nothing by itself, and neither does the best of all steps.
        kept = [holder for holder in holders if _is_kept(holder)]
        least = _MANY * median(after - before for before, after in pairwise([0, *self._began]))
        others = (holder for holder in holders if len(_functions_behind(holder.tensors)) > least)
        self.waiting = set()
        lines: set[tuple[Source | None, str]] = set()
        for holder in kept or others:
            cause = _told(holder)
            if cause.source is None or (cause.source, cause.kind) not in lines:
                lines.add((cause.source, cause.kind))
                self.waiting |= {cause.op} if _is_waiting(holder.tensors) else set()
                yield cause


class _Holder(NamedTuple):
    """A variable that keeps tensors of earlier steps: its path, its file, the tensors, and what keeps them.

    ``most`` is how many tensors it takes at most, if that is limited.
    """

    path: str
    file: str
    tensors: list[torch.Tensor]
    kind: str
    most: int | None = None

    @property
    def is_container(self) -> bool:
        return len(self.tensors) > 1

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2].partition("[")[0]

    @property
    def key(self) -> str | None:
        """The key of the dict that has the tensors, if it has them by one."""
        return self.path.rpartition("['")[2].removesuffix("']") if self.path.endswith("']") else None


def _told(holder: _Holder) -> Cause:
    kept = len(holder.tensors)
    kind, what = "kept_graphs", f"{holder.kind} `{holder.path}`"
    functions = len(_functions_behind(holder.tensors))
    detail = f"{functions:,} functions of graphs are alive by it"
    is_limited = holder.most is not None or _is_cut(holder)
    if holder.is_container:
        most = f", of at most {holder.most:,}" if holder.most is not None else ""
        detail = f"it has {counted(kept, 'tensor')} of earlier steps{most}, and {detail}"
    else:
        kind, what = "summed_graphs", f"`{holder.path}`"
    source, excerpt, is_carried = _line_of(holder)
    kind = "carried_graph" if is_carried and not holder.is_container else kind
    level: Level = "info" if is_limited and holder.is_container else "error"
    return Cause(kind, level, plain_text(what), source=source, detail=plain_text(detail), excerpt=excerpt)


def _is_waiting(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether a backward may still come: the functions behind tensors have all that they saved, as it was."""
    saved = set()
    for fn in islice(_functions_behind(tensors), _MOST_FUNCTIONS):
        slots = [slot.removeprefix(PACKED) for slot in dir(fn) if slot.startswith(PACKED)]
        if any(is_stale(fn, slot) for slot in slots):
            return False
        if slots:
            saved.add(any(saved_tensor(fn, slot) is not None for slot in slots))
    return saved == {True}


def _tensors_with_graph() -> list[torch.Tensor]:
    """The tensors alive that a graph hangs on, in the order in which Python knows them."""
    kinds: dict[type, bool] = {}
    found = []
    for value in gc.get_objects():
        kind = type(value)
        is_tensor = kinds.get(kind)
        if is_tensor is None:
            is_tensor = kinds[kind] = issubclass(kind, torch.Tensor)
        if is_tensor and value.grad_fn is not None:
            found.append(value)
    return found


def _functions_behind(tensors: Iterable[torch.Tensor]) -> set[GradFn]:
    waiting: list[GradFn] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        for child, _ in waiting.pop().next_functions:
            if child is not None and child not in seen and type(child).__name__ != ACCUMULATOR:
                seen.add(child)
                waiting.append(child)
    return seen


def _oldest(tensors: Iterable[torch.Tensor]) -> dict[GradFn, int]:
    """The smallest sequence number behind each function of some graphs."""
    found: dict[GradFn, int] = {}
    # A function has a larger number than what it takes.
    for fn in sorted(_functions_behind(tensors), key=sequence_number):
        below = (found.get(child) for child, _ in fn.next_functions if child is not None)
        found[fn] = min((number for number in below if number is not None), default=sequence_number(fn))
    return found


def _holders(old: Mapping[int, torch.Tensor], variables: Variables, frame: FrameType | None) -> Iterator[_Holder]:
    """The variables that keep some of these tensors, each tensor by one of them."""
    seen: set[int] = set()
    found: dict[tuple[str, str], _Holder] = {}
    # All at once: what a variable has near, another may have too deep to be gone through.
    waiting = deque((_Within(*variable), 0) for variable in variables(frame))
    for _ in range(_MOST_VALUES):
        if not waiting:
            break
        within, depth = waiting.popleft()
        if id(within.value) in seen:
            continue
        if id(within.value) in old:
            seen.add(id(within.value))
            holder = _Holder(within.path, within.file, [], within.kind, within.most)
            found.setdefault((within.file, within.path), holder).tensors.append(old[id(within.value)])
        elif depth < _DEEPEST and (inside := _inside(within)):
            seen.add(id(within.value))
            waiting += [(each, depth + 1) for each in inside]
    yield from found.values()


class _Within(NamedTuple):
    """A value that a variable has somewhere, and the innermost container that it is in."""

    path: str
    value: object
    file: str
    kind: str = "the variable"
    most: int | None = None


_CONTAINERS: Final[tuple[Any, ...]] = (deque, dict, list, set, tuple)


def _inside(within: _Within) -> list[_Within]:
    """What is in a container or in the attributes of an object or a class of the program's."""
    value, kind = within.value, type(within.value)
    for container in _CONTAINERS:
        if issubclass(kind, container):
            # Its class may go through it in another way.
            most = value.maxlen if isinstance(value, deque) else within.most
            here = within._replace(kind=f"the {kind.__name__}", most=most)
            if isinstance(value, dict):
                items = [*dict.items(value)]
                return [here._replace(value=each, path=_path_to(within.path, key, each)) for key, each in items]
            inside: Iterator[Any] = container.__iter__(value)
            return [here._replace(value=each) for each in inside]
    if kind.__module__ in {"builtins", "torch"} and kind is not type:
        return []
    home = _home_of(value if isinstance(value, type) else kind, within.file)
    if home is None and isinstance(value, type):
        return []
    file = home or within.file
    fields = {**vars(value)} if isinstance(value, type) else {**fields_of(value), **_parts_of(value)}
    return [
        _Within(f"{within.path}.{name}", each, file, "the attribute")
        for name, each in fields.items()
        if not isinstance(each, ModuleType)
    ]


def _path_to(path: str, key: object, value: object) -> str:
    """The path of what a dict has, which is the dict's own unless that is a container of its own with a plain name."""
    is_named = isinstance(value, _CONTAINERS) and type(key) is str and key.isidentifier()
    return f"{path}[{key!r}]" if is_named else path


@lru_cache(maxsize=1024)
def _home_of(kind: type, main: str) -> str | None:
    """The file of the program's that a class is written in, nothing for a class of a library."""
    name = kind.__module__
    file = main if name == "__main__" else getattr(sys.modules.get(name), "__file__", None)
    return file if isinstance(file, str) and not is_installed(file) else None


def _parts_of(value: object) -> Mapping[str, object]:
    """The modules in a module, which are its attributes."""
    return own_modules(value) if isinstance(value, nn.Module) else {}


class Variables:
    """The variables of a program: of its functions that are running, the inner ones first, and of its modules."""

    def __init__(self) -> None:
        self._modules: dict[int, tuple[dict[str, Any], str]] = {}

    def note(self, frame: FrameType | None) -> list[FrameType]:
        """Know the modules of the functions that are running; gives those of the program."""
        own = []
        while frame is not None:
            code = frame.f_code
            if not (is_internal(code) or is_commands(code) or is_installed(code.co_filename)):
                self._modules.setdefault(id(frame.f_globals), (frame.f_globals, code.co_filename))
                own.append(frame)
            frame = frame.f_back
        return own

    def __call__(self, frame: FrameType | None) -> Iterator[tuple[str, object, str]]:
        """Each variable with its file."""
        for own in self.note(frame):
            if own.f_locals is not own.f_globals:
                for name, value in variables_of(own).items():
                    yield name, value, own.f_code.co_filename
        for names, file in self._modules.values():
            for name, value in [*names.items()]:
                if not name.startswith("__"):
                    yield name, value, file


def _line_of(holder: _Holder) -> tuple[Source | None, Excerpt | None, bool]:
    """The line of a file that puts something into a variable, and whether a call makes it of what was there."""
    tree, lines = parsed(holder.file)
    name = holder.name
    found = [(function, node) for function, node in _statements(tree) if _puts_into(node, name)]
    if not found:
        return None, None, False

    def fits(each: tuple[str, ast.stmt]) -> tuple[bool, bool, int]:
        parts = ast.walk(each[1]) if holder.key is not None else ()
        has_key = any(isinstance(part, ast.Constant) and part.value == holder.key for part in parts)
        return has_key, _adds(each[1], name), each[1].lineno

    function, node = max(found, key=fits)
    line = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    source = Source(ShownPaths()(holder.file), node.lineno, function)
    return source, Excerpt(plain_text(line), *_columns(node, line)), _is_call_of(node, name)


def _is_kept(holder: _Holder) -> bool:
    """Whether a variable is made of what it had before, or is a container."""
    name = holder.name
    return holder.is_container or any(
        _puts_into(node, name) and _adds(node, name) for _, node in _statements(parsed(holder.file)[0])
    )


def _is_cut(holder: _Holder) -> bool:
    """Whether the program takes out again some of what it puts into a container, as of a window of steps."""
    return any(_takes_from(node, holder.name) for _, node in _statements(parsed(holder.file)[0]))


def _takes_from(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Delete):
        return any(isinstance(target, ast.Subscript) and _is_named(target, name) for target in node.targets)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        return _is_named(node.value, name) and any(_is_named(target, name) for target in node.targets)
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call)) if isinstance(node, _SIMPLE) else ()
    functions = (each.func for each in calls)
    return any(
        isinstance(each, ast.Attribute) and each.attr in _TAKING and _is_named(each.value, name) for each in functions
    )


def _is_call_of(node: ast.stmt, name: str) -> bool:
    """Whether a statement gives a variable to a call whose result takes its place, as a recurrent cell does."""
    if not isinstance(node, ast.Assign):
        return False
    calls = (each for each in ast.walk(node.value) if isinstance(each, ast.Call))
    return any(_is_named(argument, name) for call in calls for argument in ast.walk(call))


def _columns(node: ast.stmt, line: str) -> tuple[int, int]:
    end = node.end_col_offset if node.end_lineno == node.lineno and node.end_col_offset else len(line.encode())
    data = line.encode()
    return len(data[: node.col_offset].decode(errors="replace")), len(data[:end].decode(errors="replace"))


def _statements(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The statements of a file with the function that each is in."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        function, node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield function, node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}" if function else node.name
        waiting += [(function, child) for child in ast.iter_child_nodes(node)]


_SIMPLE: Final = (ast.Assign, ast.Expr, ast.Return)
_TAKING: Final = frozenset({"pop", "popitem", "popleft", "remove"})
_ADDING: Final = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "setdefault", "update"})


def _puts_into(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        return isinstance(function, ast.Attribute) and function.attr in _ADDING and _is_named(function.value, name)
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        return _is_named(node.target, name)
    if isinstance(node, ast.Assign):
        targets = chain(*(each.elts if isinstance(each, ast.Tuple) else [each] for each in node.targets))
        return any(_is_named(target, name) for target in targets)
    return False


def _adds(node: ast.stmt, name: str) -> bool:
    """Whether a statement adds to what is there, and does not only begin it."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return True
    value = node.value
    if isinstance(value, ast.IfExp):
        # What one of two is, as the best of all steps, is made of neither.
        made = [each for each in (value.body, value.orelse) if not _is_named(each, name)]
    else:
        made = [] if value is None else [value]
    return any(_is_named(each, name) for part in made for each in ast.walk(part))


def _is_named(node: ast.AST, name: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
