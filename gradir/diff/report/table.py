"""The modules with changes as a Markdown table: what became of their nodes, and how much they grew."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diff.model import Size
from gradir.diff.report.forms import Name, name_in, name_seen_from
from gradir.diff.report.headline import short_bytes
from gradir.diff.report.places import Place, Places
from gradir.diff.report.ranges import ranges
from gradir.diff.report.wholes import Whole, Wholes
from gradir.markdown import code_span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Union

    from gradir.diff.model import Diff, Growth
    from gradir.diff.report.places import Sides

    Module = Union[Place, Whole]

__all__ = ["LONGEST_RANGE", "table"]

_MOST_ROWS: Final = 40
LONGEST_RANGE: Final = 400
"""A longer range in a report is cut in its middle."""


class _Row(NamedTuple):
    """What a row says of each of its modules; ``was`` is the path in the first graph, as the module sees it."""

    note: str
    was: Name
    added: int
    removed: int
    changed: int
    grown: Size


def table(diff: Diff, sides: Sides) -> Iterator[str]:
    """One row for each module with changes, or for several that have as many of the same; a row counts all of its own.

    >>> from gradir.diff.compare import compare
    >>> from gradir.ir import Graph, Node
    >>> a, b = (Graph.of([Node(f"h.{n}/f:1", op=op, scope=f"h.{n}") for n in range(12)]) for op in ("exp", "sin"))
    >>> list(table(compare(a, b), (a, b)))[2:]
    ['| `h.{0..11}` (12 modules) |  |  | 12 |  |  |  |']
    """
    places, wholes = Places(diff, sides), Wholes(diff, sides)
    counts: dict[Module, Counter[str]] = {}
    for change in diff.changes:
        if change.subject == "node":
            counts.setdefault(wholes.of(change) or places.of(change), Counter())[change.kind] += 1
    grown: dict[Module, Size] = {}
    was: dict[Module, str] = {}
    for growth in diff.modules:
        module = _module(growth, places, wholes)
        grown[module] = _sum(grown.get(module, Size()), growth)
        if growth.was and isinstance(module, Place):
            was[module] = growth.was
    together: dict[_Row, list[str]] = {}
    for module in sorted(dict.fromkeys((*counts, *grown)), key=lambda module: places.position(_place(module, places))):
        found = counts.get(module, Counter())
        row = _Row(
            _note(module),
            name_seen_from(module.path, was.get(module, module.path)),
            found["added"],
            found["removed"],
            found["changed"] + found["renamed"] + found["moved"],
            grown.get(module, Size()),
        )
        together.setdefault(row, []).append(module.path)
    if not together:
        return
    yield "| module | + | - | ~ | operations | parameters | saved |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    rows = list(together.items())
    for row, paths in rows[:_MOST_ROWS]:
        yield f"| {' | '.join([_title(row, paths), *_cells(row, len(paths))])} |"
    if len(rows) > _MOST_ROWS:
        yield f"| … {sum(len(paths) for _, paths in rows[_MOST_ROWS:]):,} more modules | | | | | | |"


def _module(growth: Growth, places: Places, wholes: Wholes) -> Module:
    """The row that the growth of a module belongs to."""
    before = places.of_path(growth.was or growth.path, added=False)
    here = Place(growth.path, growth.gone)
    whole = None if growth.gone else wholes.at(growth.path, added=True)
    # The first graph may have another module at this path, which is gone.
    if whole is None and before == here:
        whole = wholes.at(growth.was or growth.path, added=False)
    return whole or here


def _place(module: Module, places: Places) -> Place:
    return places.of_path(module.path, added=module.added) if isinstance(module, Whole) else module


def _sum(size: Size, growth: Growth) -> Size:
    before, after = growth.before, growth.after
    return Size(
        size.nodes + after.nodes - before.nodes,
        size.parameters + after.parameters - before.parameters,
        size.saved_bytes + after.saved_bytes - before.saved_bytes,
    )


def _note(module: Module) -> str:
    if isinstance(module, Place):
        return "removed" if module.gone else ""
    kind = "added" if module.added else "removed"
    return kind if module.itself else f"all of it {kind}"


def _title(row: _Row, paths: Sequence[str]) -> str:
    notes = [f"{len(paths):,} modules"] if len(paths) > 1 else []
    notes += [row.note] if row.note else []
    before = [name_in(row.was, path) for path in paths]
    notes += [f"was {_names(before)}"] if before != list(paths) else []
    said = ", ".join(notes)
    return f"{_names(paths)} ({said})" if said else _names(paths)


def _names(paths: Sequence[str]) -> str:
    if len(paths) > 1:
        return code_span(ranges(paths), LONGEST_RANGE)
    return code_span(paths[0]) if paths[0] else "(top level)"


def _cells(row: _Row, modules: int) -> Iterator[str]:
    for number in (row.added, row.removed, row.changed):
        yield f"{number * modules:,}" if number else ""
    for number in (row.grown.nodes, row.grown.parameters):
        yield f"{number * modules:+,}" if number else ""
    yield short_bytes(row.grown.saved_bytes * modules, signed=True) if row.grown.saved_bytes else ""
