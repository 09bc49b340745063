"""What must hold of every document, however broken: one clear error, or a graph that everything else can work with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from mutation import Mutant
from plugins import BUILT_IN
from reports import markdown, render_details, render_text
from steps import measure_memory

import gradir
from gradir import codecs, registry
from gradir.cli import info_command, validate_command
from gradir.codecs.compression import size_limit
from gradir.diffs import diff_json
from gradir.diffs.changes import Diff
from gradir.errors import GradirError
from gradir.ir import Graph
from gradir.ir.totals import totals
from gradir.ir.validate import check_all

__all__ = ["check_mutant", "quietly"]

T = TypeVar("T")

_LONGEST_LINE: Final = 1000
"""What an error quotes of a file is cut short, so no file makes a longer one."""

_PER_BYTE: Final = 125
_PER_BYTE_OF_A_DIFF: Final = 250
_SPARE: Final = 1 << 20

# Every so many mutants are looked at more closely.
_EXPORTED: Final = 8
_COMPARED: Final = 4
_SHOWN: Final = 16
_MEASURED: Final = 16


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of files of newer versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check_mutant(mutant: Mutant, number: int) -> bool:
    """Do with a mutant what there is to do, and fail on anything but a graph or one clear error.

    ``number`` says which of the dearer checks are made. The result is whether it could be read.
    """
    if mutant.kind == "diff":
        return _check_diff(mutant.data, mutant.graphs, number)
    return _check_document(mutant.data, mutant.graphs[0], number)


def _check_document(data: bytes, original: Graph, number: int) -> bool:
    graph, _ = _result(gradir.loads, data)
    if number % _MEASURED == 0:
        _check_memory(data)
    survey, _ = _result(codecs.survey, data)
    if survey is not None:
        assert msgspec.json.encode(survey)
        assert all(map(str.isprintable, info_command.describe_survey(survey).splitlines()))
    strict, _ = _result(partial(validate_command._check_document, strict=True), data)
    if graph is None:
        assert strict is None, "valid and unreadable"
        return False
    assert survey is not None, "readable and not countable"
    assert survey.totals == totals(graph), "counted otherwise than read"
    valid, _ = _result(partial(validate_command._check_document, strict=False), data)
    assert strict is None or valid is not None, "strictly valid and not valid"
    _check_graph(graph, original, number)
    return True


def _check_graph(graph: Graph, original: Graph, number: int) -> None:
    plain = Graph(graph.nodes, graph.scopes, cuts=graph.cuts, producer=graph.producer)
    check_all(plain)
    for encoding in codecs.ENCODINGS:
        data = codecs.encode(graph, encoding, lossy=True)
        again = codecs.decode(data)
        assert again == plain, "written, and read as another graph"
        assert codecs.encode(again, encoding) == data, "two spellings of one graph"
    if number % _COMPARED == 0:
        _check_comparison(original, plain, number)
    if number % _EXPORTED == 0:
        for name in BUILT_IN:
            _result(lambda name=name: _export(name, plain))


def _check_comparison(a: Graph, b: Graph, number: int) -> None:
    found = gradir.diff(a, b)
    assert gradir.patch(a, found) == b
    assert gradir.unpatch(b, found) == a
    assert diff_json.decode(diff_json.encode(found)) == found
    if number % _SHOWN == 0:
        assert render_details(found, (a, b), width=100)
        assert render_text(found, (a, b))
        assert markdown(a, b, found)


def _export(name: str, graph: Graph) -> str:
    # Not through the registry, which says of any exception that the exporter failed.
    text: str = registry.exporter(name).export(graph, registry.exporter_options(name, {}))
    text.encode()
    return text


def _check_diff(data: bytes, sides: tuple[Graph, ...], number: int) -> bool:
    if number % _MEASURED == 0:
        _, peak = measure_memory(lambda: _result(diff_json.decode, data))
        assert peak < _PER_BYTE_OF_A_DIFF * len(data) + _SPARE, f"{peak:,} bytes for {len(data):,}"
    diff, _ = _result(diff_json.decode, data)
    if diff is None:
        return False
    written = diff_json.encode(diff)
    assert diff_json.decode(written) == diff, "written, and read as another diff"
    for there, back, graph in ((gradir.patch, gradir.unpatch, sides[0]), (gradir.unpatch, gradir.patch, sides[-1])):
        _check_patch(there, back, graph, diff)
    return True


def _check_patch(there: Callable[[Graph, Diff], Graph], back: Any, graph: Graph, diff: Diff) -> None:
    changed, _ = _result(lambda: there(graph, diff))
    if changed is None:
        return
    for encoding in codecs.ENCODINGS:
        assert codecs.decode(codecs.encode(changed, encoding)) == changed
    _result(lambda: back(changed, diff))


def _result(function: Callable[..., T], *arguments: object) -> tuple[T | None, str]:
    """What comes out, or nothing and the one line that says why."""
    try:
        return function(*arguments), ""
    except GradirError as error:
        said = str(error)
        assert said, "an error without a word"
        assert said.isprintable(), f"not printable: {said!r}"
        assert len(said) <= _LONGEST_LINE, f"an error of {len(said):,} characters: {said[:99]!r}"
        return None, said


def _check_memory(data: bytes) -> None:
    compression = codecs.compression_of(data)
    size = len(data) if compression is None else min(size_limit(len(data)), _measure_grown(data))
    for read in (gradir.loads, codecs.survey):
        _, peak = measure_memory(lambda read=read: _result(read, data))
        assert peak < _PER_BYTE * size + _SPARE + 3 * _SPARE * bool(compression), f"{peak:,} bytes for {size:,}"


def _measure_grown(data: bytes) -> int:
    """The size of what was compressed, as far as it can be told."""
    found, _ = _result(codecs.decompress, data)
    return size_limit(len(data)) if found is None else len(found)
