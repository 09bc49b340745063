"""What changed in how a module is set, short enough for a cell of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.review.values import both_words, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradir.diffs.model import FieldChange

__all__ = ["settings"]

_UNNAMED = ("class", "detail")


def settings(fields: Iterable[FieldChange]) -> str:
    """The fields of a module that differ; of its description only the parts that do, those of equal values together.

    >>> from gradir.diffs.model import FieldChange
    >>> settings([FieldChange(("detail",), "p=0.1, inplace=False", "p=0.5, inplace=False")])
    'p=0.1 → p=0.5'
    >>> settings([*(FieldChange((name,), 8, 6) for name in ("own", "total")), FieldChange(("calls",), 1, 2)])
    'own, total: 8 → 6; calls: 1 → 2'
    """
    together: dict[tuple[str, str], list[str]] = {}
    for field in fields:
        before, after = both_words(field)
        if field.path == ("detail",):
            before, after = _differing(_plain(field.before, before), _plain(field.after, after))
        together.setdefault((before, after), []).append(one_line(field.name))
    return "; ".join(
        f"{before} → {after}" if names[0] in _UNNAMED else f"{', '.join(names)}: {before} → {after}"
        for (before, after), names in together.items()
    )


def _differing(before: str, after: str) -> tuple[str, str]:
    """The parts of two descriptions that differ; both whole where they are of different numbers of parts."""
    parts = before.split(", "), after.split(", ")
    if len(parts[0]) != len(parts[1]):
        return before, after
    other = [(was, now) for was, now in zip(*parts, strict=True) if was != now]
    was, now = zip(*other, strict=True) if other else ((before,), (after,))
    return ", ".join(was), ", ".join(now)


def _plain(value: object, text: str) -> str:
    """A description as it is, where that is one printable line."""
    return value if isinstance(value, str) and value.isprintable() else text
