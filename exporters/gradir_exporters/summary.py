"""The layer table."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from gradir.errors import ExportError
from gradir.ir import Graph
from gradir.ir.jsontext import json_lines, json_text
from gradir.ir.model import Shape
from gradir.ir.text import amount, escape_unprintable, pluralize, short_bytes, size_text
from gradir.markdown import code_span
from gradir.protocols import Options
from gradir_exporters._summary_layers import ComparedLayer, CostedLayer, Layer, Row, State, Totals, layers, says_costs

Escape = Callable[[str], str]
_SUFFIXES: Final = {"table": ".txt", "markdown": ".md", "csv": ".csv", "json": ".json"}
_HEADS: Final = (
    *("layer", "class", "calls", "output shape"),
    *("own parameters", "parameters", "trainable", "own saved bytes", "saved bytes"),
)
_COST_HEADS: Final = ("FLOPs", "forward ms", "backward ms")
_TEXTS: Final = frozenset({"layer", "class", "output shape"})
_WHOLE: Final = "(model)"
_UNKNOWN: Final = "?"
_INDENT: Final = "  "
_GAP: Final = "   "
_WIDEST: Final = 60
_SHORT: Final = "saved"
# The columns that a narrow table drops, in this order; the saved bytes stay in short form.
_LEFT_OUT: Final = ("own saved bytes", "own parameters", "trainable", "saved bytes", "calls", "class", "output shape")
# A sorted table keeps a module's own values.
_LEFT_OUT_SORTED: Final = ("saved bytes", "parameters", "trainable", "own saved bytes", *_LEFT_OUT[4:])

_SORTED_BY: Final[Mapping[str, Callable[[Layer], float]]] = {
    "params": lambda layer: layer.own_parameters,
    "saved": lambda layer: layer.own_saved_bytes,
    "calls": lambda layer: layer.calls,
    "flops": lambda layer: layer.own_flops if isinstance(layer, CostedLayer) else 0,
    "time": lambda layer: layer.own_milliseconds if isinstance(layer, CostedLayer) else 0,
}

# A shortened column keeps this many cells.
_NARROWEST: Final = {"output shape": 20, "class": 10, "layer": 8}
# A spreadsheet takes a cell that starts so for a formula and may run it (CSV injection); no Python name does.
_FORMULA: Final = ("=", "+", "-", "@")


class SummaryOptions(Options, frozen=True, kw_only=True):
    """The style and depth of the table."""

    style: Annotated[
        Literal["table", "markdown", "csv", "json"], msgspec.Meta(description="how the table is written")
    ] = "table"
    depth: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="hide modules below this depth, but count them"),
    ] = None
    width: Annotated[
        Annotated[int, msgspec.Meta(ge=40)] | None,
        msgspec.Meta(description="drop columns to fit this width; none shows all"),
    ] = 80
    sort: Annotated[
        Literal["params", "saved", "calls", "flops", "time"] | None,
        msgspec.Meta(description="sort modules by their own values, largest first"),
    ] = None
    all: Annotated[bool, msgspec.Meta(description="show a row for each of equal layers")] = False


class SummaryExporter:
    """The layer table: class, calls, output shape, parameters, bytes saved for backward."""

    suffix: ClassVar[str] = ".txt"
    options: ClassVar[type[Options]] = SummaryOptions
    shows_nodes: ClassVar[bool] = False

    @staticmethod
    def suffix_for(options: SummaryOptions) -> str:
        """Return the file suffix of a style."""
        return _SUFFIXES[options.style]

    def export(self, graph: Graph, options: SummaryOptions) -> str:
        """Return the table in a style.

        Raises:
            ExportError: it is to be sorted by costs, and the graph has none.
        """
        rows, totals = layers(graph, options.depth)
        # Imported only for numbered modules, so that the table of a small model starts fast.
        merges_equal = options.style in {"table", "markdown"} and not options.all
        if merges_equal and any(path[-1:].isdigit() for path in graph.scopes):
            from gradir.passes import rollup

            rolled = rollup(graph)
            rows = rows if rolled is graph else layers(rolled, options.depth)[0]
        if options.sort in {"flops", "time"} and not says_costs(graph):
            raise ExportError(f"cannot sort by {options.sort}: the graph does not have it; capture it with --cost")
        if options.sort is not None:
            most = _SORTED_BY[options.sort]
            rows = sorted((Row(row.layer.path, 0, row.layer) for row in rows), key=lambda row: -most(row.layer))
        if options.style == "table":
            return _as_table(rows, totals, options.width, options.sort)
        if options.style == "json":
            lines = "".join(json_lines(row.layer for row in rows))
            return f'{{"layers":[{lines}],\n"totals":{json_text(totals)}}}\n'
        return _as_markdown(rows, totals) if options.style == "markdown" else _as_csv(rows, totals)


def _as_table(rows: Sequence[Row], totals: Totals, width: int | None, sort: str | None) -> str:
    """Return a table for a terminal, with the widths of rich, whose own tables are ten times slower."""
    lines: list[str] = []
    if rows:
        table = [
            _heads(totals),
            *(
                (_INDENT * level + (escape_unprintable(name) or _WHOLE), *_cells(layer, totals))
                for name, level, layer in rows
            ),
        ]
        columns = {column[0]: _pad_column(column, column[0] in _TEXTS) for column in zip(*table, strict=True)}
        if width is not None:
            sizes = (
                (each.own_saved_bytes, each.own_unsized) if sort else (each.saved_bytes, each.unsized)
                for _, _, each in rows
            )
            # A comparison of ways to train has a column for each of them.
            texts = (_format_minimum(*size, short_bytes) for size in sizes)
            short = [] if totals.kept else _pad_column([_SHORT, *texts], False)
            _narrow(columns, width, short, sort)
        drawn = [_GAP.join(cells) for cells in zip(*columns.values(), strict=True)]
        lines = [drawn[0], "─" * _width(drawn[0]), *drawn[1:], ""]
    below = _totals_lines(totals)
    if width is None:
        lines += below
    else:
        from textwrap import TextWrapper

        wrapper = TextWrapper(width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)
        lines += [part for line in below for part in wrapper.wrap(line)]
    return "".join([f"{line.rstrip()}\n" for line in lines])


def _narrow(columns: dict[str, list[str]], width: int, short: list[str], sort: str | None) -> None:
    for head in _LEFT_OUT_SORTED if sort else _LEFT_OUT:
        if head == sort:
            continue
        if head == "class":
            _cut(columns, "output shape", width)
            _cut(columns, "class", width)
        if _excess(columns, width) <= 0:
            return
        del columns[head]
        if short and head == ("own saved bytes" if sort else "saved bytes"):
            columns[_SHORT] = short
    _cut(columns, "layer", width)


def _cut(columns: dict[str, list[str]], head: str, width: int) -> None:
    column, excess = columns[head], _excess(columns, width)
    if excess > 0:
        places = max(_NARROWEST[head], _width(column[0]) - excess)
        columns[head] = _pad_column([cell.rstrip() for cell in column], is_text=True, widest=places)


def _excess(columns: dict[str, list[str]], width: int) -> int:
    return sum(_width(column[0]) + len(_GAP) for column in columns.values()) - len(_GAP) - width


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    # rich loads slowly, and only wide characters need it.
    from rich.cells import cell_len

    return cell_len(text)


def _pad_column(column: Sequence[str], is_text: bool, widest: int = _WIDEST) -> list[str]:
    if all(map(str.isascii, column)) and (width := max(map(len, column))) <= widest:
        return [cell.ljust(width) for cell in column] if is_text else [cell.rjust(width) for cell in column]
    from rich.cells import set_cell_size

    width = min(widest, max(map(_width, column)))
    cells = [cell if _width(cell) <= width else f"{set_cell_size(cell, width - 1)}…" for cell in column]
    spaces = [" " * (width - _width(cell)) for cell in cells]
    return [*map(add, cells, spaces)] if is_text else [*map(add, spaces, cells)]


def _as_markdown(rows: Sequence[Row], totals: Totals) -> str:
    """Return a Markdown table with whole paths, and the totals as a list; every name is a code span."""
    lines = []
    if rows:
        heads = _heads(totals)
        lines = [_markdown_row(heads), _markdown_row("---" if head in _TEXTS else "--:" for head in heads)]
        for row in rows:
            name = _code(row.layer.path) or _WHOLE
            lines.append(_markdown_row((name, *_cells(row.layer, totals, _code))))
        lines.append("")
    lines += [f"- {line}" for line in _totals_lines(totals, _code)]
    return "".join(f"{line}\n" for line in lines)


def _as_csv(rows: Sequence[Row], totals: Totals) -> str:
    # A name that a spreadsheet would take for a formula has an apostrophe before it.
    import csv

    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    kind = type(rows[0].layer) if rows else Layer
    fields = msgspec.structs.fields(Layer if kind is ComparedLayer else kind)
    writer.writerow([*(field.encode_name for field in fields), *(f"kept_{name}" for name in totals.kept)])
    for row in rows:
        layer = row.layer
        counts = [getattr(layer, field.name) for field in fields[4:]]
        counts += layer.kept.values() if isinstance(layer, ComparedLayer) else ()
        path, class_name = _no_formula(layer.path), _no_formula(layer.class_name)
        writer.writerow([path, class_name, layer.calls, _shapes_text(layer.output_shapes or ()), *counts])
    return page.getvalue()


def _no_formula(text: str) -> str:
    return f"'{escape_unprintable(text)}" if text.startswith(_FORMULA) else escape_unprintable(text)


def _cells(layer: Layer, totals: Totals, escape: Escape = escape_unprintable) -> tuple[str, ...]:
    shapes, costs = layer.output_shapes, list[str]()
    if isinstance(layer, CostedLayer) and (totals.flops or _is_timed(totals)):
        costs = [amount(layer.flops)]
        if _is_timed(totals):
            costs += [f"{layer.forward_milliseconds:,.3f}", f"{layer.backward_milliseconds:,.3f}"]
    return (
        escape(layer.class_name),
        amount(layer.calls),
        _UNKNOWN if shapes is None else escape(_shapes_text(shapes)),
        amount(layer.own_parameters),
        amount(layer.parameters),
        amount(layer.trainable),
        _format_minimum(layer.own_saved_bytes, layer.own_unsized),
        _format_minimum(layer.saved_bytes, layer.unsized),
        *costs,
        *(map(amount, layer.kept.values()) if isinstance(layer, ComparedLayer) else ()),
    )


def _heads(totals: Totals) -> tuple[str, ...]:
    costs = _COST_HEADS[: 3 if _is_timed(totals) else 1 if totals.flops else 0]
    return (*_HEADS, *costs, *(f"kept: {escape_unprintable(name)}" for name in totals.kept))


def _is_timed(totals: Totals) -> bool:
    return bool(totals.forward_milliseconds or totals.backward_milliseconds)


def _format_minimum(size: int, unsized: int, write: Callable[[int], str] = amount) -> str:
    if not unsized:
        return write(size)
    return f"≥ {write(size).removeprefix('≥ ')}" if size else _UNKNOWN


def _shapes_text(shapes: Iterable[Shape | None]) -> str:
    return ", ".join(f"[{_UNKNOWN if shape is None else ', '.join(map(size_text, shape))}]" for shape in shapes)


def _totals_lines(totals: Totals, escape: Escape = escape_unprintable) -> Iterator[str]:
    yield f"parameters: {amount(totals.parameters)} ({amount(totals.trainable)} trainable)"
    all_nodes = f" ({totals.nodes_with_equal_ones:,} with equal ones)" if totals.nodes_with_equal_ones else ""
    yield f"nodes: {totals.nodes:,}{all_nodes}"
    states = ", ".join(_state_text(escape(name), state) for name, state in totals.states.items())
    yield f"saved for backward: {amount(totals.saved_bytes)} bytes ({states})"
    for size, noun in (
        (totals.outside_bytes, "of these by operations of no module"),
        (totals.folded_bytes, "of these in folded modules"),
        (totals.owned_bytes, "parameters, buffers and leaves saved beside these"),
    ):
        if size:
            yield f"{noun}: {amount(size)} bytes"
    if totals.kept:
        ways = ", ".join(f"{escape(name)} {amount(size)}" for name, size in totals.kept.items())
        yield f"saved for backward by {ways} bytes"
    if totals.flops or _is_timed(totals):
        yield f"FLOPs of the forward: {amount(totals.flops)}"
    if _is_timed(totals):
        forward, backward = totals.forward_milliseconds, totals.backward_milliseconds
        yield f"measured: forward {forward:,.3f} ms, backward {backward:,.3f} ms"
    if totals.cuts:
        yield f"cuts: {escape(totals.cuts)}"
    if totals.raised:
        yield f"raised here: {escape(totals.raised)}"


def _state_text(name: str, state: State) -> str:
    # Tensors that the backward pass recomputes take no memory before it.
    if name == "recomputed" and not state.bytes:
        return f"{name} {pluralize(state.slots, 'slot')}"
    text = f"{name} {amount(state.bytes)}"
    return f"{text} and {state.unsized:,} of unknown size" if state.unsized else text


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    return code_span(text, None) if text else ""
