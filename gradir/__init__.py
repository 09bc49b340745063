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

# Where classes are, those that are not in `gradir.ir`.
_HOMES = {
    "gradir.diffs.changes": ("Change", "Diff"),
    "gradir.explanations.model": ("Cause", "Explanation", "Term"),
    "gradir.overlays": ("Overlay",),
    "gradir.protocols": ("CaptureRequest", "Exporter", "Frontend", "Options", "Recorder", "Renderer", "Verification"),
    "gradir.distributed.model": ("Ranks",),
    "gradir.watches.model": ("Watch",),
}

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gradir' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF.get(name, "gradir.ir")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
