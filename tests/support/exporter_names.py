"""The exporters that gradir itself registers, in one place for the tests that list them."""

from __future__ import annotations

BUILT_IN = (
    "cytoscape",
    "dot",
    "graphml",
    "html",
    "mermaid",
    "model-explorer",
    "modules",
    "nodelink",
    "plain",
    "summary",
    "tree",
)
