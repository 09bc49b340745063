"""What gradir asks of a plug-in: an exporter or a front-end.

Both are found by entry point, the built-in ones too. An exporter is one class in one file, registered by one line::

    [project.entry-points."gradir.exporters"]
    edges = "my_package.edges:EdgesExporter"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import msgspec

from gradir.ir import Graph

__all__ = ["Exporter", "Frontend", "NoOptions", "Options"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of an exporter's options: one field per option, with its type, its default and its help.

    >>> from typing import Annotated, Literal
    >>> class MyOptions(Options, frozen=True, kw_only=True):
    ...     direction: Annotated[Literal["TB", "LR"], msgspec.Meta(description="where the arrows point")] = "TB"
    >>> MyOptions(direction="LR").direction
    'LR'
    """


class NoOptions(Options, frozen=True, kw_only=True):
    """The options of an exporter that has none."""


OptionsT_contra = TypeVar("OptionsT_contra", bound=Options, contravariant=True)


class Exporter(Protocol[OptionsT_contra]):
    """Turns a graph into text: a pure function with a name, no I/O, no clock, no globals.

    The first line of the class's docstring is its summary in ``gradir exporters``.
    """

    suffix: ClassVar[str]
    """The file suffix of the format, with its dot."""

    options: ClassVar[type[Options]]
    """The type of the options that `export` takes."""

    def export(self, graph: Graph, options: OptionsT_contra) -> str:
        """The graph in the exporter's format, ending in a newline.

        Raises:
            ExportError: the format cannot hold this graph.
        """
        ...


@runtime_checkable
class Frontend(Protocol):
    """Makes a graph from a live object of one framework. Importing a front-end's module is cheap."""

    name: ClassVar[str]

    def capture(self, outputs: object, *, model: object = None, params: Mapping[str, Any] | None = None) -> Graph:
        """The graph behind ``outputs``: a tensor, or any nesting of tuples, lists and dicts of tensors.

        Raises:
            CaptureError: an output is not a tensor, or has no graph.
        """
        ...

    def record(self, model: object = None) -> Any:
        """A context manager that notes the modules that run inside it and has a ``capture`` of its own."""
        ...

    def capture_target(self, target: object, inputs: Sequence[str], *, seed: int = 0) -> Graph:
        """The graph of what a SPEC named: a tensor, a callable that returns one, or a module to run on ``inputs``.

        Raises:
            CaptureError: the target cannot be run or has no graph.
        """
        ...
