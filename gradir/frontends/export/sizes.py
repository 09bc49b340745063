"""Format symbolic sizes: ``2*s0 + 1`` for sympy's ``Add(Mul(Integer(2), Symbol('s0')), Integer(1))``."""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from typing import Final

_LONGEST: Final = 4_000
_INFIX: Final = {"Add": (" + ", 1), "Mul": ("*", 2), "FloorDiv": ("//", 2), "CleanDiv": ("//", 2), "Pow": ("**", 3)}
_ALONE: Final = 4


@lru_cache(maxsize=4096)
def size_text(spelled: str) -> str:
    """Return the formula for an output of sympy's ``srepr``, and any other text unchanged.

    gradir parses the text and never evaluates it, since it may come from a file.

    >>> size_text("Add(Mul(Integer(2), Symbol('s0', positive=True)), Integer(-1))"), size_text("Symbol('u0')")
    ('2*s0 + -1', 'u0')
    >>> size_text("FloorDiv(Add(Symbol('s0'), Integer(1)), Integer(2))"), size_text("s0"), size_text("__import__('os')")
    ('(s0 + 1)//2', 's0', "__import__('os')")
    """
    if len(spelled) > _LONGEST:
        return spelled[:_LONGEST]
    try:
        with warnings.catch_warnings():
            # Python warns of odd literals.
            warnings.simplefilter("ignore")
            return _spell(ast.parse(spelled, mode="eval").body)[0]
    except (SyntaxError, ValueError, TypeError, IndexError, RecursionError, MemoryError):
        return spelled


def _spell(term: ast.expr) -> tuple[str, int]:
    """Return a formula and its precedence. Python's parser takes at most 200 nested parentheses."""
    if not isinstance(term, ast.Call) or not isinstance(term.func, ast.Name):
        text = ast.unparse(term)
        return text, _ALONE if isinstance(term, ast.Constant) or text.isidentifier() else 0
    kind = term.func.id
    if kind == "Symbol":
        return str(ast.literal_eval(term.args[0])), _ALONE
    if kind in ("Integer", "Float"):
        return ast.unparse(term.args[0]), _ALONE
    if kind.startswith("_") or not term.args:
        raise ValueError
    terms = [_spell(each) for each in term.args]
    if kind not in _INFIX:
        return f"{kind}({', '.join(text for text, _ in terms)})", _ALONE
    sign, precedence = _INFIX[kind]
    texts = [text if inner > precedence or inner == precedence == 1 else f"({text})" for text, inner in terms]
    return sign.join(texts), precedence
