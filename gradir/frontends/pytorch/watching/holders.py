"""Find the variables of a program that keep tensors of earlier steps, and the lines that assign them."""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from inspect import CO_OPTIMIZED
from itertools import chain
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from gradir.explanations.model import Excerpt
from gradir.frontends.pytorch.private import fields_of, own_modules
from gradir.frontends.pytorch.recording.sources import is_user_code
from gradir.frontends.texts import ShownPaths, is_installed, plain_text
from gradir.frontends.walks import frames_from
from gradir.ir import Source

_LARGEST_FILE: Final = 1_000_000
_NO_MODULE: Final = ast.Module([], [])


@lru_cache(maxsize=32)
def parse_file(file: str) -> tuple[ast.Module, tuple[str, ...]]:
    """Return the syntax tree and lines of a file, which are empty if gradir cannot read it."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        return (ast.parse(text), tuple(text.splitlines())) if len(text) < _LARGEST_FILE else (_NO_MODULE, ())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return _NO_MODULE, ()


def variables_of(frame: FrameType) -> dict[str, Any]:
    """Return the variables of a running function."""
    found = {**frame.f_locals}
    if sys.version_info < (3, 13) and frame.f_code.co_flags & CO_OPTIMIZED:
        # Python caches this dict, which would keep the tensors of a step alive longer than the program does.
        frame.f_locals.clear()
    return found


def loop_counters(frames: Iterable[FrameType]) -> Mapping[str, int]:
    """Return the loop variables of running functions, outer ones first."""
    found: dict[str, int] = {}
    for frame in frames:
        names = [*_loop_variables(parse_file(frame.f_code.co_filename)[0], frame.f_lineno)]
        values = variables_of(frame) if names else {}
        found = {**{plain_text(name): values[name] for name in names if type(values.get(name)) is int}, **found}
    return found


def _loop_variables(tree: ast.Module, line: int) -> Iterator[str]:
    """Yield the loop variables of the loops around a line, outer ones first."""
    body: list[ast.stmt] = tree.body
    while body:
        inside = next((each for each in body if each.lineno <= line <= (each.end_lineno or each.lineno)), None)
        if isinstance(inside, ast.For):
            yield from (each.id for each in ast.walk(inside.target) if isinstance(each, ast.Name) and each.id != "_")
        elif isinstance(inside, ast.While):
            updates = (each for each in ast.walk(inside) if isinstance(each, ast.AugAssign))
            yield from (each.target.id for each in updates if isinstance(each.target, ast.Name))
        body = [each for each in ast.iter_child_nodes(inside) if isinstance(each, ast.stmt)] if inside else []


_DEEPEST: Final = 4
_MOST_VALUES: Final = 100_000


class Holder(NamedTuple):
    """A variable that keeps tensors of earlier steps, at most ``most``."""

    path: str
    file: str
    tensors: list[torch.Tensor]
    kind: str
    most: int | None = None

    @property
    def name(self) -> str:
        """The name of the variable or attribute itself."""
        return self.path.rpartition(".")[2].partition("[")[0]

    @property
    def key(self) -> str | None:
        """The key of the tensors, if the variable is a dict."""
        return self.path.rpartition("['")[2].removesuffix("']") if self.path.endswith("']") else None


def find_holders(old: Mapping[int, torch.Tensor], variables: Variables, frame: FrameType | None) -> Iterator[Holder]:
    """Yield the variables that keep some of these tensors, each tensor by one of them."""
    seen: set[int] = set()
    found: dict[tuple[str, str], Holder] = {}
    # Breadth first: one variable may have a value close, and another too deep to search.
    waiting = deque((_Entry(*variable), 0) for variable in variables(frame))
    for _ in range(_MOST_VALUES):
        if not waiting:
            break
        entry, depth = waiting.popleft()
        if id(entry.value) in seen:
            continue
        if id(entry.value) in old:
            seen.add(id(entry.value))
            holder = Holder(entry.path, entry.file, [], entry.kind, entry.most)
            found.setdefault((entry.file, entry.path), holder).tensors.append(old[id(entry.value)])
        elif depth < _DEEPEST and (contents := _list_contents(entry)):
            seen.add(id(entry.value))
            waiting += [(each, depth + 1) for each in contents]
    yield from found.values()


class _Entry(NamedTuple):
    """A value somewhere inside a variable, with its innermost container."""

    path: str
    value: object
    file: str
    kind: str = "the variable"
    most: int | None = None


_CONTAINERS: Final[tuple[Any, ...]] = (deque, dict, list, set, tuple)


def _list_contents(entry: _Entry) -> list[_Entry]:
    value, kind = entry.value, type(entry.value)
    for container in _CONTAINERS:
        if issubclass(kind, container):
            most = value.maxlen if isinstance(value, deque) else entry.most
            whole = entry._replace(kind=f"the {kind.__name__}", most=most)
            # The methods of the built-in class, since a subclass may override them.
            if isinstance(value, dict):
                items = [*dict.items(value)]
                return [whole._replace(value=each, path=_path_to(entry.path, key, each)) for key, each in items]
            entries: Iterator[Any] = container.__iter__(value)
            return [whole._replace(value=each) for each in entries]
    if kind.__module__ in {"builtins", "torch"} and kind is not type:
        return []
    home = _home_of(value if isinstance(value, type) else kind, entry.file)
    if home is None and isinstance(value, type):
        return []
    parts = own_modules(value) if isinstance(value, nn.Module) else {}
    fields = {**vars(value)} if isinstance(value, type) else {**fields_of(value), **parts}
    own = ((name, each) for name, each in fields.items() if not isinstance(each, ModuleType))
    return [_Entry(f"{entry.path}.{name}", each, home or entry.file, "the attribute") for name, each in own]


def _path_to(path: str, key: object, value: object) -> str:
    """Return the path of a value in a dict, with the plain key of a container."""
    has_own_path = isinstance(value, _CONTAINERS) and type(key) is str and key.isidentifier()
    return f"{path}[{key!r}]" if has_own_path else path


@lru_cache(maxsize=1024)
def _home_of(kind: type, main: str) -> str | None:
    """Return the program's file that defines a class, ``None`` for a class of a library."""
    name = kind.__module__
    file = main if name == "__main__" else getattr(sys.modules.get(name), "__file__", None)
    return file if isinstance(file, str) and not is_installed(file) else None


class Variables:
    """The variables of a program: of its running functions, inner ones first, and of its modules."""

    def __init__(self) -> None:
        self._modules: dict[int, tuple[dict[str, Any], str]] = {}

    def note(self, frame: FrameType | None) -> list[FrameType]:
        """Record the modules of the running functions; return the program's frames."""
        own = [each for each in frames_from(frame) if is_user_code(each.f_code)]
        for each in own:
            self._modules.setdefault(id(each.f_globals), (each.f_globals, each.f_code.co_filename))
        return own

    def __call__(self, frame: FrameType | None) -> Iterator[tuple[str, object, str]]:
        """Yield each variable with its file."""
        for own in self.note(frame):
            if own.f_locals is not own.f_globals:
                for name, value in variables_of(own).items():
                    yield name, value, own.f_code.co_filename
        for names, file in self._modules.values():
            for name, value in [*names.items()]:
                if not name.startswith("__"):
                    yield name, value, file


def find_line(holder: Holder) -> tuple[Source | None, Excerpt | None, bool]:
    """Return the line that assigns a variable, and whether a call computes the new value from the old one."""
    tree, lines = parse_file(holder.file)
    name = holder.name
    found = [(function, node) for function, node in _statements(tree) if _puts_into(node, name)]
    if not found:
        return None, None, False

    def rank(each: tuple[str, ast.stmt]) -> tuple[bool, bool, int]:
        parts = ast.walk(each[1]) if holder.key is not None else ()
        has_key = any(isinstance(part, ast.Constant) and part.value == holder.key for part in parts)
        return has_key, _adds(each[1], name), each[1].lineno

    function, node = max(found, key=rank)
    line = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    source, data = Source(ShownPaths()(holder.file), node.lineno, function), line.encode()
    # Python counts columns in bytes.
    last = node.end_col_offset if node.end_lineno == node.lineno else None
    start, end = (len(data[:column].decode(errors="replace")) for column in (node.col_offset, last or len(data)))
    return source, Excerpt(plain_text(line), start, end), _is_call_of(node, name)


def is_kept(holder: Holder) -> bool:
    """Return whether a variable is a container, or its new value depends on the old one."""
    name = holder.name
    return len(holder.tensors) > 1 or any(
        _puts_into(node, name) and _adds(node, name) for _, node in _statements(parse_file(holder.file)[0])
    )


def is_cut(holder: Holder) -> bool:
    """Return whether the program removes entries from a container, as for a window of steps."""
    return any(_takes_from(node, holder.name) for _, node in _statements(parse_file(holder.file)[0]))


def _takes_from(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Delete):
        return any(isinstance(target, ast.Subscript) and _is_named(target, name) for target in node.targets)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        return _is_named(node.value, name) and any(_is_named(target, name) for target in node.targets)
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call)) if isinstance(node, _SIMPLE) else ()
    methods = (each.func for each in calls if isinstance(each.func, ast.Attribute))
    return any(method.attr in _TAKING and _is_named(method.value, name) for method in methods)


def _is_call_of(node: ast.stmt, name: str) -> bool:
    """Return whether a statement calls a function with a variable and assigns the result, as for a recurrent cell."""
    if not isinstance(node, ast.Assign):
        return False
    calls = (each for each in ast.walk(node.value) if isinstance(each, ast.Call))
    return any(_is_named(argument, name) for call in calls for argument in ast.walk(call))


def _statements(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
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
    """Return whether a statement extends the value of a variable instead of replacing it."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return True
    # A choice of two values, such as the best of all steps, extends neither.
    choice = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else None
    values = [node.value] if choice is None else [each for each in choice if not _is_named(each, name)]
    return any(_is_named(each, name) for value in values if value is not None for each in ast.walk(value))


def _is_named(node: ast.AST, name: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
