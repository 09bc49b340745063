"""Graphs of earlier steps that are still alive, and who keeps them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from types import FrameType, ModuleType
from typing import Any, Final, NamedTuple

import torch

from gradir.explanations.model import Cause, Excerpt
from gradir.frontends.paths import ShownPaths, is_installed
from gradir.frontends.pytorch.private import ACCUMULATOR, fields_of, next_sequence_number, sequence_number
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
_MOST_VALUES: Final = 100_000


class _Look(NamedTuple):
    step: int
    functions: int


class Kept:
    """Counts at some steps the functions of graphs that are alive, which takes as long as many objects are alive."""

    def __init__(self) -> None:
        self._looks: list[_Look] = []
        self._next = _FIRST_LOOK
        self._began: list[int] = []

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

    def causes(self, variables: Variables, frame: FrameType | None) -> Iterator[Cause]:
        """Who keeps graphs that are older than the last step."""
        before = self._began[-2] if len(self._began) > 1 else 0
        alive = _tensors_with_graph()
        oldest = _oldest(alive)
        old = {id(tensor): tensor for tensor in alive if oldest.get(tensor.grad_fn, before) < before}
        holders = sorted(_holders(old, variables, frame), key=lambda holder: -len(holder.tensors))
        # What is only computed of what is carried over keeps nothing by itself.
        told = [(_is_kept(holder), cause) for holder in holders for cause in [_told(holder)]]
        yield from (cause for is_kept, cause in told if is_kept or not any(kept for kept, _ in told))


class _Holder(NamedTuple):
    """A variable that keeps tensors of earlier steps: its path, the variable itself, its file, and the tensors."""

    path: str
    name: str
    file: str
    is_container: bool
    tensors: list[torch.Tensor]
    kind: str = ""


def _told(holder: _Holder) -> Cause:
    kept = len(holder.tensors)
    kind, what = "kept_graphs", f"{holder.kind} `{holder.path}`"
    functions = len(_functions_behind(holder.tensors))
    detail = f"{functions:,} functions of graphs are alive by it"
    if holder.is_container:
        detail = f"it has {counted(kept, 'tensor')} of earlier steps, and {detail}"
    else:
        kind, what = "summed_graphs", f"`{holder.path}`"
    source, excerpt, is_carried = _line_of(holder)
    kind = "carried_graph" if is_carried and not holder.is_container else kind
    return Cause(kind, "error", plain_text(what), source=source, detail=plain_text(detail), excerpt=excerpt)


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
    for name, value, file in variables(frame):
        found: list[torch.Tensor] = []
        waiting: list[tuple[str, object, int]] = [(name, value, 0)]
        path, kind, looked = name, "", 0
        while waiting and looked < _MOST_VALUES:
            where, current, depth = waiting.pop()
            looked += 1
            if id(current) in old and id(current) not in seen:
                seen.add(id(current))
                found.append(old[id(current)])
                path = where
                continue
            inside = _inside(where, current, is_top=depth == 0)
            if depth < _DEEPEST and inside:
                kind = kind or _kind_of(current)
                waiting += [(within, each, depth + 1) for within, each in inside]
        if found:
            yield _Holder(path, name, file, kind in _CONTAINERS or len(found) > 1, found, kind or "variable")


_CONTAINERS: Final = frozenset({"deque", "dict", "list", "set", "tuple"})


def _kind_of(value: object) -> str:
    name = type(value).__name__
    return f"the {name}" if name in _CONTAINERS else "the attribute"


def _inside(where: str, value: object, *, is_top: bool) -> list[tuple[str, object]]:
    """What is in a container or in the attributes of an object of the program's, each with its path."""
    kind = type(value)
    if kind.__name__ in _CONTAINERS and kind.__module__ in {"builtins", "collections"}:
        items: Iterable[Any] = value.values() if isinstance(value, dict) else value  # type: ignore[assignment]
        return [(where, each) for each in items]
    if kind.__module__ in {"builtins", "torch"} or isinstance(value, (type, ModuleType)) or not is_top:
        return []
    return [(f"{where}.{name}", each) for name, each in fields_of(value).items()]


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
    name = holder.path.rpartition(".")[2]
    found = [(function, node) for function, node in _statements(tree) if _puts_into(node, name)]
    if not found:
        return None, None, False
    function, node = max(found, key=lambda each: (_adds(each[1], name), each[1].lineno))
    line = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    source = Source(ShownPaths()(holder.file), node.lineno, function)
    return source, Excerpt(plain_text(line), *_columns(node, line)), _is_call_of(node, name)


def _is_kept(holder: _Holder) -> bool:
    """Whether a variable is made of what it had before, or is a container."""
    name = holder.path.rpartition(".")[2]
    return holder.is_container or any(
        _puts_into(node, name) and _adds(node, name) for _, node in _statements(parsed(holder.file)[0])
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
    return node.value is not None and any(_is_named(each, name) for each in ast.walk(node.value))


def _is_named(node: ast.AST, name: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
