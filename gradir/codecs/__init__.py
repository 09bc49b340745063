"""Bytes to Graph and back.

One document, several encodings, told apart by content and never by a file's suffix. `document` is the head and the
layout that they share, `json` the reviewed form.
"""

from __future__ import annotations

from gradir.codecs.codec import decode, encode

__all__ = ["decode", "encode"]
