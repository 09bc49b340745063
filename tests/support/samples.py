"""Graphs built by hand for the tests: one that has everything, and hostile ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradir.ir import Builder, Cut, Graph, Node, NonFinite, Producer, Ref, Saved, Scope, Source, TensorMeta

HOSTILE_LABELS = (
    "quote \" and ' and `",
    "brackets [a](b){c}<d>",
    "<b>bold</b></script><!-- -->",
    "back\\slash\\",
    "line\nbreak\ttab\rreturn",
    "end",
    "graph",
    "#quot; &amp; &#35;",
    "emoji 🔥 and 漢字",
    "\u202eright-to-left\u2066",
    "\x1b[31mred\x07\x00",
    "",
    " ",
    "%% comment; subgraph x",
    "a-->b---c|d|",
    "x" * 10_000,
)


def everything() -> Graph:
    """A small graph that uses every feature of the IR."""
    b = Builder()
    float32 = "float32"
    x = b.tensor("x", TensorMeta(float32, (2, 3)))
    weight = b.tensor("fc.weight", TensorMeta(float32, (4, 3)), role="parameter", scope="fc")
    mean = b.tensor("norm.running_mean", TensorMeta(float32, (4,)), role="buffer", scope="norm")
    t = b.function("t", [weight], [TensorMeta(float32, (3, 4))], native="TBackward0", scope="fc")
    mm = b.function(
        "addmm",
        [None, x, t],
        [TensorMeta(float32, (2, 4))],
        native="AddmmBackward0",
        scope="fc",
        attrs={"alpha": 1, "beta": 1, "mat1_sym_sizes": (2, 3)},
        saved=[
            (Saved("mat1", float32, (2, 3), 24, storage="x"), x),
            (Saved("mat2", float32, (3, 4), 48, storage="fc.weight"), t),
        ],
        source=Source("model.py", 12, "forward"),
    )
    norm = b.function(
        "native_batch_norm",
        [mm, None, None],
        [TensorMeta(float32, (2, 4)), TensorMeta(float32, (4,)), TensorMeta(float32, (4,))],
        native="NativeBatchNormBackward0",
        scope="norm",
        attrs={"eps": 1e-05, "training": True, "momentum": NonFinite("nan"), "mask": ((True, False), (True,))},
        saved=[
            (Saved("input", float32, (2, 4), 32), mm),
            (Saved("running_mean", float32, (4,), 16, storage="norm.running_mean"), mean),
            (Saved("result1", float32, (4,), 16), None),
            (Saved("result2", state="freed"), None),
        ],
    )
    square = b.function("mul", [norm, norm], [TensorMeta(float32, (2, 4))], native="MulBackward0", names=["square"])
    opaque = b.function(
        "checkpoint_function", [square, None], [TensorMeta("bfloat16", (2, "s0"), device="cuda:0")], opaque=True
    )
    b.output(opaque, "0", base=square)
    b.output(norm.output(2), "1.var")
    return b.build(
        scopes=[
            Scope("", "Model", calls=1, total=16, trainable=16, training=True),
            Scope("fc", "Linear", "in_features=3, out_features=4, bias=False", 1, 12, 12, 12),
            Scope("norm", "BatchNorm1d", "4, eps=1e-05", 1, 4, 4, 4, training=False),
        ],
        cuts=[Cut("unreached", ("norm.bias",), "norm", TensorMeta(float32, (4,)))],
        producer=Producer("0.1.0", "torch", "2.13.0", {"scopes": True}),
    )


def hostile(labels: Sequence[str] = HOSTILE_LABELS) -> Graph:
    """A chain whose names, scopes, ops, attributes and slots are all hostile text."""
    b = Builder()
    value = b.tensor(labels[0], TensorMeta("float32", (1,)))
    for number, label in enumerate(labels):
        value = b.function(
            label or "empty",
            [value, None],
            [TensorMeta(label, (label, 1))],
            native=label,
            scope=label.replace("\x00", "0"),
            names=[label],
            attrs={label: label, "n": number},
            saved=[(Saved(label, label, (label,), number, state=label), value)],
        )
    b.output(value, labels[2])
    return b.build(scopes=[Scope(label, label, label) for label in labels])


def chain(length: int) -> Graph:
    """A chain of ``length`` functions over one leaf."""
    from gradir.ir import Node

    meta = (TensorMeta("float32", (1,)),)
    nodes = [Node("x", role="leaf", names=("x",), outputs=meta)]
    for number in range(1, length + 1):
        below = (Ref(nodes[-1].id, 0),)
        nodes.append(Node(f"add:{number}", op="add", native="AddBackward0", inputs=below, outputs=meta))
    nodes.append(Node("output", role="output", inputs=(Ref(nodes[-1].id, 0),), outputs=meta))
    return Graph.of(nodes)


def forward() -> Graph:
    """A small graph of a forward: every role of a tensor from outside, views, what writes in place, and a failure."""

    def call(id_: str, native: str, inputs: Sequence[str], *outputs: TensorMeta, **more: Any) -> Node:
        refs = tuple(Ref(each, 0) for each in inputs)
        return Node(id_, op=native.partition(".")[0], native=f"aten.{native}", inputs=refs, outputs=outputs, **more)

    wide, source = TensorMeta("float32", (2, 4)), Source("model.py", 12, "forward")
    weight, writes = TensorMeta("float32", (4, 3)), ("inplace", "data")
    nodes = [
        Node("input:1", role="input", outputs=(TensorMeta("float32", (2, 3)),)),
        Node("fc.weight", role="parameter", scope="fc", names=("fc.weight",), outputs=(weight,)),
        call(
            "fc/t:1",
            "t.default",
            ["fc.weight"],
            TensorMeta("float32", (3, 4)),
            scope="fc",
            kinds=("view",),
            source=source,
        ),
        call("fc/mm:1", "mm.default", ["input:1", "fc/t:1"], wide, scope="fc"),
        Node("mean", role="buffer", names=("mean",), outputs=(wide,)),
        Node("leaf:1", role="leaf", outputs=(wide,)),
        call("add_:1", "add_.Tensor", ["fc/mm:1", "leaf:1"], wide, names=("y",), kinds=writes, attrs={"alpha": 1}),
        call("lerp_:1", "lerp_.Scalar", ["mean", "add_:1"], wide, kinds=writes, attrs={"weight": 0.5}),
        call("argmax:1", "argmax.default", ["add_:1"], TensorMeta("int64", ())),
        call(
            "mm:1",
            "mm.default",
            ["add_:1", "fc/t:1"],
            ext={"failed": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 3x4)"},
        ),
        Node("output", role="output", inputs=(Ref("argmax:1", 0),), outputs=(TensorMeta("int64", ()),)),
    ]
    scopes = [
        Scope("", "Model", calls=1, total=12, trainable=12),
        Scope("fc", "Linear", "in_features=3", 1, 12, 12, 12),
    ]
    return Graph.of(nodes, scopes, producer=Producer("0.1.0", "torch", "2.13.0", {"graph": "forward"}))
