"""Compress and decompress documents with gzip and Zstandard, within a limit on the size."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from gradir.codecs.document import encoding_of
from gradir.codecs.faults import byte, damage
from gradir.errors import FormatError, GradirError

COMPRESSIONS: Final = ("gzip", "zstd")
# The compression by the suffix of a file to write. A reader looks at the content only.
_SUFFIXES: Final[Mapping[str, str]] = {".gz": "gzip", ".zst": "zstd"}
_MAGIC: Final[Mapping[str, bytes]] = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}
# A skippable frame of Zstandard and its length (RFC 8878, 3.1.2), which may precede the data.
_SKIPPABLE: Final = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18(.{4})", re.DOTALL)
_NUMBERED: Final = re.compile(r"(?:line [0-9,]*[0-9], )?(?:byte|line) [0-9,]*[0-9]")
_GZIP_LEVEL: Final = 6
# zlib's largest window, 15, and 16 more for the head of gzip instead of zlib's own.
_GZIP_WINDOW: Final = 31
_ZSTD_LEVEL: Final = 9
# `zstd -d` grants this much memory without --long.
_ZSTD_WINDOW: Final = 1 << 27
# Graphs grow 3 to 100 times; a bomb grows a thousand times and more.
_EXPANSION: Final = 200
# Every file may grow to one MiB, since a small one is mostly repeated keys.
_SPARE: Final = 1 << 20
# The bytes to decompress at a time. They can become 258 kiB with gzip, and 8 MiB with zstd, which can encode a block of
# 128 kiB in a few bytes.
_PIECE: Final = 256
# The size of the beginning that shows whether data is a document. gradir decompresses nothing else to its end.
_START: Final = 1 << 16


def compression_of(data: bytes) -> str | None:
    """Return the name of the compression of bytes by their beginning."""
    if _SKIPPABLE.match(data):
        return "zstd"
    return next((name for name, magic in _MAGIC.items() if data.startswith(magic)), None)


def compression_for(path: str | bytes | os.PathLike[str], wanted: str | None) -> str | None:
    """Return the wanted compression of a file, or else the compression of its suffix."""
    if wanted == "none":
        return None
    if wanted is None:
        return _SUFFIXES.get(os.path.splitext(os.path.normpath(os.fsdecode(path)))[1])  # noqa: PTH122 (pathlib takes 3 ms to load)
    if wanted not in COMPRESSIONS:
        raise FormatError(f"unknown compression {wanted!r}: choose from {', '.join(COMPRESSIONS)}, none")
    return wanted


def compress(data: bytes, compression: str) -> bytes:
    """Return compressed bytes without a time and a name, so that equal input gives equal bytes everywhere."""
    if compression == "gzip":
        import zlib

        stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        return stream.compress(data) + stream.flush()
    # The checksum finds damage that still decompresses; gzip always has one.
    packed: bytes = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(data)
    return packed


def decompress(data: bytes) -> bytes:
    """Return decompressed bytes, and bytes that are not compressed unchanged."""
    compression = compression_of(data)
    if compression is None:
        return data
    pieces, size, limit, is_checked = list[bytes](), 0, size_limit(len(data)), False
    for piece in _decompress_pieces(data, compression):
        pieces.append(piece)
        size += len(piece)
        if size >= _START and not is_checked:
            _check_start(b"".join([piece[:_START] for piece in pieces]))
            is_checked = True
        if size > limit:
            raise FormatError(
                f"{len(data):,} bytes of {compression} expand to more than {limit:,}, the limit for a graph",
                advice="if you trust the file, decompress it first",
            )
    document = b"".join(pieces)
    if not is_checked:
        _check_start(document)
    return document


@contextmanager
def open_decompressed(data: bytes) -> Iterator[bytes]:
    """Yield the decompressed bytes, and mark the places in errors as places after decompression."""
    document = decompress(data)
    try:
        yield document
    except FormatError as error:
        if document is data:
            raise
        raise _mark_decompressed(error) from error


def _mark_decompressed(error: FormatError) -> FormatError:
    return error.replace(place=_NUMBERED.sub(r"\g<0> after decompression", error.place))


def size_limit(compressed: int) -> int:
    """Return the largest size that compressed bytes may decompress to."""
    return max(_SPARE, _EXPANSION * compressed)


def _check_start(document: bytes) -> None:
    if compression_of(document) is not None:
        raise FormatError("compressed twice", advice="decompress it once")
    try:
        encoding_of(document)
    except FormatError as error:
        raise _mark_decompressed(error) from error


def _decoder(compression: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return a function that makes a decoder of one member, and its error."""
    if compression == "gzip":
        import zlib

        return lambda: zlib.decompressobj(_GZIP_WINDOW), zlib.error
    zstandard = _zstandard()
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj, zstandard.ZstdError


def _decompress_pieces(data: bytes, compression: str) -> Iterator[bytes]:
    """Decompress the members in small pieces, since zstd does not always respect a limit on the output."""
    decoder, error_type = _decoder(compression)
    at = 0
    while at < len(data):
        skipped = _SKIPPABLE.match(data, at) if compression == "zstd" else None
        if skipped is not None:
            at = skipped.end() + int.from_bytes(skipped[1], "little")
            if at > len(data):
                raise damage("damaged zstd data: it was truncated", byte(len(data)))
            continue
        if not data.startswith(_MAGIC[compression], at):
            raise damage(f"damaged {compression} data: something else follows it", byte(at))
        member = decoder()
        try:
            while not member.eof and at < len(data):
                yield member.decompress(data[at : at + _PIECE])
                at += _PIECE
        except error_type as error:
            if "requires too much memory" in str(error):
                raise FormatError(
                    f"the {compression} data has a window of more than {_ZSTD_WINDOW >> 20} MiB",
                    place=byte(at),
                    advice="compress it again without --long or --ultra",
                ) from error
            problem = f"damaged {compression} data, in the {min(_PIECE, len(data) - at):,} bytes from here"
            raise damage(problem, byte(at)) from error
        if not member.eof:
            raise damage(f"damaged {compression} data: it was truncated", byte(len(data)))
        # The next member may begin within the last piece.
        at = min(at, len(data)) - len(member.unused_data)


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise GradirError("zstd needs the package zstandard: pip install 'gradir[zstd]'") from error
    module: ModuleType = zstandard
    return module
