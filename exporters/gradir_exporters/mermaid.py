"""The ``mermaid`` exporter: a flowchart that GitHub, GitLab, notebooks and documentation tools draw.

Mermaid refuses a flowchart of more than 500 arrows or 50,000 characters. A larger picture is folded by module, to the
greatest depth at which it fits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from gradir.errors import ExportError, warn
from gradir.ir import Graph
from gradir.passes import fold, scope_depth
from gradir.protocols import Options
from gradir_exporters._box_looks import is_folded, shrink_by_default
from gradir_exporters._mermaid_picture import MermaidOptions, Picture

__all__ = ["MermaidExporter", "MermaidOptions"]

_MAX_ARROWS = 500
_MAX_CHARACTERS = 50_000

_PRINTING: Final = "mermaid.__main__"

# Each depth is drawn again, so this limits the time for a deeply nested graph.
_MAX_DEPTH_TRIED = 16


class MermaidExporter:
    """A Mermaid flowchart, drawn by GitHub, GitLab and notebooks; large graphs are folded by module."""

    suffix: ClassVar[str] = ".mmd"
    options: ClassVar[type[Options]] = MermaidOptions

    def export(self, graph: Graph, options: MermaidOptions) -> str:
        """Return the source of one flowchart.

        Warns:
            GradirWarning: it is folded more than was asked for, to fit.

        Raises:
            ExportError: the picture is larger than Mermaid draws, and cannot or may not be folded to fit.
            PassError: ``depth`` is negative.
        """
        caption = options.caption
        if options.depth is not None:
            graph = fold(graph, options.depth)
        elif not options.all:
            graph, caption = shrink_by_default(graph, caption)
        for depth in _depths(graph, options):
            picture = _picture(graph, depth, options)
            if len(picture.arrows) > _MAX_ARROWS:
                continue
            notes = []
            if depth is not None:
                size = f"{len(graph.nodes):,} nodes and {len(graph.edges):,} edges"
                than = f"more than Mermaid draws ({_MAX_ARROWS} arrows, {_MAX_CHARACTERS:,} characters)"
                notes = [f"{size}, {than}: folded by module to depth {depth}"]
            source = _source(picture, options.direction, notes, caption)
            if _characters(source) <= _MAX_CHARACTERS:
                for note in notes:
                    warn(f"mermaid: {note}")
                return source
        raise ExportError(_refusal(graph, options))


def _depths(graph: Graph, options: MermaidOptions) -> Iterator[int | None]:
    yield None
    nodes = graph.nodes.values()
    has_modules = graph.scopes or any(node.scope or node.role == "module" for node in nodes)
    if has_modules and not options.all:
        deepest = max((scope_depth(node.scope) for node in nodes), default=0)
        yield from range(min(deepest, _MAX_DEPTH_TRIED), -1, -1)


def _picture(graph: Graph, depth: int | None, options: MermaidOptions) -> Picture:
    return Picture(graph if depth is None else fold(graph, depth), options)


def _source(picture: Picture, direction: str, notes: Sequence[str], caption: str = "") -> str:
    if _PRINTING not in sys.modules:
        _silence_import()
    from gradir_exporters._mermaid_chart import AutogradChart

    source: str = AutogradChart(picture, direction, notes, caption).script
    return source


def _silence_import() -> None:
    """Keep mermaid-py from printing that IPython is missing, which would end up in an export to stdout.

    The module that prints gets a ``print`` that does nothing, and runs on its first use.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    parent, _, child = _PRINTING.rpartition(".")
    package = find_spec(parent)
    spec = package and PathFinder.find_spec(_PRINTING, package.submodule_search_locations)
    if not (spec and spec.loader):
        return
    module, loader = module_from_spec(spec), spec.loader

    def run(name: str) -> object:
        if name.startswith("__"):
            # Tools such as inspect read these from every loaded module; that must not run this one.
            raise AttributeError(name)
        del vars(module)["__getattr__"]
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[_PRINTING]
            raise
        del vars(module)["print"]
        setattr(sys.modules[parent], child, module)
        return getattr(module, name)

    vars(module).update(__getattr__=run, print=lambda *_: None)
    sys.modules.setdefault(_PRINTING, module)


def _characters(source: str) -> int:
    # Mermaid counts as JavaScript does, in UTF-16 units.
    return len(source.encode("utf-16-le")) // 2


def _refusal(graph: Graph, options: MermaidOptions) -> str:
    *_, depth = _depths(graph, options)
    picture = _picture(graph, depth, options)
    needs = f"{len(picture.arrows):,} arrows"
    if len(picture.arrows) <= _MAX_ARROWS:
        needs += f" and {_characters(_source(picture, options.direction, ())):,} characters"
    if options.all:
        how = "a smaller depth" if is_folded(graph) else "a depth"
        what = f"needs {needs}: fold modules with {how}, or leave all out"
    elif depth is None:
        what = f"needs {needs}, and the graph has no modules to fold: record them while capturing, or export to dot"
    else:
        what = f"needs {needs} even with all modules folded: export a part of the graph, or export to dot"
    return f"a Mermaid picture has at most {_MAX_ARROWS} arrows and {_MAX_CHARACTERS:,} characters, and this one {what}"
