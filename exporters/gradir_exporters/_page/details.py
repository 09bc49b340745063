"""The second block of a page: the details of nodes, read on demand by viewer/src/data/details.ts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from gradir.ir import AttrValue, Source, TensorMeta
from gradir.ir.fields import other_fields
from gradir.ir.ids import storage_key
from gradir.ir.jsontext import FORMATTED_FIELDS, further_facts, further_text
from gradir.ir.marks import LINE, LOST, OVERLAY, OVERLAYS, STATUS, VERDICT
from gradir.ir.memo import Table, exact_key
from gradir.ir.model import Node, Saved
from gradir.ir.saved import MERGED
from gradir.ir.text import size_text, tensor_text, value_text
from gradir_exporters._page.tables import column

# The page draws these entries of ``ext``, or shows their sums.
_MARKS: Final = frozenset({LINE, LOST, MERGED, OVERLAY, OVERLAYS, STATUS, VERDICT})


class Facts:
    """The details of nodes, as numbers of rows in tables."""

    def __init__(self, nodes: Sequence[Node], numbers: Mapping[str, int]) -> None:
        self._nodes, self._numbers = nodes, numbers
        self._native_table = Table([""])
        self.native = [self._native_table[node.native] for node in nodes]
        self.output_lists: Table[tuple[TensorMeta, ...]] = Table()
        self.outputs = [self.output_lists[node.outputs] for node in nodes]
        self._attrs: list[list[str]] = [[]]
        self.attrs = self._number_attributes()
        self._slot_rows: list[list[list[Any]]] = [[]]
        self.saved = self._number_slots()

    def block(self) -> dict[str, Any]:
        """Return the members of the block."""
        places: Table[Source | None] = Table([None])
        source = [places[node.source] for node in self._nodes]
        # The first name is a column of the first block.
        several = [len(node.names) > 1 or "" in node.names or node.role == "module" for node in self._nodes]
        names = {number: node.names for number, node in enumerate(self._nodes) if several[number]}
        roles = Table[str]()
        lines = {node.source: node.ext.get(LINE, "") for node in self._nodes if node.ext}
        return {
            "role": column([roles[node.role] for node in self._nodes]),
            "roles": list(roles),
            "native": column(self.native),
            "natives": list(self._native_table),
            "outputs": [[*map(_tensor, outputs)] for outputs in self.output_lists],
            "attrs": column(self.attrs),
            "attributes": self._attrs,
            "source": column(source),
            "sources": [*map(source_text, places)],
            "lines": [lines.get(source, "") for source in places],
            "names": [[*names], [*names.values()]],
            "saved": column(self.saved),
            "slots": self._slot_rows,
            **self._storages(),
        }

    def _number_attributes(self) -> list[int]:
        has_others = bool(other_fields(Node, FORMATTED_FIELDS[Node]))
        known: dict[bytes, int] = {}
        found: list[int] = []
        for node in self._nodes:
            attrs, ext = node.attrs, node.ext
            more = tuple(further_facts(node)) if has_others else ()
            if not (attrs or ext or more):
                found.append(0)
                continue
            shown = {key: ext[key] for key in ext if key not in _MARKS} if ext else ext
            key = exact_key((attrs, shown, more) if more else (attrs, shown) if shown else attrs)
            place = known.get(key) if key is not None else None
            if place is None:
                place = self._add_attributes(attrs, shown, more)
                if key is not None:
                    known[key] = place
            found.append(place)
        return found

    def _add_attributes(
        self, attrs: Mapping[str, AttrValue], ext: Mapping[str, AttrValue], more: Iterable[tuple[str, str]]
    ) -> int:
        row = [text for name in sorted(attrs) for text in (name, value_text(attrs[name]))]
        row += [text for name in sorted(ext) for text in (f"ext.{name}", value_text(ext[name]))]
        row += chain.from_iterable(more)
        if not row:
            return 0
        self._attrs.append(row)
        return len(self._attrs) - 1

    def _number_slots(self) -> list[int]:
        others = [field.name for field in other_fields(Saved, FORMATTED_FIELDS[Saved])]
        key_of = attrgetter("slot", "dtype", "shape", "bytes", "state", *others)
        # The first row is that of a node without slots.
        table, rows = Table[tuple[object, ...]]([()]), self._slot_rows
        found: list[int] = []
        for node in self._nodes:
            found.append(table[tuple(map(key_of, node.saved))])
            if found[-1] == len(rows):
                rows.append([*map(_slot, node.saved)])
        return found

    def _storages(self) -> dict[str, Any]:
        """Return the storage of each slot, and the node that made its tensor, as small numbers that compress well.

        A storage is 0 if no other slot has it, or the distance to the first slot that has it. A negative odd number
        is the distance in nodes to its owner, and an even one a place in ``storages``. The number of a node is 0 if
        unknown and -1 for the node after the slot's. It is 1 for the slot's node and 2 for the one before it.
        """
        numbers, storages, origins = self._numbers, list[int](), list[int]()
        texts: Table[str] = Table([""])
        seen: dict[str, int] = {}
        for number, node in enumerate(self._nodes):
            for saved in node.saved:
                key, origin, at = saved.storage, saved.origin, len(storages)
                before = seen.setdefault(key or storage_key(node.id, saved.slot), at)
                if not key:
                    storages.append(0)
                elif before < at:
                    storages.append(at - before)
                else:
                    ago = number - numbers.get(key, number + 1)
                    storages.append(-2 * ago - 1 if ago >= 0 else -2 * texts[key])
                made = None if origin is None else numbers.get(origin.id)
                origins.append(0 if made is None else number - made + (number >= made))
        return {"storage": column(storages), "storages": list(texts), "origin": column(origins)}


def _slot(saved: Saved) -> list[Any]:
    state = saved.state if saved.state != "held" else ""
    more = further_text(saved, ", ")
    return [saved.slot, tensor_text(saved.tensor), saved.bytes, f"{state}{more}".removeprefix(", ")]


def _tensor(tensor: TensorMeta) -> str:
    device = "" if tensor.device in (None, "cpu") else f" {tensor.device}"
    layout = "" if tensor.layout == "strided" else f" {tensor.layout}"
    return f"{tensor_text(tensor)}{device}{layout}{further_text(tensor)}"


def shape_text(tensor: TensorMeta | None) -> str:
    """Return ``[4, 8]``, or an empty text if unknown."""
    return "" if tensor is None or tensor.shape is None else f"[{', '.join(map(size_text, tensor.shape))}]"


def source_text(source: Source | None) -> str:
    """Return a line of the program with its function, or an empty text."""
    if source is None:
        return ""
    function = f" in {source.function}" if source.function else ""
    # As in `gradir.explanations.verdict.place_text`, before anything is escaped.
    where = f"{source.file}, line {source.line}" if source.file.startswith("cell ") else f"{source.file}:{source.line}"
    return f"{where}{function}{further_text(source)}"
