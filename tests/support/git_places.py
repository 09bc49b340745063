"""What the tests that run git have in common; the fixtures are in `git_fixtures`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace
from samples import everything

from gradir.ir import Graph

Run = Callable[..., str]

_NORM = (
    "function norm/native_batch_norm:1 = native_batch_norm(fc/addmm:1, -, -) float32[2, 4], float32[4], float32[4] "
    "eps={} mask=[[true, false], [true]] momentum=nan training=true saved 48 ? freed\n"
)
FACT = f"-{_NORM.format('1e-05')}+{_NORM.format('0.5')}"
"""How git shows what `changed` changes."""


def change_eps(eps: float = 0.5) -> Graph:
    """The sample with another eps."""
    graph = everything()
    norm = graph.nodes["norm/native_batch_norm:1"]
    edited = replace(norm, attrs={**norm.attrs, "eps": eps})
    return replace(graph, nodes={**graph.nodes, norm.id: edited})


def runner(folder: Path, environment: dict[str, str]) -> Run:
    def run(*command: str, input: str | None = None, status: int = 0) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, input=input, check=False
        )
        assert done.returncode == status, (command, done)
        assert "Traceback" not in done.stderr
        return done.stdout + (done.stderr if status else "")

    return run
