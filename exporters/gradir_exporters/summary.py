"""The layer table: what each module is, gives, holds and keeps for backward."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from gradir.ir import Graph
from gradir.protocols import Options

__all__ = ["SummaryExporter", "SummaryOptions"]


_SUFFIXES: Final = {"table": ".txt", "markdown": ".md", "csv": ".csv", "json": ".json"}


class SummaryOptions(Options, frozen=True, kw_only=True):
    """How the table is written and how deep it goes."""

    style: Annotated[
        Literal["table", "markdown", "csv", "json"], msgspec.Meta(description="how the table is written")
    ] = "table"
    depth: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="leave out the modules below this depth; their numbers still count"),
    ] = None


class SummaryExporter:
    """The layer table: class, calls, output shape, parameters, bytes saved for backward.

    >>> from gradir.ir import Saved, Scope, TensorMeta
    >>> from gradir.ir import Builder
    >>> b = Builder()
    >>> w = b.tensor("fc.w", TensorMeta("float32", (3,)), role="parameter", scope="fc")
    >>> saved = [(Saved("result", "float32", (3,), 12), None)]
    >>> b.output(b.function("exp", [w], [TensorMeta("float32", (3,))], scope="fc", saved=saved))
    >>> graph = b.build(scopes=[Scope("fc", "Exp", calls=1, own=3, total=3, trainable=3)])
    >>> print(SummaryExporter().export(graph, SummaryOptions(style="csv")), end="")
    path,class,calls,output_shapes,own_parameters,parameters,trainable,own_saved_bytes,saved_bytes,own_unsized,unsized
    fc,Exp,1,[3],3,3,3,12,12,0,0
    """

    suffix: ClassVar[str] = ".txt"
    options: ClassVar[type[Options]] = SummaryOptions

    @staticmethod
    def suffix_for(options: SummaryOptions) -> str:
        """The file suffix of a style."""
        return _SUFFIXES[options.style]

    def export(self, graph: Graph, options: SummaryOptions) -> str:
        """The table in the style asked for."""
        from gradir_exporters import _summary_styles
        from gradir_exporters._summary_layers import layers

        found = layers(graph, options.depth)
        styles = {
            "table": _summary_styles.as_table,
            "markdown": _summary_styles.as_markdown,
            "csv": _summary_styles.as_csv,
            "json": _summary_styles.as_json,
        }
        return styles[options.style](found)
