"""Count the contents of a document without making a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from gradir.codecs.document import Document, Version
from gradir.ir import Cut, Producer, TensorMeta
from gradir.ir.fields import fields_of, is_list
from gradir.ir.head import Head
from gradir.ir.totals import Totals, sizes, totals_of


class Output(msgspec.Struct, frozen=True):
    """The id and the tensors of an output."""

    id: str
    tensors: tuple[TensorMeta, ...]


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The head and the counts of a document.

    ``encoding`` is ``json`` or ``msgpack``, and ``compression`` is ``gzip``, ``zstd`` or ``None``. ``roles`` counts
    nodes by role and ``ops`` functions by operation, the most frequent first. ``scopes`` is the number of modules.
    ``others`` has the other fields of the head by key: their values, or the lengths of lists.
    """

    encoding: str
    version: str
    producer: Producer
    totals: Totals
    roles: Mapping[str, int]
    ops: Mapping[str, int]
    scopes: int
    cuts: tuple[Cut, ...]
    outputs: tuple[Output, ...]
    others: Mapping[str, Any]
    compression: str | None = None


def survey_of(encoding: str, version: Version, document: Document) -> Survey:
    """Return the head and the counts of a document."""
    nodes = document.nodes
    return Survey(
        encoding=encoding,
        version=str(version),
        producer=document.producer,
        totals=totals_of(nodes, sizes(nodes)),
        roles=_sort_by_frequency(Counter([node.role for node in nodes])),
        ops=_sort_by_frequency(Counter([node.op for node in nodes if node.role == "function"])),
        scopes=len(document.scopes),
        cuts=document.cuts,
        outputs=tuple(Output(node.id, node.outputs) for node in nodes if node.role == "output"),
        others={
            field.key: len(value) if is_list(field) else value
            for field in fields_of(Head)
            if field.name not in Survey.__struct_fields__
            for value in (getattr(document, field.name),)
        },
    )


def _sort_by_frequency(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts with the largest first, and equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
