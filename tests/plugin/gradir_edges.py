"""The edges of a graph as CSV, for a spreadsheet, a data frame or a graph database; a pass; and changes as CSV."""

from __future__ import annotations

import csv
import io
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from gradir.diffs.changes import Diff
from gradir.ir import Edge, Graph, TensorMeta
from gradir.passes import within
from gradir.protocols import Options

__all__ = ["ChangesOptions", "ChangesRenderer", "EdgesExporter", "EdgesOptions", "OnlyOpsOptions", "OnlyOpsPass"]


class EdgesOptions(Options, frozen=True, kw_only=True):
    """How the list is written and what it holds."""

    delimiter: Annotated[Literal[",", ";", "\t"], Meta(description="what separates the columns")] = ","
    kind: Annotated[Literal["all", "data", "view"], Meta(description="which edges to list")] = "all"


class EdgesExporter:
    """A CSV edge list: source, output, target, input, kind, dtype, shape.

    A scalar's shape is empty; ``?`` is what is not known.

    >>> from gradir.ir import Node, Ref
    >>> x = Node("x", outputs=(TensorMeta("float32", (2, 3)),))
    >>> graph = Graph.of([x, Node("exp:1", inputs=(Ref("x", 0),))])
    >>> print(EdgesExporter().export(graph, EdgesOptions(delimiter=";")), end="")
    source;output;target;input;kind;dtype;shape
    x;0;exp:1;0;data;float32;2x3
    """

    suffix = ".csv"
    options = EdgesOptions

    def export(self, graph: Graph, options: EdgesOptions) -> str:
        """One line per edge, by consumer and input slot, as RFC 4180 has it but with plain newlines."""
        text = io.StringIO()
        writer = csv.writer(text, delimiter=options.delimiter, lineterminator="\n")
        writer.writerow(("source", "output", "target", "input", "kind", "dtype", "shape"))
        writer.writerows(_row(graph, edge) for edge in graph.edges if options.kind in ("all", edge.kind))
        return text.getvalue()


class OnlyOpsOptions(Options, frozen=True, kw_only=True):
    """Which operations stay."""

    only_ops: Annotated[
        tuple[Annotated[str, Meta(title="OP")], ...],
        Meta(description="only these operations; may be repeated, 100% so"),
    ]
    least_inputs: Annotated[int, Meta(ge=0, title="N", description="and of these only those with N inputs")] = 0
    arities: Annotated[tuple[int, ...], Meta(description="and only those with as many inputs as one of these")] = ()


class OnlyOpsPass:
    """Some operations and nothing else."""

    order: ClassVar[int] = 25
    options: ClassVar[type[Options]] = OnlyOpsOptions

    def run(self, graph: Graph, options: OnlyOpsOptions) -> Graph:
        """Keep the nodes with one of these operations."""
        kept = {
            node.id
            for node in graph.nodes.values()
            if node.op in options.only_ops
            and len(node.inputs) >= options.least_inputs
            and len(node.inputs) in (options.arities or (len(node.inputs),))
        }
        return within(graph, kept)


class ChangesOptions(Options, frozen=True, kw_only=True):
    """Which changes are listed."""

    subject: Annotated[Literal["all", "cut", "node", "scope"], Meta(description="which changes to list")] = "all"


class ChangesRenderer:
    """The changes of a diff as CSV: kind, subject, id."""

    suffix: ClassVar[str] = ".csv"
    options: ClassVar[type[Options]] = ChangesOptions

    def render(self, diff: Diff, options: ChangesOptions) -> str:
        """One line per change, in the order of the diff."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("kind", "subject", "id"))
        writer.writerows(
            (change.kind, change.subject, change.id)
            for change in diff.changes
            if options.subject in ("all", change.subject)
        )
        return text.getvalue()


def _row(graph: Graph, edge: Edge) -> tuple[object, ...]:
    outputs = graph.nodes[edge.src].outputs
    tensor = outputs[edge.output_nr] if edge.output_nr < len(outputs) else TensorMeta()
    shape = "?" if tensor.shape is None else "x".join(map(str, tensor.shape))
    return (edge.src, edge.output_nr, edge.dst, edge.input_nr, edge.kind, tensor.dtype or "?", shape)
