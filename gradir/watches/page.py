"""A watch as one HTML page."""

from __future__ import annotations

from html import escape

from gradir.watches.model import Watch

__all__ = ["page"]


def page(watch: Watch) -> str:
    """Return the page."""
    return f"<!doctype html><title>gradir watch</title><p>{escape(watch.verdict)}</p>\n"
