"""A block of lines in an attributes file that is gradir's own, between two marks."""

from __future__ import annotations

from typing import Final

from gradir.errors import GradirError

__all__ = ["has_block", "with_block", "without_block"]

_BEGIN: Final = "# gradir: begin"
_END: Final = "# gradir: end"


def with_block(text: str, lines: list[str]) -> str:
    r"""The text with exactly one block of these lines, at its end.

    >>> with_block("*.png binary\n", ["*.gir diff=gradir"])
    '*.png binary\n# gradir: begin\n*.gir diff=gradir\n# gradir: end\n'
    """
    kept = without_block(text)
    if kept and not kept.endswith("\n"):
        kept += "\n"
    return kept + "".join(f"{line}\n" for line in (_BEGIN, *lines, _END))


def without_block(text: str) -> str:
    r"""The text as it was before `with_block`.

    Raises:
        GradirError: one of the two marks is missing.

    >>> without_block(with_block("*.png binary\n", ["*.gir diff=gradir"]))
    '*.png binary\n'
    """
    kept: list[str] = []
    inside = False
    marks = [line.strip() for line in text.splitlines()]
    if marks.count(_BEGIN) != marks.count(_END):
        raise GradirError(f"the attributes have {_BEGIN!r} without {_END!r}, or the other way round: mend them by hand")
    for line in text.splitlines(keepends=True):
        mark = line.strip()
        if mark == _BEGIN:
            inside = True
        elif mark == _END and inside:
            inside = False
        elif not inside:
            kept.append(line)
    return "".join(kept)


def has_block(text: str) -> bool:
    """Whether the text holds a block."""
    return _BEGIN in (line.strip() for line in text.splitlines())
