"""The exporter ``html``: golden file, what the viewer's own code reads of a page, properties, and hostile text."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from gzip import decompress
from hashlib import sha256
from html.parser import HTMLParser
from operator import eq
from typing import Any

import networkx as nx
import pytest
from gradir_exporters._page.columns import ACCUMULATES, FAILED, OPAQUE, OUTPUT, REARRANGES, ROLES, Columns
from gradir_exporters.html import HtmlExporter, HtmlOptions
from hostile_texts import HOSTILE_TEXTS, graph_of
from hypothesis import given
from hypothesis import strategies as st
from networkx.algorithms import isomorphism
from page_graphs import change_layers, layers_graph
from page_reader import page_blocks, page_data
from samples import chain, everything, hostile
from strategies import graphs, stacks

import gradir
from gradir.errors import ExportError
from gradir.ir import Builder, Cut, Graph, Node, Producer, Ref, Scope, Source, TensorMeta
from gradir.ir.edges import edges_into
from gradir.ir.marks import LOST, OVERLAY, STATUS
from gradir.ir.module_tree import whole_tree
from gradir.ir.saved import SavedBytes, bytes_beyond_slots
from gradir.ir.text import escape_unprintable, size_text, tensor_text, value_text
from gradir.overlays import Channel, Overlay
from gradir.vocabulary import vocabulary_of

Told = Callable[[str], Any]


def export(graph: Graph, **options: Any) -> str:
    return HtmlExporter().export(graph, HtmlOptions(**options))


def source_text(source: Source | None) -> str:
    if source is None:
        return ""
    return f"{source.file}:{source.line}" + (f" in {source.function}" if source.function else "")


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
    bytes_of = kept.total_by_account()
    for number, (node, read) in enumerate(zip(graph.nodes.values(), found["nodes"], strict=True)):
        check_node(node, read, numbers, number)
        assert tree.scopes[read["scope"]].path == node.scope
        assert read["bytes"] == bytes_of.get(node.id, 0) + bytes_beyond_slots(node)
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


@given(graph=graphs())
def test_all_of_any_graph_is_in_its_page(graph: Graph, told: Told) -> None:
    check(graph, told(export(graph)))


def test_the_page_has_a_golden(golden: Callable[[str, str], None]) -> None:
    page = export(everything(), title="everything")
    frame = re.sub(r"sha256-[^']*", "sha256-", without_assets(page))
    golden("html/everything.txt", f"{page_data(page)}\n{frame}".replace("],", "],\n"))


def without_assets(page: str) -> str:
    page = re.sub(r"(octet-stream[^>]*>)[^<]*<", r"\1<", page)
    for name in ("script", "style"):
        page = re.sub(rf"<{name}>.*?</{name}>", f"<{name}></{name}>", page, flags=re.DOTALL)
    return page


def test_equal_graphs_have_equal_pages() -> None:
    page = export(everything())
    assert page == export(everything())
    for block in page_blocks(page).values():
        assert (block[4:8], block[9]) == (bytes(4), 255), "no time and no system"


class Tags(HTMLParser):
    """What a parser of HTML finds in a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.within: dict[str, list[str]] = {}
        self.policy = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""

    def handle_data(self, data: str) -> None:
        self.within.setdefault(self.tags[-1] if self.tags else "", []).append(data)


TAGS = ["html", "head", *["meta"] * 5, "title", "style", "body", "noscript", "p", *["script"] * 4]


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_no_text_of_a_graph_is_markup(text: str, told: Told) -> None:
    page = export(graph_of(text), title=f"t{text}")
    assert Tags(page).tags == TAGS
    assert Tags(export(everything())).tags == TAGS
    page.encode()
    (node,) = [node for node in told(page)["nodes"] if node["details"]["id"] == "f:1"]
    assert node["op"].encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")


def test_the_policy_allows_what_is_there_and_nothing_else() -> None:
    page = export(everything())
    found = Tags(page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert [len(scripts), len(styles)] == [1, 1]
    # The first unpacks the second.
    (packed,) = re.findall(r'id="script">([^<]*)</script>', page)
    texts = (*scripts, decompress(b64decode(packed)).decode(), *styles)
    start, script, style = (b64encode(sha256(text.encode()).digest()).decode() for text in texts)
    assert found.policy == (
        f"default-src 'none'; script-src 'sha256-{start}' 'sha256-{script}'; style-src 'sha256-{style}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def test_an_edge_from_nowhere_is_an_error() -> None:
    with pytest.raises(ExportError, match="has an edge from 'gone', which is not in the graph"):
        export(Graph.of([Node("x", inputs=(Ref("gone", 0),))]))


@given(stacks())
def test_layers_that_are_alike_differ_in_names_and_in_where_they_take_from(case: tuple[Graph, int]) -> None:
    graph, _ = case
    found = Columns(graph).block()["scopes"]["alike"]
    tree = whole_tree(graph)
    away = [found] * len(tree.scopes) if isinstance(found, int) else found

    def drawn(path: str) -> nx.MultiDiGraph:
        """What is inside a module, in whatever order the file has it."""
        inside = {key: node for key, node in graph.nodes.items() if f"{node.scope}.".startswith(f"{path}.")}
        found = nx.MultiDiGraph()
        for key, node in inside.items():
            outside = [ref and (ref.id not in inside, ref.output_nr) for ref in node.inputs]
            found.add_node(key, is_=(node.role, node.op, node.outputs, node.attrs, node.scope[len(path) :], outside))
            for slot, ref in enumerate(node.inputs):
                if ref is not None and ref.id in inside:
                    found.add_edge(ref.id, key, into=(slot, ref.output_nr))
        return found

    same_nodes = isomorphism.generic_node_match("is_", None, eq)
    same_edges = isomorphism.generic_multiedge_match("into", None, eq)
    for place, by in enumerate(away):
        if by:
            one, other = drawn(tree.scopes[place].path), drawn(tree.scopes[place - by].path)
            assert nx.is_isomorphic(one, other, same_nodes, same_edges)


def test_cuts_have_a_reason_and_advice(told: Told) -> None:
    source, tensor = Source("net.py", 7, "forward"), TensorMeta("float32", (2,))
    cuts = [
        Cut("detach", ("a", "b"), "fc", None, "detach", source, meant="stop-gradient", at="x", into="y", slot=1),
        Cut("unreached", ("a",), "fc", tensor),
        Cut("unreached", ("c",), "", tensor),
        Cut("hidden", ("d",), "gone", tensor),
    ]
    nodes = [Node("x"), Node("y", inputs=(None, None))]
    graph = Graph.of(nodes, cuts=cuts, producer=Producer(options={"flow": True}))
    place, behind, unused, hidden = told(export(graph))["cuts"]
    assert place["text"] == "detach stops the gradient of a, b on one side of a comparison"
    assert place["advice"].startswith("keep this cut if only the other side should move")
    assert (place["at"], place["into"], place["slot"], place["scope"]) == (0, 1, 1, 1)
    assert (place["source"], place["via"], place["meant"]) == ("net.py:7 in forward", "", "stop-gradient")
    assert behind["text"] == "detach() cuts a"
    assert unused["text"] == "the loss does not depend on c"
    assert (hidden["text"], hidden["scope"]) == ("hidden: d", 2)
    (alone,) = told(export(Graph.of([], cuts=cuts[2:3])))["cuts"]
    assert alone["text"] == "no gradient arrives at c, and the file does not say why"


def test_an_overlay_is_a_channel(told: Told) -> None:
    overlay = Overlay((Channel("gradient", {"x": 0.25, "fc.weight": "zero"}, "norm", looks={"zero": "alarm"}),))
    page = told(gradir.export(everything(), "html", overlay=overlay))
    (channel,) = page["channels"]
    by_id = dict(zip(everything().nodes, zip(channel["look"], channel["said"], strict=True), strict=True))
    assert channel["name"] == "gradient (norm)"
    assert by_id["x"] == ("step 3", "0.25")
    assert by_id["fc.weight"] == ("alarm", "x zero")
    assert by_id["fc/t:1"] == ("", "")
    assert [[channel["looks"][look], words] for look, words in channel["legend"]] == [
        ["step 3", "0.25"],
        ["alarm", "x zero"],
    ]


@given(verdict=st.text(min_size=1, max_size=2000), look=st.sampled_from(["alarm", "caution", "good", "quiet"]))
def test_any_verdict_of_an_overlay_is_in_the_page(verdict: str, look: Any, told: Told) -> None:
    overlay = Overlay((Channel("status", {"x": "reached"}),), verdict, look)
    found = told(gradir.export(everything(), "html", overlay=overlay))
    # What a click selects stands behind it.
    assert found["verdict"] == [look, escape_unprintable(verdict), "cut", 0]
    assert "ext.verdict" not in {key for node in found["nodes"] for key, _ in node["details"]["attributes"]}


def test_a_folded_module_says_its_class(told: Told) -> None:
    node = Node("h.0", "module", op="module", scope="h", native="Block", names=("h.0",))
    (read,) = told(export(Graph.of([node])))["nodes"]
    assert (read["name"], read["details"]["id"], read["details"]["names"]) == ("h.0: Block", "h.0", ["h.0"])


def test_a_review_has_the_changes_of_the_report(told: Told) -> None:
    before = layers_graph()
    found = told(gradir.diff(before, change_layers(before)).to("html"))
    ids = [node["details"]["id"] for node in found["nodes"]]
    # The output, which only takes from another node now, stands behind the cause.
    layers, added, output = found["changes"]
    assert (output["group"], output["kind"]) == ("(top level)", "changed")
    assert output["fields"] == [["in[0]", "sum:1", "head/exp:1"]]
    assert layers["group"].startswith("h.{0..3}.mlp: the same")
    assert [ids[node] for node in layers["nodes"]] == [f"h.{layer}.mlp/gelu:1" for layer in range(4)]
    assert ["op", "gelu", "relu"] in layers["fields"]
    assert (added["group"], added["kind"], added["text"]) == ("head", "added", "head/exp:1  exp float32[]")
    by_id = dict(zip(ids, found["nodes"], strict=True))
    assert by_id["head/exp:1"]["status"] == "added"
    assert by_id["output"]["edges"] == [
        ["head/exp:1", 0, 0, "data", "added"],
        ["sum:1", 0, 1, "data", "removed"],
    ]


def test_renamed_and_moved_nodes_are_distinguished(told: Told) -> None:
    meta = (TensorMeta("float32", (3,)),)

    def made(name: str, scope: str) -> Graph:
        nodes = [Node(name, role="parameter", names=(name,), outputs=meta, scope=scope)]
        nodes.append(Node("exp:1", op="exp", inputs=(Ref(name, 0),), outputs=meta))
        nodes.append(Node("output", role="output", inputs=(Ref("exp:1", 0),), outputs=meta))
        return Graph.of(nodes)

    found = told(gradir.diff(made("weight", ""), made("kernel", "")).to("html"))
    assert [change["kind"] for change in found["changes"]] == ["renamed"]
    assert [node["status"] for node in found["nodes"]] == ["renamed", "same", "same"]
    assert told(gradir.diff(made("w", ""), made("w", "")).to("html"))["changes"] == []


def test_nodes_of_a_renamed_module_are_marked_as_renamed(told: Told) -> None:
    meta = (TensorMeta("float32", (3,)),)

    def made(module: str) -> Graph:
        paths = {"": "Net", module: "Sequential", f"{module}.0": "Linear", f"{module}.1": "Tanh"}
        b = Builder()
        x = b.tensor("x", meta[0])
        for scope, op in ((f"{module}.0", "addmm"), (f"{module}.1", "tanh"), ("", "sum")):
            x = b.function(op, [x], meta, scope=scope).output(0)
        b.output(x)
        return b.build(scopes=[Scope(path, name, calls=1) for path, name in paths.items()])

    found = told(gradir.diff(made("encoder"), made("backbone")).to("html"))
    assert {change["kind"] for change in found["changes"]} == {"renamed"}
    statuses = {node["details"]["id"]: node["status"] for node in found["nodes"]}
    assert statuses == {
        "x": "same",
        "backbone.0/addmm:1": "renamed",
        "backbone.1/tanh:1": "renamed",
        "sum:1": "same",
        "output": "same",
    }


def test_a_diff_from_a_file_has_no_page() -> None:
    from gradir.diffs.diff_json import decode, encode

    with pytest.raises(ExportError, match="a picture needs both graphs"):
        decode(encode(gradir.diff(everything(), chain(3)))).to("html")


def test_a_long_chain_and_a_deep_path() -> None:
    page = export(Graph.of([*chain(30_000).nodes.values(), Node("deep", scope=".".join("m" * 5_000))]))
    assert len(page) < 400_000
