"""The exporter ``html``: golden file, what the viewer's own code reads of a page, properties, and hostile text."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from gzip import decompress
from typing import Any

import pytest
from gradir_exporters._page.columns import ACCUMULATES, FAILED, OPAQUE, OUTPUT, REARRANGES, ROLES
from gradir_exporters._page.modules import whole_tree
from gradir_exporters.html import HtmlExporter, HtmlOptions
from hypothesis import HealthCheck, given, settings
from samples import everything, hostile
from strategies import graphs

from gradir.ir import Graph, Node, Source
from gradir.ir.edges import edges_into
from gradir.ir.marks import LOST, OVERLAY, STATUS
from gradir.ir.saved import SavedBytes, folded_bytes
from gradir.ir.text import size_text, tensor_text, value_text
from gradir.vocabulary import vocabulary_of

Told = Callable[[str], Any]

BLOCK = re.compile(r'<script type="application/octet-stream" id="gradir-(\w+)">([^<]*)</script>')


def export(graph: Graph, **options: Any) -> str:
    return HtmlExporter().export(graph, HtmlOptions(**options))


def blocks(page: str) -> dict[str, str]:
    """The JSON of the blocks of a page."""
    return {name: decompress(b64decode(data)).decode() for name, data in BLOCK.findall(page)}


def source_text(source: Source | None) -> str:
    if source is None:
        return ""
    return f"{source.file}:{source.line}" + (f" in {source.function}" if source.function else "")


def storages(graph: Graph) -> dict[tuple[str, int], str]:
    """The storage that each slot is told to have: none where no other slot and no node has it."""
    return {(node.id, at): saved.storage for node in graph.nodes.values() for at, saved in enumerate(node.saved)}


def check(graph: Graph, found: Any) -> None:
    """All of a graph is in what the viewer read."""
    tree = whole_tree(graph)
    assert [scope["parent"] for scope in found["scopes"]] == tree.parents
    assert [scope["name"] for scope in found["scopes"]] == tree.names
    for scope, read in zip(tree.scopes, found["scopes"], strict=True):
        assert (read["className"], read["detail"]) == (scope.class_name, scope.detail)
        counts = [read[key] for key in ("calls", "parameters", "own", "trainable")]
        assert counts == [scope.calls, scope.total, scope.own, scope.trainable]
    assert len(found["nodes"]) == len(graph.nodes)
    numbers = {node_id: number for number, node_id in enumerate(graph.nodes)}
    words, kept = vocabulary_of(graph), SavedBytes[str](graph.nodes)
    for node in graph.nodes.values():
        kept.add(node, node.id)
    bytes_of = kept.by_account()
    for number, (node, read) in enumerate(zip(graph.nodes.values(), found["nodes"], strict=True)):
        check_node(node, read, numbers, number)
        assert tree.scopes[read["scope"]].path == node.scope
        assert read["bytes"] == bytes_of.get(node.id, 0) + folded_bytes(node)
        flags = {
            REARRANGES: node.op in words.shape_operations,
            ACCUMULATES: node.op in words.accumulators,
            OPAQUE: node.opaque,
            FAILED: "failed" in node.ext,
            OUTPUT: node.role == "output",
        }
        assert {bit: bool(read["flags"] & bit) for bit in flags} == flags
    own = [0] * len(tree.scopes)
    for read in found["nodes"]:
        for place in tree.and_above(read["scope"]):
            own[place] += read["bytes"]
    assert [scope["saved"] for scope in found["scopes"]] == own


def check_node(node: Node, read: Any, numbers: dict[str, int], number: int) -> None:
    assert read["found"] == number
    assert (*ROLES, "other")[read["place"]] == (node.role if node.role in ROLES else "other")
    assert (read["op"], read["name"]) == (node.op, node.names[0] if node.names else "")
    shape = "" if node.shape is None else f"[{', '.join(map(size_text, node.shape))}]"
    assert (read["dtype"], read["shape"]) == (node.dtype or "", shape)
    assert [edge[:4] for edge in read["edges"]] == [
        [edge.src, edge.output_nr, edge.input_nr, edge.kind] for edge in edges_into(node)
    ]
    assert set(read["ends"]) <= {number}
    details = read["details"]
    assert (details["id"], details["role"], details["native"]) == (node.id, node.role, node.native)
    assert tuple(details["names"]) == node.names
    assert read["line"] == details["source"] == source_text(node.source)
    assert details["base"] == (node.base or "")
    told = [[key, value_text(node.attrs[key])] for key in sorted(node.attrs)]
    told += [
        [f"ext.{key}", value_text(node.ext[key])] for key in sorted(node.ext) if key not in {STATUS, LOST, OVERLAY}
    ]
    assert [pair for pair in details["attributes"] if pair[0] != "kinds"] == told
    assert len(details["outputs"]) == len(node.outputs)
    for text, tensor in zip(details["outputs"], node.outputs, strict=True):
        assert text.startswith(tensor_text(tensor))
        assert (tensor.device in text) or tensor.device == "cpu"
    for saved, slot in zip(node.saved, details["saved"], strict=True):
        assert (slot["slot"], slot["bytes"]) == (saved.slot, saved.bytes)
        assert slot["tensor"] == tensor_text(saved.tensor)
        assert slot["state"] == ("" if saved.state == "held" else saved.state)
        assert slot["storage"] == saved.storage
        assert slot["origin"] == (-1 if saved.origin is None else numbers[saved.origin.id])


@pytest.mark.parametrize("sample", [everything, hostile])
def test_all_of_a_graph_is_in_its_page(sample: Callable[[], Graph], told: Told) -> None:
    graph = sample()
    check(graph, told(export(graph)))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs())
def test_all_of_any_graph_is_in_its_page(graph: Graph, told: Told) -> None:
    check(graph, told(export(graph)))
