"""A coverage-guided fuzzer of both decoders, half of whose mutants are made with a look at the structure of a document.

It needs atheris and runs until stopped, or as libFuzzer is told::

    python tests/fuzz/decoders.py CORPUS -max_total_time=120

CORPUS is a folder, filled with small files of every encoding when it is empty. A finding ends the run with a trace.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

import atheris

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

with atheris.instrument_imports(include=["gradir"]):
    from gradir import codecs
    from gradir.errors import FormatError
    from gradir.ir.validate import check

from mutation import mutate  # noqa: E402
from samples import chain, everything  # noqa: E402


def one_input(data: bytes) -> None:
    """Count, read, check, write and read again: a graph or a `FormatError`, and the same graph in both encodings."""
    found, graph = result_of(codecs.survey, data), result_of(codecs.decode, data)
    if graph is None:
        return
    assert found is not None
    check(graph)
    for encoding in codecs.ENCODINGS:
        again = codecs.decode(codecs.encode(graph, encoding, lossy=True))
        assert (again.nodes, again.scopes, again.cuts) == (graph.nodes, graph.scopes, graph.cuts)


def result_of(function: Callable[[bytes], T], data: bytes) -> T | None:
    """What comes out, or ``None`` for a `FormatError`."""
    try:
        return function(data)
    except FormatError as error:
        assert str(error).isprintable()  # noqa: PT017 (no test)
        return None


def one_mutant(data: bytes, max_size: int, seed: int) -> bytes:
    """What libFuzzer tries next."""
    chance = Random(seed)
    found = mutate(data, chance) if chance.random() < 0.5 else b""
    return found if 0 < len(found) <= max_size else atheris.Mutate(data, max_size)


def fill(corpus: Path) -> None:
    """Put a few files where there are none."""
    corpus.mkdir(parents=True, exist_ok=True)
    if any(corpus.iterdir()):
        return
    for name, graph in (("everything", everything()), ("chain", chain(3))):
        for encoding in codecs.ENCODINGS:
            for compression in (None, *codecs.COMPRESSIONS):
                path = corpus / f"{name}.{encoding}.{compression}"
                path.write_bytes(codecs.encode(graph, encoding, compression))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    fill(Path(sys.argv[1]))
    atheris.Setup(sys.argv, one_input, custom_mutator=one_mutant)
    atheris.Fuzz()
