"""A small graph in which gradient ends as one says: its cuts, and the graph with them."""

from __future__ import annotations

from msgspec.structs import replace

from gradir.ir import Builder, Cut, Graph, Producer, Scope, Source, TensorMeta
from gradir.ir.cuts import FLOW

META = TensorMeta("float32", (3,))
DETACH = Cut(
    "detach",
    ("fc.weight", "fc.bias"),
    "fc",
    META,
    "detach",
    Source("net.py", 41, "Net.forward"),
    at="fc/addmm:1",
    into="head/mul:1",
    slot=0,
)
NO_GRAD = Cut("no_grad", ("teacher.weight",), "teacher", META, "mul", Source("net.py", 45), Source("lib.py", 7))
UNUSED = [Cut("unreached", (f"unused.{name}",), "unused", META) for name in ("weight", "bias")]


def small(*cuts: Cut) -> Graph:
    """A detach beside an undetached branch, a branch under no_grad and an unused module."""
    b = Builder()
    weights = [b.tensor(f"{path}.weight", META, role="parameter", scope=path) for path in ("fc", "head")]
    fc = b.function("addmm", weights[:1], [META], native="AddmmBackward0", scope="fc")
    head = b.function("mul", [None, weights[1]], [META], native="MulBackward0", scope="head")
    b.output(b.function("add", [fc, head], [META], native="AddBackward0"))
    scopes = [Scope("", "Net"), *(Scope(path, "Linear") for path in ("fc", "head", "teacher", "unused"))]
    return replace(b.build(scopes=scopes, producer=Producer(options={FLOW: True})), cuts=cuts)
