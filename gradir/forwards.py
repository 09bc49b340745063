"""The graph of the forward that lies beside an autograd graph of the same run: its file, and what counts in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["IGNORED", "forward_name", "has_forward"]

IGNORED: Final = ("source", "names", "order", "indices", "scopes", "cuts")
"""What is no difference between two forwards: a line, a variable, another order of what runs, and what the autograd
graphs tell."""


def forward_name(path: str) -> str:
    """Return the name of the file beside another that has the graph of the forward of the same run.

    >>> forward_name("a/loss.gir"), forward_name("loss.gir.zst"), forward_name("a.b/loss")
    ('a/loss.forward.gir', 'loss.forward.gir.zst', 'a.b/loss.forward')
    """
    name = os.path.basename(path)  # noqa: PTH119 (no pathlib before a program runs)
    stem, dot, rest = name.partition(".gir")
    if not dot:
        stem, dot, rest = name.rpartition(".") if "." in name else (name, "", "")
    return f"{path[: len(path) - len(name)]}{stem}.forward{dot}{rest}"


def has_forward(graph: Graph) -> bool:
    """Whether a graph was captured together with that of its forward.

    >>> from gradir.ir import Graph, Producer
    >>> has_forward(Graph.of([])), has_forward(Graph.of([], producer=Producer(options={"graph": "both"})))
    (False, True)
    """
    return graph.producer.options.get("graph") == "both"
