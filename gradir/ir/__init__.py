"""The graph IR: immutable data without knowledge of frameworks, file formats and exporters."""

from __future__ import annotations

from gradir.ir.build import Builder, SavedSlot, Value
from gradir.ir.graph import Edge, Graph
from gradir.ir.model import AttrValue, Cut, Node, NonFinite, Producer, Ref, Saved, Scope, Shape, Source, TensorMeta
from gradir.ir.ranks import Collective, Rank

__all__ = [
    "AttrValue",
    "Builder",
    "Collective",
    "Cut",
    "Edge",
    "Graph",
    "Node",
    "NonFinite",
    "Producer",
    "Rank",
    "Ref",
    "Saved",
    "SavedSlot",
    "Scope",
    "Shape",
    "Source",
    "TensorMeta",
    "Value",
]
