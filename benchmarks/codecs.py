"""Saving and loading beside the raw codec on the same records, and the size of the encodings.

python benchmarks/codecs.py [--smoke]
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from gradir import codecs
from gradir.codecs.document import Document
from gradir.ir import Builder, Graph, Saved, Scope, TensorMeta

sys.path.insert(0, str(Path(__file__).parent))

from measure import is_smoke, table, time_in_turns


def layers(count: int) -> Graph:
    """A feed-forward network, as captured: for each layer two parameters, four functions and three saved tensors."""
    b = Builder()
    value = b.tensor("x", TensorMeta("float32", (32, 64)))
    for number in range(count):
        scope = f"layers.{number}.fc"
        tensors = [
            b.tensor(f"{scope}.{name}", TensorMeta("float32", shape), role="parameter", scope=scope)
            for name, shape in (("weight", (64, 64)), ("bias", (64,)))
        ]
        wide = [TensorMeta("float32", (32, 64))]
        weight = b.function("t", [tensors[0]], [TensorMeta("float32", (64, 64))], native="TBackward0", scope=scope)
        slots = [(Saved("mat1", "float32", (32, 64), 8192), value), (Saved("mat2", "float32", (64, 64), 16384), weight)]
        attrs = {"alpha": 1, "beta": 1, "mat1_sym_sizes": (32, 64), "mat2_sym_strides": (1, 64)}
        fc = b.function(
            "addmm", [tensors[1], value, weight], wide, native="AddmmBackward0", scope=scope, attrs=attrs, saved=slots
        )
        relu = b.function("relu", [fc], wide, native="ReluBackward0", scope=f"layers.{number}.act")
        value = b.function(
            "add", [relu, value], wide, native="AddBackward0", scope=f"layers.{number}", attrs={"alpha": 1}
        )
    b.output(value)
    return b.build(scopes=[Scope(f"layers.{number}", "Block", training=True) for number in range(count)])


def document(graph: Graph) -> Document:
    """The records of a graph, as the raw codec takes them."""
    return Document(
        format="gir",
        version="1.0",
        producer=graph.producer,
        scopes=tuple(graph.scopes.values()),
        cuts=graph.cuts,
        nodes=tuple(graph.nodes.values()),
    )


def time_codecs(count: int, repetitions: int) -> list[list[str]]:
    """Encoding and decoding one graph in milliseconds, and beside the raw codec with the collector paused."""
    graph = layers(count)
    records = document(graph)
    runs: dict[str, Callable[[object], object]] = {}
    for name, library in (("json", msgspec.json), ("msgpack", msgspec.msgpack)):
        data = codecs.encode(graph, name)
        encode, decode = library.Encoder(order="deterministic").encode, library.Decoder(Document).decode
        runs |= {
            f"{name} raw encode": lambda _, encode=encode: encode(records),
            f"{name} encode": lambda _, name=name: codecs.encode(graph, name),
            f"{name} raw decode": lambda _, decode=decode, data=data: decode(data),
            f"{name} decode": lambda _, data=data: codecs.decode(data),
            f"{name} survey": lambda _, data=data: codecs.survey(data),
        }
    gc.disable()
    seconds = time_in_turns(lambda: None, runs, repetitions)
    gc.enable()
    rows = []
    for name in codecs.ENCODINGS:
        encode, decode = seconds[f"{name} encode"], seconds[f"{name} decode"]
        against = [
            f"{encode / seconds[f'{name} raw encode']:.2f}",
            f"{decode / seconds[f'{name} raw decode']:.2f}",
        ]
        times = [f"{encode * 1e3:.1f}", f"{decode * 1e3:.1f}", f"{seconds[f'{name} survey'] * 1e3:.1f}"]
        rows.append([f"{len(graph.nodes):,}", name, *times, *against])
    return rows


def sizes(count: int) -> str:
    """Bytes a node in each form, and against plain JSON."""
    graph = layers(count)
    plain = len(codecs.encode(graph))
    rows = []
    for encoding in codecs.ENCODINGS:
        for compression in (None, *codecs.COMPRESSIONS):
            size = len(codecs.encode(graph, encoding, compression))
            rows.append([encoding, compression or "", f"{size / len(graph.nodes):.1f}", f"{plain / size:.1f}"])
    return table(["encoding", "compression", "bytes a node", "smaller than JSON, times"], rows)


def main() -> None:
    """Measure and print tables."""
    smoke = is_smoke(__doc__)
    rows = time_codecs(20, 1) if smoke else [*time_codecs(1_000, 9), *time_codecs(12_500, 5)]
    print(table(["nodes", "encoding", "save ms", "load ms", "info ms", "save / raw", "load / raw"], rows), flush=True)
    print()
    print(sizes(20 if smoke else 12_500))


if __name__ == "__main__":
    main()
