"""Turn bytes into a graph and back.

A document has one of two encodings and may be compressed. gradir recognizes both by the content of a file, never by its
suffix. `document` has the head, the layout and the versions that the encodings share. `codec` reads and writes both.
`strict` checks more than reading does, and `surveyor` counts.
"""

from __future__ import annotations

from gradir.codecs.codec import ENCODINGS, decode, encode, survey
from gradir.codecs.compression import COMPRESSIONS, compression_for, compression_of, decompress
from gradir.codecs.document import encoding_of

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
