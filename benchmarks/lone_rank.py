"""What one rank of many costs that is captured without the others: processor time and memory of its process.

python benchmarks/lone_rank.py [--smoke]
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measure import is_smoke, run_measured, table

SPEC = Path(__file__).parent / "meshes.py"


def cost(data: int, tensors: int, layers: int, *more: str) -> list[str]:
    """One row: the mesh, what is captured, its nodes and collectives, and what the process took."""
    world = data * tensors
    arguments = ["capture", f"{SPEC}:llama", "--rank", str(min(17, world - 1)), "--world", str(world), *more]
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder, "rank.gir"))
        command = [sys.executable, "-m", "gradir", *arguments, "-o", output, "--", str(data), str(tensors), str(layers)]
        done = run_measured(command, "stderr")
        if done.status:
            raise SystemExit(done.output)
        size = Path(output).stat().st_size
    nodes = re.search(r": ([\d,]+) nodes?,", done.output)
    assert nodes is not None
    return [
        f"{data} x {tensors}",
        str(layers),
        " ".join(more) or "graph alone",
        nodes[1],
        f"{size / 2**10:,.0f}",
        done.seconds,
        done.memory,
    ]


def main() -> None:
    heads = ["dp x tp", "layers of Llama 7B", "captured", "nodes", "KiB", "processor s", "MiB"]
    if is_smoke(__doc__):
        print(table(heads, [cost(2, 2, 2, "--collectives")]))
    else:
        print(table(heads, [cost(128, 8, 32), cost(128, 8, 32, "--collectives")]))


if __name__ == "__main__":
    main()
