"""Graphs for the tests of the page: a stack of layers with everything that the page can tell, and a change of it."""

from __future__ import annotations

from msgspec.structs import replace

from gradir.ir import Builder, Cut, Graph, Node, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.cuts import FLOW

META = TensorMeta("float32", (4, 8))
WEIGHT = TensorMeta("float32", (8, 8))
WHOLE = 8 * 8


def layers_graph(layers: int = 4, activation: str = "gelu", *, flow: bool = False) -> Graph:
    """Equal layers under ``h``, each with two modules, and a head; with ``flow`` a cut at its input."""
    b = Builder()
    value = b.tensor("x", META)
    scopes = [
        Scope("", "Model", total=(2 * layers + 1) * WHOLE, trainable=(2 * layers + 1) * WHOLE),
        Scope("h", "ModuleList"),
    ]
    for layer in range(layers):
        path = f"h.{layer}"
        scopes.append(Scope(path, "Block", calls=1, total=2 * WHOLE, trainable=2 * WHOLE))
        for line, (name, op) in enumerate((("attn", "softmax"), ("mlp", activation))):
            inner = f"{path}.{name}"
            scopes.append(Scope(inner, name.upper(), "size=8", 1, WHOLE, WHOLE, WHOLE))
            weight = b.tensor(f"{inner}.weight", WEIGHT, role="parameter", scope=inner)
            seen = b.function("view", [value], [META], scope=inner)
            slots = [(Saved("self", "float32", (4, 8), 128), seen), (Saved("mat2", storage=f"{inner}.weight"), weight)]
            mixed = b.function(
                "mm",
                [seen, weight],
                [META],
                native="MmBackward0",
                scope=inner,
                attrs={"self_sym_sizes": (4, 8), "scale": 0.5},
                saved=slots,
                source=Source("net.py", 40 + line, "forward"),
            )
            kept = Saved("result", "float32", (4, 8), 128 * (line + 1))
            acted = b.function(
                op, [mixed], [META], scope=inner, saved=[(kept, None)], source=Source("net.py", 50 + line)
            )
            value = b.function("add", [value, acted], [META], scope=path)
    scopes.append(Scope("head", "Linear", "8 -> 8", 1, WHOLE, WHOLE, WHOLE))
    weight = b.tensor("head.weight", WEIGHT, role="parameter", scope="head")
    cut = b.function("mm", [None if flow else value, weight], [META], scope="head")
    b.output(b.function("sum", [cut, *([value] if flow else [])], [TensorMeta("float32", ())]))
    graph = b.build(scopes=scopes)
    if not flow:
        return graph
    place = Cut(
        "detach", ("lost.weight",), "head", META, "detach", Source("net.py", 77, "forward"), into="head/mm:1", slot=0
    )
    lost = Cut("unreached", ("lost.weight",), "head", WEIGHT)
    return replace(graph, cuts=(place, lost), producer=Producer(framework="torch", options={FLOW: True}))


def change_layers(graph: Graph) -> Graph:
    """Another activation in each layer, and one operation more in the head."""
    nodes = dict(graph.nodes)
    for name, node in graph.nodes.items():
        if node.op == "gelu":
            nodes[name] = replace(node, op="relu", saved=())
    last = nodes["output"]
    nodes["output"] = replace(last, inputs=(Ref("head/exp:1", 0),))
    more = Node("head/exp:1", op="exp", scope="head", inputs=last.inputs, outputs=last.outputs or (META,))
    order = [*(node for node in nodes.values() if node.id != "output"), more, nodes["output"]]
    return replace(graph, nodes={node.id: node for node in order})


def failing_graph() -> Graph:
    """The graph of a forward up to the operation that raised."""
    b = Builder()
    weight = b.tensor("fc.weight", WEIGHT, role="parameter", scope="fc")
    x = b.tensor("x", META, role="input")
    value = b.function("relu", [b.function("mm", [x, weight], [META], scope="fc")], [META])
    b.output(b.function("add", [value, weight], [], source=Source("net.py", 9, "forward")))
    graph = b.build(producer=Producer(framework="torch", options={"graph": "forward"}))
    nodes = {key: node for key, node in graph.nodes.items() if node.role != "output"}
    nodes["add:1"] = replace(nodes["add:1"], ext={"failed": "sizes 4 and 8 differ"})
    return replace(graph, nodes=nodes)
