"""Compressed files that somebody else made: bombs, members, and what is no document."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import zlib

import pytest
import zstandard
from bombs import bombs
from hostile_forms import FORMS, PROMISED_PER_BYTE, encode_form, peak_of
from samples import chain, everything

import gradir
from gradir import codecs
from gradir.codecs.compression import size_limit
from gradir.errors import FormatError, GradirError
from gradir.ir import Graph, Node


def gzip_bomb(size: int) -> bytes:
    return gzip.compress(b'{"format":' + b" " * size, 9)


def zstd_bomb(size: int) -> bytes:
    return zstandard.ZstdCompressor(level=19).compress(b"{" + b" " * size)


def lying_zstd_bomb(size: int) -> bytes:
    """A frame that states a size of 2 GiB, and repeats one byte in blocks of 128 kB."""
    count = size >> 17
    blocks = b"".join(
        struct.pack("<I", (1 << 17) << 3 | 1 << 1 | (number == count - 1))[:3] + b" " for number in range(count)
    )
    return b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + struct.pack("<Q", 2 << 30) + blocks


@pytest.mark.parametrize("bomb", [gzip_bomb, zstd_bomb, lying_zstd_bomb])
def test_a_bomb_does_not_go_off(bomb) -> None:
    data = bomb(100 << 20)
    assert len(data) < 1 << 20
    with pytest.raises(FormatError, match=r"the limit for a graph|a window of more than 128 MiB"):
        gradir.loads(data)
    assert peak_of(data) < size_limit(len(data)) + (64 << 20)


@pytest.mark.parametrize("form", ["gzip", "zstd"])
@pytest.mark.parametrize("what", [b" ", b"[0],", b"<a>\n", gzip.compress(b"{}")], ids=["white", "json", "xml", "twice"])
def test_decompression_of_anything_but_a_document_stops_early(what: bytes, form: str) -> None:
    text = what * ((32 << 20) // len(what))
    data = gzip.compress(text) if form == "gzip" else zstandard.ZstdCompressor().compress(text)
    del text
    with pytest.raises(FormatError, match=r"not a GIR document|compressed twice"):
        gradir.loads(data)
    # What a few hundred bytes of each may become: docs/format.md says 9 MiB.
    assert peak_of(data) < (1 << 20 if form == "gzip" else 9 << 20)


@pytest.mark.parametrize("name", ["json null inputs", "json unknown maps", "msgpack nodes"])
def test_memory_is_in_proportion_to_the_compressed_file(name: str) -> None:
    document = bombs(100_000)[name]
    noise = random.Random(0)
    data = gzip.compress(document)
    # Members that hold nothing, with a comment that does not shrink, make it as small as it may be and no smaller.
    while size_limit(len(data)) < len(document):
        comment = bytes(
            noise.randrange(1, 256) for _ in range(min(1 + (len(document) - size_limit(len(data))) // 200, 9999))
        )
        data += b"\x1f\x8b\x08\x10" + bytes(6) + comment + b"\0\x03" + bytes(9)
    assert gradir.loads(data) is not None
    assert peak_of(data) < PROMISED_PER_BYTE * max(1 << 20, 200 * len(data)) + (10 << 20)


def test_a_document_of_more_than_two_hundred_times_its_file_is_refused() -> None:
    data = gzip.compress(gradir.dumps(everything()) + b" " * (2 << 20))
    assert len(data) * 200 < 2 << 20
    with pytest.raises(
        FormatError, match=r"expand to more than 1,048,576, the limit for a graph; if you trust the file, "
    ):
        gradir.loads(data)


def test_a_bomb_of_many_small_members() -> None:
    member = gzip.compress(b" " * 100_000, 9)
    with pytest.raises(FormatError, match=r"the limit for a graph|not a GIR document"):
        gradir.loads(member * 100)


def test_a_file_compressed_twice_is_refused() -> None:
    with pytest.raises(FormatError, match="compressed twice"):
        gradir.loads(gzip.compress(codecs.encode(everything(), "json", "gzip")))


def test_several_members_are_one_document() -> None:
    data = gradir.dumps(everything())
    for squeeze in (gzip.compress, zstandard.ZstdCompressor().compress):
        assert gradir.loads(squeeze(data[:500]) + squeeze(data[500:])) == everything()
        with pytest.raises(FormatError, match="something else follows it"):
            gradir.loads(squeeze(data) + b"more")


def skippable(size: int) -> bytes:
    """A frame of Zstandard that is for other programs."""
    return b"\x5a\x2a\x4d\x18" + struct.pack("<I", size) + b"x" * size


def test_frames_of_zstd_that_are_for_others_are_skipped() -> None:
    squeeze = zstandard.ZstdCompressor().compress
    data = gradir.dumps(everything())
    whole = squeeze(data)
    for frames in (
        skippable(5) + whole,
        whole + skippable(300),
        squeeze(data[:500]) + skippable(0) + squeeze(data[500:]),
    ):
        assert gradir.loads(frames) == everything()
        assert codecs.survey(frames).compression == "zstd"
    with pytest.raises(FormatError, match=r"damaged zstd data: it was truncated"):
        gradir.loads(whole + skippable(9)[:-1])
    with pytest.raises(FormatError, match=r"the file is empty"):
        gradir.loads(skippable(3) * 2)


def test_a_wide_window_is_reported_as_wide() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = stream.compress(gradir.dumps(everything())) + stream.flush()
    with pytest.raises(FormatError, match=r"byte 0: the zstd data has a window of more than 128 MiB; compress "):
        gradir.loads(data)


def test_a_compressed_graph_of_one_repeated_layer_is_read() -> None:
    """The limits are not in the way of graphs, however well they compress."""
    graph = chain(20_000)
    for form in FORMS:
        assert gradir.loads(encode_form(graph, form)) == graph


def test_compression_is_deterministic_and_names_nothing() -> None:
    data = codecs.encode(everything(), "json", "gzip")
    assert data == codecs.encode(everything(), "json", "gzip")
    assert data[4:8] == b"\x00\x00\x00\x00"
    assert zlib.decompress(data, 31) == gradir.dumps(everything())


def test_without_the_library_zstd_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data = codecs.encode(everything(), "json", "zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for use in (lambda: gradir.loads(data), lambda: gradir.dumps(everything(), compress="zstd")):
        with pytest.raises(GradirError, match=r"pip install 'gradir\[zstd\]'"):
            use()


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_file_that_a_reader_takes_for_a_bomb_is_not_written(encoding: str, compression: str) -> None:
    graph = Graph.of([Node("a", names=("x" * (4 << 20),))])
    with pytest.raises(FormatError, match="which readers refuse as a bomb; write it without compression"):
        codecs.encode(graph, encoding, compression)
    assert codecs.decode(codecs.encode(graph, encoding)) == graph
