"""The looks of the boxes of ``dot`` and ``mermaid``, and the options that both have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from gradir.ir.marks import SIGNS, overlay_mark, status, times
from gradir.protocols import Options
from gradir_exporters._box_words import CONTEXT, NO_VALUE, Legend, Words, border, cut_looks, legend
from gradir_exporters._overlay_looks import overlay_legend, overlay_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gradir.ir import Node
    from gradir.ir.cuts import Stub


class PictureOptions(Options, frozen=True, kw_only=True):
    """The options of every static picture."""

    direction: Annotated[
        Literal["TB", "LR", "BT", "RL"], msgspec.Meta(description="where arrows point: TB is top to bottom")
    ] = "TB"
    all: Annotated[
        bool, msgspec.Meta(description="draw every node; by default a large graph is made small enough to read")
    ] = False
    shapes: Annotated[bool, msgspec.Meta(description="show the dtype and shape of what each box gives")] = True
    native: Annotated[bool, msgspec.Meta(description="show the framework's own name of each operation")] = False
    parameters: Annotated[
        Literal["boxes", "inline"],
        msgspec.Meta(description="draw each parameter, or write it into the box of the one function that takes it"),
    ] = "boxes"
    legend: Annotated[bool, msgspec.Meta(description="say below the picture what its boxes and lines mean")] = False
    show_saved: Annotated[bool, msgspec.Meta(description="draw the tensors saved for backward, and buffers")] = False


class Looks:
    """The roles of the boxes of one picture: those of the nodes, of a diff's marks, or of an overlay."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        extended = [node for node in nodes if node.ext]
        self.is_marked = any(map(status, extended))
        """Whether a diff is drawn."""
        self.overlay = {node.id: mark for node in extended if (mark := overlay_mark(node)) is not None}

    def role(self, node: Node) -> str:
        """Return the role of a node's box."""
        if self.is_marked:
            return status(node) or CONTEXT
        found = self.overlay.get(node.id)
        return found.look if found is not None else NO_VALUE if self.overlay else node.role

    def around(self, node: Node) -> tuple[str, list[str]]:
        """Return the text before that of a node's box, and the lines below it."""
        if self.is_marked:
            mark = status(node)
            return f"{SIGNS[mark]} " if mark else "", [f"×{times(node):,}"] if mark and times(node) > 1 else []
        return "", [overlay_text(self.overlay[node.id])] if node.id in self.overlay else []

    def legend(
        self,
        options: PictureOptions,
        words: Words,
        nodes: Collection[Node],
        stubs: Collection[Stub],
        kinds: Collection[str],
        *,
        framed: bool,
        joined: bool,
    ) -> Legend:
        """Return the legend of what is drawn; see `Words.notes` for ``framed`` and ``joined``."""
        title, looks = overlay_legend(self.overlay.values())
        roles = {self.role(node) for node in nodes} | {border(node, self.is_marked) for node in nodes} - {""}
        roles |= cut_looks(stubs)
        if options.show_saved and any(node.saved for node in nodes):
            roles.add("saved")
        notes = words.notes(nodes, framed=framed, marked=self.is_marked, joined=joined)
        return legend(title, roles, kinds, looks, [*notes])
