"""What one rank of many costs that is captured without the others: processor time and memory of its process.

python benchmarks/lone_rank.py [--smoke]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measure import is_smoke, table

SPEC = Path(__file__).parent / "meshes.py"
MEBIBYTE = 2**20
KIBIBYTE = 2**10


def cost(data: int, tensors: int, layers: int, *more: str) -> list[str]:
    """One row: the mesh, what is captured, its nodes and collectives, and what the process took."""
    world = data * tensors
    arguments = ["capture", f"{SPEC}:llama", "--rank", str(min(17, world - 1)), "--world", str(world), *more]
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder, "rank.gir"))
        command = [sys.executable, "-m", "gradir", *arguments, "-o", output, "--", str(data), str(tensors), str(layers)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        told = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(told)
        size = Path(output).stat().st_size
    nodes = re.search(r": ([\d,]+) nodes?,", told)
    assert nodes is not None
    memory = used.ru_maxrss * (1 if sys.platform == "darwin" else KIBIBYTE)
    return [
        f"{data} x {tensors}",
        str(layers),
        " ".join(more) or "graph alone",
        nodes[1],
        f"{size / KIBIBYTE:,.0f}",
        f"{used.ru_utime + used.ru_stime:.1f}",
        f"{memory / MEBIBYTE:,.0f}",
    ]


def main() -> None:
    heads = ["dp x tp", "layers of Llama 7B", "captured", "nodes", "KiB", "processor s", "MiB"]
    if is_smoke(__doc__):
        print(table(heads, [cost(2, 2, 2, "--collectives")]))
    else:
        print(table(heads, [cost(128, 8, 32), cost(128, 8, 32, "--collectives")]))


if __name__ == "__main__":
    main()
