"""Pairs of graphs to compare: one with an edit of each kind, and any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from edit_scripts import EDITS, plan, script
from hypothesis import strategies as st
from samples import everything
from strategies import attrs, graphs, lists, metas, saved_slots, scalars, scopes, texts, words

from gradir.errors import GraphError
from gradir.ir import Cut, Graph, Node, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.validate import check

META = (TensorMeta("float32", (2, 4)),)


def with_node(graph: Graph, node_id: str, **fields: object) -> Graph:
    nodes = dict(graph.nodes)
    nodes[node_id] = msgspec.structs.replace(nodes[node_id], **fields)
    return msgspec.structs.replace(graph, nodes=nodes)


def edit_sample() -> Graph:
    """The sample with one edit of each kind."""
    graph = everything()
    addmm, norm = graph.nodes["fc/addmm:1"], graph.nodes["norm/native_batch_norm:1"]
    relu = Node("fc/relu:1", op="relu", native="ReluBackward0", scope="fc", inputs=(Ref(addmm.id, 0),), outputs=META)
    nodes: dict[str, Node] = {}
    for node in graph.nodes.values():
        nodes[node.id] = node
        if node.id == addmm.id:
            nodes[relu.id] = msgspec.structs.replace(relu, saved=(Saved("result", "float32", (2, 4), 4_096),))
    del nodes["output:1.var"]
    changed = Graph.of(nodes.values(), graph.scopes.values(), (), graph.producer)
    changed = with_node(changed, norm.id, inputs=(Ref(relu.id, 0), None, None), attrs={**norm.attrs, "eps": 1e-06})
    changed = with_node(changed, "fc.weight", outputs=(TensorMeta("float32", (8, 3)),))
    changed = with_node(changed, "mul:1", names=("square", "x y"), source=Source("model.py", 14, "forward"))
    scopes = dict(changed.scopes)
    scopes["fc"] = msgspec.structs.replace(scopes["fc"], detail="in_features=3, out_features=8", own=24, total=24)
    scopes["drop"] = Scope("drop", "Dropout", "p=0.1")
    return msgspec.structs.replace(changed, scopes=scopes)


names = st.lists(texts, max_size=2).map(tuple)
refs = st.builds(Ref, words, st.integers(0, 2))
NODE_EDITS: Mapping[str, st.SearchStrategy[Any]] = {
    "role": words,
    "op": words,
    "native": texts,
    "scope": scopes,
    "names": names,
    "inputs": st.lists(st.one_of(st.none(), refs), max_size=3).map(tuple),
    "outputs": st.lists(metas, max_size=2).map(tuple),
    "attrs": attrs,
    "saved": st.lists(saved_slots, max_size=3).map(tuple),
    "base": st.one_of(st.none(), words),
    "opaque": st.booleans(),
    "source": st.one_of(st.none(), st.builds(Source, texts, st.integers(0, 9), texts)),
    "ext": st.dictionaries(texts, st.one_of(scalars, lists), max_size=2),
    "kinds": st.lists(st.sampled_from(["data", "view", "inplace"]), max_size=3).map(tuple),
}
SCOPE_EDITS: Mapping[str, st.SearchStrategy[Any]] = {
    "class_name": texts,
    "detail": texts,
    **dict.fromkeys(("calls", "own", "total", "trainable"), st.integers(0, 9)),
    "training": st.sampled_from([None, True, False]),
    "rounds": st.integers(0, 3),
}
cuts = st.builds(Cut, words, names, scopes, st.one_of(st.none(), metas))


@st.composite
def edits(draw: st.DrawFn, graph: Graph) -> Graph:
    """The same graph after a few edits; its references need not hold."""
    nodes, scope_list, cut_list = list(graph.nodes.values()), list(graph.scopes.values()), list(graph.cuts)
    for what in draw(st.lists(st.sampled_from(["node", "node", "scope", "cut", "remove", "swap"]), max_size=3)):
        if what == "node" and nodes:
            place, field = draw(st.integers(0, len(nodes) - 1)), draw(st.sampled_from(sorted(NODE_EDITS)))
            nodes[place] = msgspec.structs.replace(nodes[place], **{field: draw(NODE_EDITS[field])})
        elif what == "scope" and scope_list:
            place, field = draw(st.integers(0, len(scope_list) - 1)), draw(st.sampled_from(sorted(SCOPE_EDITS)))
            scope_list[place] = msgspec.structs.replace(scope_list[place], **{field: draw(SCOPE_EDITS[field])})
        elif what == "cut":
            cut_list = draw(st.permutations([*cut_list, draw(cuts)]))
        else:
            records: list[Any] = draw(st.sampled_from([nodes, scope_list, cut_list]))
            if what == "remove" and records:
                del records[draw(st.integers(0, len(records) - 1))]
            elif what == "swap":
                records[:] = draw(st.permutations(records))
    return Graph.of(nodes, scope_list, cut_list, graph.producer)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Graph, Graph]:
    if draw(st.booleans()):
        seed = draw(st.integers(0, 1_000))
        edits_made = draw(st.lists(st.sampled_from(sorted(EDITS)), max_size=3))
        made = script(plan(draw(st.integers(10, 40)), seed), edits_made, seed)
        return made.before, made.after
    graph = draw(graphs(max_functions=5))
    return graph, draw(st.one_of(edits(graph), graphs(max_functions=3)))


def _is_valid(pair: tuple[Graph, Graph]) -> bool:
    try:
        check(pair[0])
        check(pair[1])
    except GraphError:
        return False
    return True


valid_pairs = pairs().filter(_is_valid)
