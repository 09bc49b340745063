"""Counts of a module that changed only because something in it or below it did."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.ir.module_tree import OUTSIDE, ModuleTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradir.ir import Scope

__all__ = ["COUNTS", "Subtotals"]

COUNTS: Final = ("total", "trainable")
"""The fields of a scope that count what is below it too."""


class Subtotals:
    """What the counts of both scope tables say beyond what the modules below say already.

    >>> from gradir.ir import Scope
    >>> tables = [{"": Scope("", total=total), "fc": Scope("fc", own=total, total=total)} for total in (3, 4)]
    >>> Subtotals(*tables).follow(tables[0][""], tables[1][""])
    True
    """

    def __init__(self, before: Mapping[str, Scope], after: Mapping[str, Scope]) -> None:
        self._below = _below(before), _below(after)

    def follow(self, old: Scope, new: Scope) -> bool:
        """Whether the counts of a matched scope, ``total`` and ``trainable``, differ by what other changes say.

        Those are the scope's ``own``, and the same counts of the scopes right below it. Where they do not add up, as
        with a parameter that two modules share or one that is frozen, the counts say something.
        """
        return self._beyond(old, self._below[0]) == self._beyond(new, self._below[1])

    @staticmethod
    def _beyond(scope: Scope, below: Mapping[tuple[str, str], int]) -> list[int]:
        return [getattr(scope, count) - scope.own - below[count, scope.path] for count in COUNTS]


def _below(scopes: Mapping[str, Scope]) -> Counter[tuple[str, str]]:
    """By count and path, the sum over the scopes right below."""
    sums: Counter[tuple[str, str]] = Counter()
    tree = ModuleTree(scopes.values())
    for scope, above in zip(tree.scopes, tree.parents, strict=True):
        for count in COUNTS if scope.path else ():
            sums[count, "" if above == OUTSIDE else tree.scopes[above].path] += getattr(scope, count)
    return sums
