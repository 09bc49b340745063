"""What it costs to compare the files of many ranks and to find a hang or mixed tensors, in its own process.

python benchmarks/ranks.py [--smoke]
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent))

from measure import is_smoke, run_measured, table

from gradir.ir import Builder, Collective, Graph, Rank, Scope, Source, TensorMeta

META = TensorMeta("float32", (64, 64))
TENSORS = 8
"""Ranks that share a layer's matrices; the others of a column share its data."""

NODES_OF_A_LAYER = 20
FEW = 2
EACH = 9
"""Collectives of a layer."""


def graph(nodes: int) -> Graph:
    """A stack of layers, each a chain of functions with a parameter in the middle."""
    b = Builder()
    layers = range(max(1, nodes // NODES_OF_A_LAYER))
    value = b.tensor("x", META)
    for layer in layers:
        path = f"h.{layer}"
        weight = b.tensor(f"{path}.w", META, role="parameter", scope=path)
        for step in range(NODES_OF_A_LAYER - 1):
            value = b.function("mm" if step else "add", [value, weight], [META], scope=path)
    b.output(value)
    return b.build(scopes=[Scope(""), Scope("h"), *(Scope(f"h.{layer}", "Block") for layer in layers)])


def issue_collectives(layers: int, each: int, *, mixes: bool = False) -> list[Collective]:
    """The collectives of a rank: of each layer some on its row, and one on its column.

    A rank that mixes tensors gathers the first two layers in another order.
    """
    made = []
    for layer in range(layers):
        scope = f"h.{1 - layer if mixes and layer < FEW else layer}"
        made.append(Collective("forward", "all_gather", "dp", tensors=(META,), scope=scope, operands=(f"{scope}.w",)))
    for layer in range(layers):
        node = f"h.{layer}/mm:1"
        made += [Collective("backward", "all_reduce", "tp", reduce="sum", tensors=(META,), node=node)] * (each - 2)
        made.append(Collective("backward", "reduce_scatter", "dp", reduce="avg", tensors=(META,), node=node))
    return made


def unlike(each: Collective, rank: int) -> Collective:
    """A collective of the backward with a line that no other rank has."""
    return each if each.phase == "forward" else replace(each, source=Source("train.py", rank))


def write(path: Path, one: Graph, rank: int, world: int, collectives: list[Collective]) -> None:
    """The file of a rank of a mesh."""
    row, column = rank // TENSORS, rank % TENSORS
    groups = {"dp": tuple(range(column, world, TENSORS)), "tp": tuple(range(row * TENSORS, (row + 1) * TENSORS))}
    values = {path: 2**52 + number for number, path in enumerate(one.scopes)}
    record = Rank(rank, world, coordinates={"dp": row, "tp": column}, groups=groups, values=values)
    replace(one, rank=record, collectives=tuple(collectives)).save(path, format="msgpack")


def cost(name: str, paths: list[Path], nodes: int, collectives: int, finding: str = "") -> list[str]:
    """One row: what is compared, what was found, and what the process took."""
    done = run_measured([sys.executable, "-m", "gradir", "ranks", *map(str, paths)])
    if done.status != bool(finding) or any((each in done.output) != (each == finding) for each in ("HANG", "MIXED")):
        raise SystemExit(done.output)
    proved = re.search(r"^([\d,]+) collectives, each entered", done.output, re.MULTILINE)
    return [
        name,
        f"{len(paths):,}",
        f"{nodes:,}",
        f"{len(paths) * collectives:,}",
        finding.lower() or f"{proved[1] if proved else 0} proved",
        done.seconds,
        done.memory,
    ]


def main() -> None:
    world, nodes, count = (16, 200, 18) if is_smoke(__doc__) else (1024, 10_000, 900)
    heads = ["run", "ranks", "nodes each", "collectives", "found", "processor s", "MiB"]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"run.{rank}.gir") for rank in range(world)]
        one, lists = graph(nodes), issue_collectives(count // EACH, EACH)
        for rank, path in enumerate(paths):
            write(path, one, rank, world, lists)
        rows = [cost("all alike", paths, nodes, count)]
        mixing = issue_collectives(count // EACH, EACH, mixes=True)
        write(paths[-1], one, world - 1, world, mixing)
        rows.append(cost("the last mixes tensors", paths, nodes, count, "MIXED"))
        write(paths[-1], one, world - 1, world, lists[:-EACH])
        rows.append(cost("the last leaves out a layer", paths, nodes, count, "HANG"))
        small = graph(NODES_OF_A_LAYER)
        for name, last, finding in (("mixes tensors", mixing, "MIXED"), ("leaves out a layer", lists[:-EACH], "HANG")):
            for rank, path in enumerate(paths):
                write(path, small, rank, world, [unlike(each, rank) for each in (last if rank + 1 == world else lists)])
            rows.append(cost(f"no list like another, the last {name}", paths, len(small.nodes), count, finding))
    print(table(heads, rows))


if __name__ == "__main__":
    main()
