"""Write the report on ranks as a page to open in a browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Final, NamedTuple

from gradir import registry
from gradir.distributed.model import Ranks
from gradir.distributed.reading import Program, RankFile
from gradir.distributed.simulation import Outcome
from gradir.distributed.words import describe_collective, headline, rest, row, span, stops, title
from gradir.errors import ExportError
from gradir.ir import Collective
from gradir.ir.memo import group_by_key
from gradir.ir.text import escape_unprintable, pluralize
from gradir.protocols import Reports

_EXPORTER: Final = "html"
_TITLE: Final = "gradir ranks"
_MOST_GRAPHS: Final = 8
_MOST_NODES: Final = 200_000
"""A graph with more nodes is not put into the page, which a browser reads in one piece."""

_HEADS: Final = ("ranks", "nodes", "edges", "bytes saved for backward", "parameters", "collectives")

_MOST_PLACES: Final = 4_096
_MOST_ROWS: Final = 16
_MOST_CELLS: Final = 48
_LETTERS: Final = 26
_LOOKS: Final = 4
_LABEL: Final = 8
_MARK: Final = "mismatch"
_FORWARD: Final = "forward"
_CODES: Final[Mapping[str, str]] = {
    "all_gather": "AG",
    "all_reduce": "AR",
    "all_to_all": "A2A",
    "barrier": "B",
    "broadcast": "BC",
    "gather": "G",
    "permute": "P",
    "recv": "R",
    "reduce": "RD",
    "reduce_scatter": "RS",
    "scatter": "SC",
    "send": "S",
}

_STYLE: Final = """\
:root{color-scheme:light dark;--text:#1f2328;--ground:#fff;--line:#7b858f;--panel:#f6f8fa;--alarm:#b83a00;
--good:#00735a;--back:#e3ecf7;--g0:#dceee9;--g1:#fbdfcd;--g2:#e3e0f5;--g3:#f5ebc4}
@media (prefers-color-scheme:dark){
:root{--text:#e9eef3;--ground:#0d1117;--line:#7d8792;--panel:#161b22;--alarm:#ff8a4c;--good:#2fc79c;--back:#1c2b3d;--g0:#12352c;--g1:#4a2410;--g2:#2c2850;--g3:#40370c}}
body{max-width:75rem;margin:0 auto;padding:1rem;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}
.table{overflow-x:auto}table{border-collapse:collapse}
th,td{padding:.2rem .7rem;border:1px solid var(--line);text-align:right}th:first-child,td:first-child{text-align:left}
section{border-left:4px solid var(--alarm);padding:.1rem 1rem;margin:1rem 0;background:var(--panel)}
section h2{color:var(--alarm);margin:.4rem 0}.proof{border-left:4px solid var(--good);padding-left:1rem}
li,.names{overflow-wrap:anywhere}code{font:13px/1.5 ui-monospace,monospace}
.lanes td,.lanes th,.mesh td,.mesh th{padding:.1rem .3rem;text-align:center;font-size:12px;line-height:1.3}
.lanes th:first-child{position:sticky;left:0;background:var(--ground);white-space:nowrap;text-align:left}
.lanes td{white-space:nowrap}.lanes small{display:block}
.forward{background:var(--panel)}.backward{background:var(--back)}
.lanes .bad{outline:3px solid var(--alarm);outline-offset:-3px;font-weight:700}
.mesh{margin:.4rem 1.5rem .4rem 0;display:inline-table}
.g0{background:var(--g0)}.g1{background:var(--g1)}.g2{background:var(--g2)}.g3{background:var(--g3)}
.chip{padding:0 .35rem;margin-right:.4rem}.lanes .chip{float:right;margin:0 0 0 .4rem}a{color:inherit}
section ul{padding-left:1.1rem}
.graph{margin:.5rem 0}summary{cursor:pointer;padding:.3rem 0}
iframe{width:100%;height:min(80vh,56rem);border:1px solid var(--line)}
"""


class Row(NamedTuple):
    """Ranks with the same collectives. The picture shows those from ``start`` on.

    ``marked`` is the number of the collective that does not fit or waits for ever, or of a missing one after the last.
    """

    ranks: tuple[int, ...]
    issued: Program
    start: int
    marked: int | None

    @property
    def cells(self) -> Iterator[tuple[int, Collective]]:
        """Return the collectives to show, with their numbers."""
        return enumerate(islice(self.issued, self.start, self.start + _MOST_CELLS), self.start)


class Picture(NamedTuple):
    """Rows of collectives, the number of ranks without a row, and the places of ranks in a mesh, by dimension."""

    rows: tuple[Row, ...]
    omitted: int
    mesh: Mapping[int, Mapping[str, int]]


def make_picture(ranks: Sequence[RankFile], outcome: Outcome) -> Picture:
    """Return a picture with a row for each rank or, if there are many, for each list of collectives."""
    marks = outcome.places
    is_short = len(ranks) <= _MOST_ROWS
    groups = group_by_key(
        (one.rank.rank if is_short else (id(one.collectives), marks.get(one.rank.rank)), one) for one in ranks
    )
    # The picture always shows ranks with a mark.
    chosen = sorted(groups.values(), key=lambda members: members[0].rank.rank not in marks)[:_MOST_ROWS]
    first = min(marks.values(), default=0)
    longest = max((len(members[0].collectives) for members in chosen), default=0)
    start = max(0, min(first - _MOST_CELLS // 2, longest + 1 - _MOST_CELLS))
    rows = []
    for members in chosen:
        numbers = tuple(one.rank.rank for one in members)
        rows.append(Row(numbers, members[0].collectives, start, marks.get(numbers[0])))
    mesh = {one.rank.rank: one.rank.coordinates for one in ranks}
    dimensions = {tuple(each) for each in mesh.values()}
    is_mesh = len(dimensions) == 1 and () not in dimensions
    return Picture(tuple(sorted(rows)), len(ranks) - sum(map(len, chosen)), mesh if is_mesh else {})


def page(ranks: Ranks) -> str:
    """Return a page with groups, findings, the proof or the hang, and a graph of each group to open.

    Raises:
        ExportError: the exporter of pages is another one, which cannot write a report.
        FileError: a file with a graph to show no longer exists.
    """
    exporter = registry.exporter(_EXPORTER)
    if not isinstance(exporter, Reports):
        raise ExportError(f"the exporter {_EXPORTER!r} makes no page of a report: use the one of gradir")
    graphs = ranks.graphs
    shown = [
        (f"graph of {row(group)[0]}: {pluralize(group.nodes, 'node')}", graph)
        for group, graph in zip(ranks.groups, graphs, strict=False)
        if group.nodes <= _MOST_NODES
    ][:_MOST_GRAPHS]
    body = "".join(f"{line}\n" for line in _body(ranks, len(graphs) - len(shown), has_graphs=bool(shown)))
    return exporter.export_report(_TITLE, _STYLE, body, shown)


def _body(ranks: Ranks, omitted: int, *, has_graphs: bool) -> Iterator[str]:
    yield f"<h1>{_text(headline(ranks))}</h1>"
    picture = ranks.picture
    group_of = {rank: number for number, group in enumerate(ranks.groups) for rank in group.ranks}
    # If all ranks stopped before they had a graph, there is no group.
    if ranks.groups:
        # Letters help only if the picture has several places or groups.
        yield from _groups(ranks, has_letters=picture is not None and (bool(picture.mesh) or len(ranks.groups) > 1))
    if picture is not None and picture.mesh:
        yield from _mesh(picture.mesh, group_of)
    yield from (f"<p>{_text(line)}</p>" for line in stops(ranks))
    for finding in ranks.findings:
        lines = "".join(f"<li><code>{_text(line)}</code></li>" for line in finding.lines)
        yield f"<section><h2>{_text(title(finding))}</h2><ul>{lines}</ul></section>"
    if picture is not None and any(row.issued for row in picture.rows):
        yield from _timeline(picture, group_of if len(ranks.groups) > 1 else {})
    proof = "" if any(finding.kind == "mixed" for finding in ranks.findings) else "proof "
    for line in map("".join, rest(ranks)):
        yield f'<p class="{proof}names">{_text(line)}</p>'
    if has_graphs or omitted:
        yield "<h2>Graphs</h2>"
    if omitted:
        yield f"<p>{pluralize(omitted, 'graph')} more {'is' if omitted == 1 else 'are'} not in this page.</p>"


def _groups(ranks: Ranks, *, has_letters: bool) -> Iterator[str]:
    yield '<div class="table" tabindex="0" role="region" aria-label="groups of ranks"><table><thead><tr>'
    yield "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    yield "</tr></thead><tbody>"
    for number, group in enumerate(ranks.groups):
        name, *counts = map(_text, row(group))
        chip = f"{_chip(number)} " if has_letters else ""
        yield f'<tr><th scope="row">{chip}{name}</th>{"".join(f"<td>{count}</td>" for count in counts)}</tr>'
    yield "</tbody></table></div>"


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < _LETTERS else str(number + 1)


def _look(number: int) -> str:
    return f"g{number % _LOOKS}"


def _mesh(places: Mapping[int, Mapping[str, int]], group_of: Mapping[int, int]) -> Iterator[str]:
    dimensions = [*next(iter(places.values()))]
    grids: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = {}
    for rank, place in places.items():
        at = tuple(place[dimension] for dimension in dimensions)
        # Ranks share a place if they differ only in a dimension without communication.
        grids.setdefault(at[:-2], {}).setdefault(at[-2:], []).append(rank)
    yield f"<h2>Mesh {_text(' × '.join(dimensions))}</h2>"
    if len(places) > _MOST_PLACES:
        yield f"<p>{pluralize(len(places), 'rank')}: too many to draw.</p>"
        return
    for outer, ranks in grids.items():
        caption = ", ".join(f"{name} {number}" for name, number in zip(dimensions, outer, strict=False))
        rows, columns = sorted({at[:-1] for at in ranks}), sorted({at[-1] for at in ranks})
        if len(rows) * len(columns) > _MOST_PLACES:
            yield f"<p>{pluralize(len(rows) * len(columns), 'place')}: too many to draw.</p>"
            continue
        yield '<div class="table" tabindex="0" role="region" '
        yield f'aria-label="{_text(f"mesh {caption}".strip())}"><table class="mesh">'
        yield f"<caption>{_text(caption)}</caption>" if caption else ""
        heads = "".join(f'<th scope="col">{_text(dimensions[-1])} {column}</th>' for column in columns)
        yield f"<thead><tr><td></td>{heads}</tr></thead><tbody>"
        for row_at in rows:
            names = " ".join(f"{dimensions[-2]} {number}" for number in row_at) or "rank"
            cells = "".join(_place(ranks.get((*row_at, column), ()), group_of) for column in columns)
            yield f'<tr><th scope="row">{_text(names) or "rank"}</th>{cells}</tr>'
        yield "</tbody></table></div>"


def _chip(number: int) -> str:
    return f'<b class="chip {_look(number)}">{_letter(number)}</b>'


def _place(ranks: Sequence[int], group_of: Mapping[int, int]) -> str:
    groups = {group_of.get(rank) for rank in ranks}
    look = "".join(f' class="{_look(group)}"' for group in groups if group is not None and len(groups) == 1)
    names = (f"{rank} {_letter(group_of[rank])}" if rank in group_of else str(rank) for rank in ranks)
    return f"<td{look}>{', '.join(names)}</td>"


def _timeline(picture: Picture, group_of: Mapping[int, int]) -> Iterator[str]:
    start = picture.rows[0].start
    shown = [issued for lane in picture.rows for _, issued in lane.cells]
    count = max(len([*lane.cells]) + (lane.marked == len(lane.issued)) for lane in picture.rows)
    yield "<h2>Collectives in order</h2>"
    legend = [f"{_code(op)} {op}" for op in dict.fromkeys(issued.op for issued in shown) if op in _CODES]
    legend += ["blue is backward"] * any(issued.phase != _FORWARD for issued in shown)
    legend += [f"the first {start:,} are not shown"] * bool(start)
    legend += [f"{pluralize(picture.omitted, 'rank')} not shown"] * bool(picture.omitted)
    # On a narrow screen the mark is out of sight.
    first = next((lane for lane in picture.rows if lane.marked is not None), None)
    link = f'; <a href="#{_MARK}">✗ first mismatch</a>' if first is not None else ""
    yield f"<p>{_text('; '.join(legend))}{link}.</p>"
    yield '<div class="table" tabindex="0" role="region" aria-label="collectives by rank"><table class="lanes"><thead>'
    yield "<tr><td></td>"
    yield "".join(f'<th scope="col">{start + number + 1}</th>' for number in range(count))
    yield "</tr></thead><tbody>"
    for lane in picture.rows:
        chips = dict.fromkeys(_chip(group_of[rank]) for rank in lane.ranks if rank in group_of)
        yield f'<tr><th scope="row">{" ".join((_text(span(lane.ranks)), *chips))}</th>'
        mark = f' id="{_MARK}"' if lane is first else ""
        for number, issued in lane.cells:
            is_bad = number == lane.marked
            look = f"{_FORWARD if issued.phase == _FORWARD else 'backward'}{' bad' if is_bad else ''}"
            code = f"{'✗ ' * is_bad}{_code(issued.op)}"
            label = f"<small>{_text(issued.group[:_LABEL])}</small>"
            title = _text(describe_collective(issued))
            yield f'<td{mark * is_bad} class="{look}" title="{title}">{_text(code)}{label}</td>'
        if lane.marked == len(lane.issued):
            yield f'<td{mark} class="bad">✗ ended</td>'
        yield "</tr>"
    yield "</tbody></table></div>"


def _code(op: str) -> str:
    return _CODES.get(op) or op[:_LABEL]


def _text(text: str) -> str:
    return escape(escape_unprintable(text))
