"""A block of lines in an attributes file that is gradir's own, between two marks."""

from __future__ import annotations

from typing import Final

from gradir.errors import GradirError

__all__ = ["has_block", "with_block", "without_block"]

_BEGIN: Final = "# gradir: begin"
_BEGIN_UNENDED: Final = "# gradir: begin, after a line that had no end"
_BEGINS: Final = (_BEGIN, _BEGIN_UNENDED)
_END: Final = "# gradir: end"


def with_block(text: str, lines: list[str]) -> str:
    r"""The text with exactly one block of these lines, at its end.

    >>> with_block("*.png binary\n", ["*.gir diff=gradir"])
    '*.png binary\n# gradir: begin\n*.gir diff=gradir\n# gradir: end\n'
    """
    kept = without_block(text)
    block = "".join(f"{line}\n" for line in (*lines, _END))
    if kept and not kept.endswith("\n"):
        return f"{kept}\n{_BEGIN_UNENDED}\n{block}"
    return f"{kept}{_BEGIN}\n{block}"


def without_block(text: str) -> str:
    r"""The text as it was before `with_block`.

    Raises:
        GradirError: one of the two marks is missing.

    >>> without_block(with_block("*.png binary", ["*.gir diff=gradir"]))
    '*.png binary'
    """
    kept: list[str] = []
    inside = unended = False
    marks = [line.strip() for line in text.splitlines()]
    if sum(map(marks.count, _BEGINS)) != marks.count(_END):
        raise GradirError(f"the attributes have {_BEGIN!r} without {_END!r}, or the other way round: mend them by hand")
    for line in text.splitlines(keepends=True):
        mark = line.strip()
        if mark in _BEGINS:
            inside, unended = True, mark == _BEGIN_UNENDED
        elif mark == _END and inside:
            inside = False
        elif not inside:
            kept.append(line)
            unended = False
    rest = "".join(kept)
    return rest.removesuffix("\n") if unended else rest


def has_block(text: str) -> bool:
    """Whether the text holds a block."""
    return any(line.strip() in _BEGINS for line in text.splitlines())
