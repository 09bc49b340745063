"""The modules with changes as a Markdown table: what became of their nodes, and how much they grew."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.model import Size
from gradir.ir.text import amount, short_bytes
from gradir.markdown import code_span
from gradir.review.module_order import Place
from gradir.review.module_settings import settings
from gradir.review.name_ranges import ranges
from gradir.review.relative_changes import Name, name_in, name_seen_from
from gradir.review.whole_modules import WholeModule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Union

    from gradir.diffs.model import Change, Growth
    from gradir.review.comparison import Comparison
    from gradir.review.module_order import Places
    from gradir.review.whole_modules import WholeModules

    Module = Union[Place, WholeModule]

__all__ = ["LONGEST_RANGE", "table"]

_MOST_ROWS: Final = 40
_COUNTS: Final = frozenset({"own", "total", "trainable"})
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
    settings: str


def table(comparison: Comparison) -> Iterator[str]:
    """One row for each module with changes, or for several that have as many of the same; a row counts all of its own.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([Node(f"h.{n}/f:1", op=op, scope=f"h.{n}") for n in range(12)]) for op in ("exp", "sin"))
    >>> list(table(Comparison(a, b)))[2:]
    ['| `h.{0..11}` (12 modules) |  |  | 12 |  |  |  |']
    """
    diff, places, wholes = comparison.diff, comparison.places, comparison.whole_modules
    counts: dict[Module, Counter[str]] = {}
    for change in diff.changes:
        if change.subject == "node":
            counts.setdefault(wholes.of(change) or places.of(change), Counter())[change.kind] += 1
    said = {
        wholes.of(change) or places.of(change): change
        for change in diff.changes
        if change.subject == "scope" and not _follows(change, wholes)
    }
    grown: dict[Module, Size] = {}
    was: dict[Module, str] = {}
    for growth in diff.modules:
        module = _module(growth, places, wholes)
        grown[module] = _sum(grown.get(module, Size()), growth)
        if growth.was and isinstance(module, Place):
            was[module] = growth.was
    was.update((module, scope.was) for module, scope in said.items() if scope.was and isinstance(module, Place))
    # What a renamed module explains is said of that module.
    was = {module: before for module, before in was.items() if before != comparison.renamed.before(module.path)}
    together: dict[_Row, list[str]] = {}
    for module in sorted(
        dict.fromkeys((*counts, *grown, *said)), key=lambda module: places.position(_place(module, places))
    ):
        found = counts.get(module, Counter())
        row = _Row(
            _note(module, said.get(module)),
            name_seen_from(module.path, was.get(module, module.path)),
            found["added"],
            found["removed"],
            found["changed"] + found["renamed"] + found["moved"],
            grown.get(module, Size()),
            _settings(said.get(module), grown.get(module, Size())),
        )
        together.setdefault(row, []).append(module.path)
    if not together:
        return
    rows = list(together.items())
    last = any(row.settings for row in together)
    yield f"| module | + | - | ~ | operations | parameters | saved |{' settings |' if last else ''}"
    yield f"|---|--:|--:|--:|--:|--:|--:|{'---|' if last else ''}"
    for row, paths in rows[:_MOST_ROWS]:
        cells = [_title(row, paths), *_cells(row, len(paths)), *([_settings_cell(row)] if last else [])]
        yield f"| {' | '.join(cells)} |"
    if len(rows) > _MOST_ROWS:
        more = sum(len(paths) for _, paths in rows[_MOST_ROWS:])
        yield f"| … {more:,} more modules |{' |' * (6 + last)}"


def _module(growth: Growth, places: Places, wholes: WholeModules) -> Module:
    """The row that the growth of a module belongs to."""
    before = places.of_path(growth.was or growth.path, added=False)
    here = Place(growth.path, growth.gone)
    whole = None if growth.gone else wholes.at(growth.path, added=True)
    # The first graph may have another module at this path, which is gone.
    if whole is None and before == here:
        whole = wholes.at(growth.was or growth.path, added=False)
    return whole or here


def _place(module: Module, places: Places) -> Place:
    return places.of_path(module.path, added=module.added) if isinstance(module, WholeModule) else module


def _sum(size: Size, growth: Growth) -> Size:
    before, after = growth.before, growth.after
    return Size(
        size.nodes + after.nodes - before.nodes,
        size.parameters + after.parameters - before.parameters,
        size.saved_bytes + after.saved_bytes - before.saved_bytes,
    )


def _note(module: Module, scope: Change | None) -> str:
    if isinstance(module, Place):
        came = scope is not None and scope.kind == "added"
        return "removed" if module.gone else "added" if came else ""
    kind = "added" if module.added else "removed"
    return kind if module.itself else f"all of it {kind}"


def _follows(change: Change, wholes: WholeModules) -> bool:
    """Whether the counts of a module are all that is another, and the row of one that it lies in tells why."""
    if change.kind in {"added", "removed"} or not all(field.path[0] in _COUNTS for field in change.fields):
        return False
    return bool(wholes.at(change.id, added=True) or wholes.at(change.was or change.id, added=False))


def _settings(scope: Change | None, grown: Size) -> str:
    """What a module has of its own that differs; its counts only where the column of parameters does not tell them."""
    fields = () if scope is None else scope.fields
    return settings(field for field in fields if not (grown.parameters and field.path[0] in _COUNTS))


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


def _settings_cell(row: _Row) -> str:
    return code_span(row.settings) if row.settings else ""


def _cells(row: _Row, modules: int) -> Iterator[str]:
    for number in (row.added, row.removed, row.changed):
        yield f"{number * modules:,}" if number else ""
    for number in (row.grown.nodes, row.grown.parameters):
        yield amount(number * modules, signed=True) if number else ""
    yield short_bytes(row.grown.saved_bytes * modules, signed=True) if row.grown.saved_bytes else ""
