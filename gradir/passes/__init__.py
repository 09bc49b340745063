"""Passes: functions from a graph to a graph, for every exporter."""

from __future__ import annotations

from gradir.ir.module_tree import scope_depth
from gradir.passes.drop import drop, hide_shape_ops
from gradir.passes.focus import ancestors, around, between, descendants, focus, matching
from gradir.passes.fold import destinations, fold, fold_modules
from gradir.passes.layers import layers
from gradir.passes.readability import MOST_BOXES, Readable, readable, smallest
from gradir.passes.rollup import rollup
from gradir.passes.rounds import once
from gradir.passes.wiring import within, without

__all__ = [
    "MOST_BOXES",
    "Readable",
    "ancestors",
    "around",
    "between",
    "descendants",
    "destinations",
    "drop",
    "focus",
    "fold",
    "fold_modules",
    "hide_shape_ops",
    "layers",
    "matching",
    "once",
    "readable",
    "rollup",
    "scope_depth",
    "smallest",
    "within",
    "without",
]
