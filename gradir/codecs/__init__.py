"""Bytes to Graph and back.

One document, two encodings, compressed or not, told apart by content and never by a file's suffix. `document` is the
head and the layout that they share, `versions` what changed in it; `codec` writes and reads
either. `strict` checks more than reading does and `surveyor` counts; both are imported by who needs them.
"""

from __future__ import annotations

from gradir.codecs.codec import ENCODINGS, decode, encode, encoding_of, survey
from gradir.codecs.compression import COMPRESSIONS, compression_for, compression_of, decompress

__all__ = [
    "COMPRESSIONS",
    "ENCODINGS",
    "compression_for",
    "compression_of",
    "decode",
    "decompress",
    "encode",
    "encoding_of",
    "survey",
]
