"""Passes map a graph to a graph, so that every exporter gets them for free."""

from __future__ import annotations

from gradir.passes.fold import ancestor, fold, scope_depth

__all__ = ["ancestor", "fold", "scope_depth"]
