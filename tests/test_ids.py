"""Ids are made, taken apart and made free in one module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "gradir" / "ir" / "ids.py"
SOURCES = sorted(path for folder in ("gradir", "exporters") for path in (ROOT / folder).rglob("*.py") if path != HOME)
PARTED = {"partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix", "find", "rfind", "index"}
PARTED |= {"startswith", "endswith"}
BETWEEN = ("/", ".", "~", "#", ":")


def is_id(value: ast.expr) -> bool:
    """Whether an expression is, as its name tells, the id of a node or the key of a storage."""
    if isinstance(value, ast.Attribute):
        return value.attr in {"id", "base", "storage"} or value.attr.endswith("_id")
    return isinstance(value, ast.Name) and (value.id.endswith("_id") or value.id in {"storage", "id_"})


def joined(parts: list[ast.expr]) -> bool:
    """Whether an f-string puts an id and something else together; an id in a sentence is followed by a space."""
    for part, other in pairwise(parts):
        for one, text, at in ((part, other, 0), (other, part, -1)):
            if not (isinstance(one, ast.FormattedValue) and one.conversion == -1 and is_id(one.value)):
                continue
            if isinstance(text, ast.Constant) and text.value[at] in BETWEEN and not text.value[:2].endswith(" "):
                return True
    return False


def homemade(source: str) -> Iterator[int]:
    """The lines of a program in which an id is put together or taken apart."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in PARTED and is_id(node.func.value):
                yield node.lineno
        elif (isinstance(node, ast.JoinedStr) and joined(node.values)) or (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Add)
            and any(map(is_id, (node.left, node.right)))
            and any(isinstance(side, (ast.Constant, ast.JoinedStr)) for side in (node.left, node.right))
        ):
            yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "path = node.id.rpartition('/')[0]",
        "first, _, slot = slot.storage.rpartition('.')",
        "key = f'{node.id}.{slot}'",
        "free = f'{node_id}~{count}'",
        "wanted = f'{tensor_id}/accumulate_grad:1'",
        "inside = node.id.startswith(path)",
        "gone = node_id + '#2'",
    ],
)
def test_homemade_handling_of_ids_is_found(line: str) -> None:
    assert list(homemade(line)) == [1]


def test_an_id_in_a_sentence_is_not_taken_for_one_that_is_made() -> None:
    assert not list(homemade("""text = f"{node.id}: no node, but {node_id!r}.", f"{node_id} ({count})" """))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_module_makes_ids_or_takes_them_apart(path: Path) -> None:
    assert not list(homemade(path.read_text(encoding="utf-8")))
