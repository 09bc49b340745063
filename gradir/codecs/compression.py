"""Compressed documents: gzip and Zstandard, told apart by their first bytes, and never larger than they may be."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import ModuleType
from typing import Final

from gradir.errors import FormatError, GradirError

__all__ = ["COMPRESSIONS", "compress", "compression_for", "compression_of", "decompress", "room"]

COMPRESSIONS: Final = ("gzip", "zstd")
_SUFFIXES: Final[Mapping[str, str]] = {".gz": "gzip", ".zst": "zstd"}
"""What a file's name asks for when it is written. When it is read, only its content counts."""

_MAGIC: Final[Mapping[str, bytes]] = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}

_GZIP_LEVEL: Final = 6
_GZIP_WINDOW: Final = 31
_ZSTD_LEVEL: Final = 9
_ZSTD_WINDOW: Final = 1 << 27
_ZSTD_PIECE: Final = 1024
"""How much is decompressed at a time: it may become 32 MiB, as each few bytes can stand for 128 kiB."""

# Graphs grow 10 to 300 times; a bomb grows a thousand times and more.
_EXPANSION: Final = 1000
_SPARE: Final = 1 << 20
_PIECE: Final = 1 << 20


def compression_of(data: bytes) -> str | None:
    """The name of the compression of these bytes, from how they start."""
    return next((name for name, magic in _MAGIC.items() if data.startswith(magic)), None)


def compression_for(path: str | os.PathLike[str], wanted: str | None) -> str | None:
    """The compression to write a file with: the one that is wanted, else the one that its name asks for.

    Raises:
        FormatError: there is no such compression.

    >>> compression_for("model.gir.gz", None), compression_for("model.gir.gz", "none")
    ('gzip', None)
    """
    if wanted == "none":
        return None
    if wanted is None:
        return _SUFFIXES.get(PurePath(path).suffix)
    if wanted not in COMPRESSIONS:
        raise FormatError(f"unknown compression {wanted!r}: choose from {', '.join(COMPRESSIONS)}, none")
    return wanted


def compress(data: bytes, compression: str) -> bytes:
    """The same bytes for the same input, whenever and wherever: no time and no name is kept.

    Raises:
        GradirError: its library is not installed.

    >>> decompress(compress(b"{}", "gzip"))
    b'{}'
    """
    if compression == "gzip":
        stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        return stream.compress(data) + stream.flush()
    packed: bytes = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(data)
    return packed


def decompress(data: bytes) -> bytes:
    """What was compressed; bytes that are not compressed as they are.

    Raises:
        FormatError: the data is damaged, or grows out of all proportion.
        GradirError: the library of its compression is not installed.
    """
    compression = compression_of(data)
    if compression is None:
        return data
    readers: dict[str, Callable[[bytes, int], bytes]] = {"gzip": _gunzip, "zstd": _unzstd}
    limit = room(len(data))
    found = readers[compression](data, limit)
    if len(found) > limit:
        raise FormatError(
            f"{len(data):,} bytes of {compression} hold more than {limit:,}, which no graph does; "
            f"if you trust the file, decompress it first"
        )
    if compression_of(found) is not None:
        raise FormatError("compressed twice: decompress it once first")
    return found


def room(compressed: int) -> int:
    """How many bytes may come out of this many compressed ones.

    >>> room(1000), room(1_000_000)
    (1048576, 1000000000)
    """
    return max(_SPARE, _EXPANSION * compressed)


def _gunzip(data: bytes, limit: int) -> bytes:
    pieces = []
    size = 0
    while data:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            try:
                piece = stream.decompress(data, _PIECE)
            except zlib.error as error:
                raise FormatError(f"damaged gzip data: {error}") from error
            data = stream.unconsumed_tail
            size += len(piece)
            pieces.append(piece)
            if size > limit:
                return b"".join(pieces)
            if not piece and not data and not stream.eof:
                raise FormatError("damaged gzip data: it was truncated")
        data = stream.unused_data
        if data and not data.startswith(_MAGIC["gzip"]):
            raise FormatError("damaged gzip data: something else follows it")
    return b"".join(pieces)


def _unzstd(data: bytes, limit: int) -> bytes:
    zstandard = _zstandard()
    pieces: list[bytes] = []
    size = at = 0
    while at < len(data):
        # The limit that the one-call form takes is ignored when the data states a size of its own.
        stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        try:
            while not stream.eof and at < len(data) and size <= limit:
                pieces.append(stream.decompress(data[at : at + _ZSTD_PIECE]))
                size += len(pieces[-1])
                at += _ZSTD_PIECE
        except zstandard.ZstdError as error:
            raise FormatError(f"damaged zstd data: {error}") from error
        if size > limit:
            break
        if not stream.eof:
            raise FormatError("damaged zstd data: it was truncated")
        at = min(at, len(data)) - len(stream.unused_data)
        if at < len(data) and not data.startswith(_MAGIC["zstd"], at):
            raise FormatError("damaged zstd data: something else follows it")
    return b"".join(pieces)


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise GradirError("zstd needs the package zstandard: pip install 'gradir[zstd]'") from error
    module: ModuleType = zstandard
    return module
