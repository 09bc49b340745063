"""Passes map a graph to a graph, so that every exporter gets them for free."""

from __future__ import annotations

from gradir.passes.fold import destination, fold, scope_depth

__all__ = ["destination", "fold", "scope_depth"]
