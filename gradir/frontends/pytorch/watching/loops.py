"""Where a program is in its loops, such as ``epoch`` 3 and ``step`` 357."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gradir.frontends.texts import plain_text

_LARGEST_FILE: Final = 1_000_000
_NO_MODULE: Final = ast.Module([], [])


@lru_cache(maxsize=32)
def parsed(file: str) -> tuple[ast.Module, tuple[str, ...]]:
    """The statements of a file, and its lines; of what cannot be read nothing."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        return (ast.parse(text), tuple(text.splitlines())) if len(text) < _LARGEST_FILE else (_NO_MODULE, ())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return _NO_MODULE, ()


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables of a running function."""
    found = {**frame.f_locals}
    if sys.version_info < (3, 13) and frame.f_code.co_flags & CO_OPTIMIZED:
        # Python keeps what it gave here, and with it the tensors of a step for longer than the program does.
        frame.f_locals.clear()
    return found


def counters(frames: Iterable[FrameType]) -> Mapping[str, int]:
    """The variables by which the loops count that these functions are in, the outer ones first."""
    found: dict[str, int] = {}
    for frame in frames:
        names = [*_targets(parsed(frame.f_code.co_filename)[0], frame.f_lineno)]
        values = variables_of(frame) if names else {}
        numbers = {name: values[name] for name in names if type(values.get(name)) is int}
        found = {**{plain_text(name): value for name, value in numbers.items()}, **found}
    return found


def _targets(tree: ast.Module, line: int) -> Iterator[str]:
    """The names that the loops around a line count by, the outer ones first."""
    body: list[ast.stmt] = tree.body
    while body:
        inside = next((each for each in body if each.lineno <= line <= (each.end_lineno or each.lineno)), None)
        if isinstance(inside, ast.For):
            yield from (each.id for each in ast.walk(inside.target) if isinstance(each, ast.Name))
        elif isinstance(inside, ast.While):
            added = (each for each in ast.walk(inside) if isinstance(each, ast.AugAssign))
            yield from (each.target.id for each in added if isinstance(each.target, ast.Name))
        body = [each for each in ast.iter_child_nodes(inside) if isinstance(each, ast.stmt)] if inside else []
