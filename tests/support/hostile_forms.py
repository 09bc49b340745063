"""Every form of a file, what may come of reading a broken one, and the memory that reading takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from steps import measure_memory

import gradir
from gradir import codecs
from gradir.errors import FormatError
from gradir.ir import Graph
from gradir.ir.validate import check

T = TypeVar("T")

FORMS = [(encoding, compression) for encoding in ("json", "msgpack") for compression in (None, "gzip", "zstd")]
PROMISED_PER_BYTE = 125
"""What docs/format.md promises: bytes of memory for each byte of a document that is not compressed."""


def encode_form(graph: Graph, form: tuple[str, str | None]) -> bytes:
    return codecs.encode(graph, form[0], form[1])


def read(data: bytes) -> Graph | None:
    """The graph, or ``None`` for one clear error; anything else is a failure."""
    graph = result_of(gradir.loads, data)
    found = result_of(codecs.survey, data)
    if graph is not None:
        check(graph)
        assert found is not None
    return graph


def result_of(function: Callable[[bytes], T], data: bytes) -> T | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(data)
        except FormatError as error:
            message = str(error)
            assert message
            assert message.isprintable(), message
            return None


def peak_of(data: bytes) -> int:
    """The most memory, in bytes, that reading or counting took."""
    return measure_memory(lambda: read(data))[1]
