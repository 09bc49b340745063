"""The graph IR: immutable data without knowledge of frameworks, file formats and exporters."""

from __future__ import annotations

from gradir.ir.build import Builder, SavedSlot, Value
from gradir.ir.graph import Edge, Graph
from gradir.ir.head import Collective, Rank
from gradir.ir.model import AttrValue, Cut, Node, NonFinite, Producer, Ref, Saved, Scope, Shape, Source, TensorMeta

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
