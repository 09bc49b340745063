"""The ``mermaid`` exporter: a flowchart that GitHub, GitLab, notebooks and documentation tools draw.

Mermaid refuses a flowchart of more than 500 arrows or 50,000 characters. A larger picture is folded by module, to the
greatest depth at which it fits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
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
            picture = Picture(graph if depth is None else fold(graph, depth), options)
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
        raise ExportError(_refusal(graph, depth, picture, options))


def _depths(graph: Graph, options: MermaidOptions) -> Iterator[int | None]:
    yield None
    nodes = graph.nodes.values()
    has_modules = graph.scopes or any(node.scope or node.role == "module" for node in nodes)
    if has_modules and not options.all:
        deepest = max((scope_depth(node.scope) for node in nodes), default=0)
        yield from range(min(deepest, _MAX_DEPTH_TRIED), -1, -1)


def _source(picture: Picture, direction: str, notes: Sequence[str], caption: str = "") -> str:
    sys.meta_path.insert(0, _SilentFinder)
    try:
        from gradir_exporters._mermaid_chart import AutogradChart
    finally:
        sys.meta_path.remove(_SilentFinder)
    source: str = AutogradChart(picture, direction, notes, caption).script
    return source


class _SilentFinder:
    """Keeps mermaid-py from printing that IPython is missing, which would end up in an export to stdout."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == _PRINTING else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_silently(module: ModuleType) -> None:
                vars(module)["print"] = lambda *_: None
                execute(module)
                del vars(module)["print"]

            spec.loader.exec_module = execute_silently  # type: ignore[method-assign]
        return spec


def _characters(source: str) -> int:
    # Mermaid counts as JavaScript does, in UTF-16 units.
    return len(source.encode("utf-16-le")) // 2


def _refusal(graph: Graph, depth: int | None, picture: Picture, options: MermaidOptions) -> str:
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
