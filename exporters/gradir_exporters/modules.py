"""The modules as ``print(model)`` shows them, from the scope table alone.

A module registered twice appears only at its first place. A child that is ``None`` is missing. An ``extra_repr`` of
several lines may be on one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Final

from gradir.ir import Graph
from gradir.ir.cuts import counts_text
from gradir.ir.ids import split_index
from gradir.ir.memo import Table
from gradir.ir.module_tree import DEEPEST, ModuleTree, class_text, remove_steps
from gradir.ir.text import escape_unprintable, quote
from gradir.protocols import NoOptions, Options

# A line of a detail with this beginning would look like a submodule, or the end of one.
_MISLEADING: Final = re.compile(r"\s|\)|\(.*\): |$")
_NOTHING: Final = "(no nodes to show)\n"


class ModulesExporter:
    """The modules, nested, as print(model) shows them.

    >>> from gradir.ir import Graph, Scope
    >>> scopes = [Scope("", "Net"), Scope("fc", "Linear", "in_features=3, out_features=4"), Scope("act", "Tanh")]
    >>> print(ModulesExporter().export(Graph.of([], scopes), NoOptions()), end="")
    Net(
      (fc): Linear(in_features=3, out_features=4)
      (act): Tanh()
    )
    """

    suffix: ClassVar[str] = ".txt"
    options: ClassVar[type[Options]] = NoOptions
    shows_nodes: ClassVar[bool] = False

    def export(self, graph: Graph, options: NoOptions) -> str:  # noqa: ARG002 (there are none)
        """Return the text of every topmost module."""
        lines = [*_lines(ModuleTree(remove_steps(graph.scopes.values())[0]))]
        cuts = counts_text(graph)
        return "".join(f"{line}\n" for line in [*lines, *([f"cuts: {cuts}"] if cuts else [])]) or _NOTHING


def _lines(tree: ModuleTree) -> Iterator[str]:
    kinds = _kinds(tree)
    # Each entry is a module to print, or the closing line of one.
    stack: list[tuple[str, str, int] | str] = [("", _label(tree.names[top]), top) for top in reversed(tree.tops)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
            continue
        indent, label, place = item
        scope, children = tree.scopes[place], tree.children[place]
        details = [escape_unprintable(line) for line in scope.detail.split("\n")] if scope.detail else []
        head = f"{indent}{label}{escape_unprintable(class_text(scope))}("
        if not children and len(details) < 2:
            yield f"{head}{''.join(details)})"
            continue
        if any(map(_MISLEADING.match, details)):
            details = [quote(scope.detail)]
        yield head
        # Without a limit, the text of a hostile file would be quadratic in its depth.
        inner = indent + "  " * (tree.levels[place] < DEEPEST)
        yield from (inner + detail for detail in details)
        stack.append(f"{indent})")
        stack.extend((inner, *labelled) for labelled in reversed(list(_label_lines(tree, place, kinds))))


def _kinds(tree: ModuleTree) -> list[int]:
    numbers: Table[tuple[object, ...]] = Table()
    kinds = [0] * len(tree.scopes)
    for place in reversed(range(len(tree.scopes))):
        scope = tree.scopes[place]
        below = tuple((tree.names[child], kinds[child]) for child in tree.children[place])
        kinds[place] = numbers[scope.class_name, scope.detail, scope.rounds, below]
    return kinds


def _label_lines(tree: ModuleTree, place: int, kinds: list[int]) -> Iterator[tuple[str, int]]:
    """Yield the children of a module with their labels; a run of equal ones is one child."""

    def continues(previous: int, child: int) -> bool:
        found = split_index(tree.names[previous]) if kinds[previous] == kinds[child] else None
        return found is not None and tree.names[child] == f"{found[0]}{found[1] + 1}"

    # No other class prints a run of equal children once.
    merges = tree.scopes[place].class_name == "ModuleList"
    runs: list[list[int]] = []
    for child in tree.children[place]:
        if merges and runs and continues(runs[-1][-1], child):
            runs[-1].append(child)
        else:
            runs.append([child])
    for run in runs:
        first, last = tree.names[run[0]], tree.names[run[-1]]
        yield (_label(first) if len(run) == 1 else f"{_label(f'{first}-{last}')}{len(run)} x "), run[0]


def _label(name: str) -> str:
    return f"({escape_unprintable(name)}): " if name else ""
