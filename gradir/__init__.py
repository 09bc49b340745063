"""gradir keeps the graph behind a gradient: capture it, save it, export it, diff it, explain it.

>>> import gradir
>>> graph = gradir.load("model.gir")  # doctest: +SKIP
>>> print(graph.to("mermaid"))  # doctest: +SKIP

Importing gradir imports no framework; the classes load when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gradir.api import (
    capture,
    diff,
    dumps,
    explain,
    export,
    link,
    load,
    loads,
    make_dot,
    patch,
    ranks,
    record,
    release,
    render,
    save,
    unpatch,
    verify,
    watch,
)
from gradir.errors import (
    CaptureError,
    ExportError,
    FileError,
    FormatError,
    GradirError,
    GradirWarning,
    GraphError,
    NewerFormatError,
    PassError,
    PatchError,
    SpecError,
)
from gradir.version import __version__

if TYPE_CHECKING:
    from gradir.diffs.changes import Change, Diff
    from gradir.distributed.model import Ranks
    from gradir.explanations.model import Cause, Explanation, Term
    from gradir.ir import (
        Builder,
        Collective,
        Cut,
        Edge,
        Graph,
        Node,
        Producer,
        Rank,
        Ref,
        Saved,
        Scope,
        Source,
        TensorMeta,
    )
    from gradir.overlays import Overlay
    from gradir.protocols import CaptureRequest, Exporter, Frontend, Options, Recorder, Renderer, Verification
    from gradir.watches.model import Watch

__all__ = [
    "Builder",
    "CaptureError",
    "CaptureRequest",
    "Cause",
    "Change",
    "Collective",
    "Cut",
    "Diff",
    "Edge",
    "Explanation",
    "ExportError",
    "Exporter",
    "FileError",
    "FormatError",
    "Frontend",
    "GradirError",
    "GradirWarning",
    "Graph",
    "GraphError",
    "NewerFormatError",
    "Node",
    "Options",
    "Overlay",
    "PassError",
    "PatchError",
    "Producer",
    "Rank",
    "Ranks",
    "Recorder",
    "Ref",
    "Renderer",
    "Saved",
    "Scope",
    "Source",
    "SpecError",
    "TensorMeta",
    "Term",
    "Verification",
    "Watch",
    "__version__",
    "capture",
    "diff",
    "dumps",
    "explain",
    "export",
    "link",
    "load",
    "loads",
    "make_dot",
    "patch",
    "ranks",
    "record",
    "release",
    "render",
    "save",
    "unpatch",
    "verify",
    "watch",
]

# The modules of the classes; `gradir.ir` has the others.
_HOMES = {
    **dict.fromkeys(("Change", "Diff"), "gradir.diffs.changes"),
    **dict.fromkeys(("Cause", "Explanation", "Term"), "gradir.explanations.model"),
    **dict.fromkeys(("CaptureRequest", "Exporter", "Frontend", "Options"), "gradir.protocols"),
    **dict.fromkeys(("Recorder", "Renderer", "Verification"), "gradir.protocols"),
    "Overlay": "gradir.overlays",
    "Ranks": "gradir.distributed.model",
    "Watch": "gradir.watches.model",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gradir' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "gradir.ir")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
