"""A small graph in which gradient ends as one says: its cuts, and the graph with them."""

from __future__ import annotations

from gradir.ir import Cut, Graph, Node, Producer, Ref, Scope, Source, TensorMeta
from gradir.ir.cuts import FLOW

META = (TensorMeta("float32", (3,)),)
DETACH = Cut(
    "detach",
    ("fc.weight", "fc.bias"),
    "fc",
    META[0],
    "detach",
    Source("net.py", 41, "Net.forward"),
    at="fc/addmm:1",
    into="head/mul:1",
    slot=0,
)
NO_GRAD = Cut("no_grad", ("teacher.weight",), "teacher", META[0], "mul", Source("net.py", 45), Source("lib.py", 7))
UNUSED = [Cut("unreached", (f"unused.{name}",), "unused", META[0]) for name in ("weight", "bias")]


def small(*cuts: Cut) -> Graph:
    """A detach beside an undetached branch, a branch under no_grad and an unused module."""
    nodes = [
        Node("fc.weight", "parameter", names=("fc.weight",), scope="fc", outputs=META),
        Node(
            "fc/addmm:1", op="addmm", native="AddmmBackward0", scope="fc", inputs=(Ref("fc.weight", 0),), outputs=META
        ),
        Node("head.weight", "parameter", names=("head.weight",), scope="head", outputs=META),
        Node(
            "head/mul:1",
            op="mul",
            native="MulBackward0",
            scope="head",
            inputs=(None, Ref("head.weight", 0)),
            outputs=META,
        ),
        Node(
            "add:1",
            op="add",
            native="AddBackward0",
            inputs=(Ref("fc/addmm:1", 0), Ref("head/mul:1", 0)),
            outputs=META,
        ),
        Node("output", "output", inputs=(Ref("add:1", 0),), outputs=META),
    ]
    scopes = [Scope("", "Net"), *(Scope(path, "Linear") for path in ("fc", "head", "teacher", "unused"))]
    return Graph.of(nodes, scopes, cuts, Producer(options={FLOW: True}))
