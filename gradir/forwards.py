"""Name the file of the forward graph beside an autograd graph, and list the fields that a comparison ignores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gradir.ir import Graph

# Two forward graphs may differ in lines, variables and the order of operations. A comparison of the autograd graphs
# reports the rest.
IGNORED: Final = ("source", "names", "order", "indices", "scopes", "cuts")


def forward_name(path: str) -> str:
    """Return the name of the file beside ``path`` for the forward graph of the same run."""
    name = os.path.basename(path)  # noqa: PTH119 (no pathlib before a program runs)
    stem, dot, rest = name.partition(".gir")
    if not dot:
        stem, dot, rest = name.rpartition(".") if "." in name else (name, "", "")
    return f"{path[: len(path) - len(name)]}{stem}.forward{dot}{rest}"


def has_forward(graph: Graph) -> bool:
    """Return whether a graph was captured together with its forward graph."""
    return graph.producer.options.get("graph") == "both"
