"""What is said to a user names no framework, but in front-ends and in the vocabularies."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from doctest import DocTestParser
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KNOWING = ("gradir/frontends", "gradir/vocabulary", "gradir/api.py")
"""The last is where the public functions say what they take of each framework."""

SOURCES = sorted(
    path
    for folder in ("gradir", "exporters/gradir_exporters")
    for path in (ROOT / folder).rglob("*.py")
    if not str(path.relative_to(ROOT)).startswith(KNOWING)
)
SCRIPTS = sorted((ROOT / "viewer" / "src").rglob("*.ts"))

_FRAMEWORK = re.compile(
    r"(?<![\w-])(?:torch|pytorch|tensorflow|jax|flax|linen|nnx|equinox|grad_fn|AccumulateGrad|nn\.Module|nn\.Parameter"
    r"|jaxpr|pytrees?|requires_grad)(?![\w-])",
    re.IGNORECASE,
)
"""Not the names of others that begin so, such as torchrun."""


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every text and comment with its line; of doctests, which need a framework to show anything, nothing."""
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = DocTestParser().parse(node.value)
            yield node.lineno, "".join(part for part in parts if isinstance(part, str))


def named(source: str) -> list[tuple[int, str]]:
    return [(line, found[0]) for line, text in texts(source) for found in _FRAMEWORK.finditer(text)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_names_a_framework(path: Path) -> None:
    assert named(path.read_text()) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nor_does_the_page(path: Path) -> None:
    assert [found[0] for found in _FRAMEWORK.finditer(path.read_text())] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("text = 'a grad_fn of PyTorch'", [(1, "grad_fn"), (1, "PyTorch")]),
        ("x = 1  # as jax does", [(1, "jax")]),
        ("text = 'started by torchrun, drawn as torchviz does'", []),
        ('def f():\n    """Nothing.\n\n    >>> import torch\n    """\n', []),
        ('def f():\n    """What torch does.\n\n    >>> 1\n    1\n    """\n', [(2, "torch")]),
    ],
)
def test_a_name_in_a_text_is_found(source: str, expected: list[tuple[int, str]]) -> None:
    assert named(source) == expected
