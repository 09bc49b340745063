"""What Graphviz itself makes of the text of the exporter ``dot``."""

from __future__ import annotations

import html
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gradir_exporters.dot import DotExporter, DotOptions

from gradir.ir import Graph
from gradir.ir.cuts import stubs

FILLS = {
    "function": "#ffffff",
    "leaf": "#c5e3f6",
    "parameter": "#c5e3f6",
    "output": "#f8d2ba",
    "view_base": "#e4e6e9",
    "buffer": "#f7eca6",
    "saved": "#f9dca6",
    "module": "#dfe5ee",
    "cut": "#ffffff",  # that of all boxes, which a dashed one does not fill
}


def export(graph: Graph, **options: Any) -> str:
    return DotExporter().export(graph, DotOptions(**options))


def run_dot(program: str, source: str, form: str, *more: str) -> str:
    """What dot prints; it must accept the source without a word."""
    done = subprocess.run(
        [program, f"-T{form}", *more], input=source.encode(), capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return done.stdout.decode()


class Picture:
    """What dot understood, from its JSON."""

    def __init__(self, document: str) -> None:
        self.document = json.loads(document)
        objects = self.document.get("objects", [])
        self.clusters = {o["name"]: o for o in objects if o["name"].startswith("cluster")}
        self.nodes = {o["name"]: o for o in objects if not o["name"].startswith("cluster")}
        self.edges = self.document.get("edges", [])
        self._names = {o["_gvid"]: o["name"] for o in objects}

    def lines(self) -> Counter[tuple[str, ...]]:
        return Counter(
            (self._names[e["tail"]], self._names[e["head"]], e.get("style", ""), e.get("dir", "")) for e in self.edges
        )

    def frames(self, node: str) -> list[str]:
        """The clusters around a node, outermost first."""
        gvid = self.nodes[node]["_gvid"]
        around = {c["_gvid"]: c for c in self.clusters.values() if gvid in c.get("nodes", ())}
        inner = {
            gvid: next((each for each in c.get("subgraphs", ()) if each in around), None) for gvid, c in around.items()
        }
        found, at = [], next(iter(around.keys() - inner.values()), None)
        while at is not None:
            found.append(around[at]["name"])
            at = inner[at]
        return found


def read_drawn_text(item: dict[str, Any]) -> list[str]:
    """The lines that dot puts on the canvas for a label."""
    return [operation["text"] for operation in item.get("_ldraw_", ()) if operation["op"] == "T"]


def expect_text(text: str) -> str:
    """How text shows: the characters that cannot be printed as in a Python literal, and 200 characters at most."""
    visible = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return visible if len(visible) <= 200 else visible[:197] + "..."


def expect_tooltip(text: str) -> str:
    return expect_text(text).replace("\\", "%5C")


def read_drawn_nodes(graph: Graph, options: DotOptions) -> Iterator[tuple[str, str, str]]:
    touched = {end for edge in graph.edges for end in (edge.src, edge.dst)}
    for number, node in enumerate(graph.nodes.values()):
        if node.role != "buffer" or options.show_saved or node.id in touched:
            yield f"n{number}", node.role, expect_tooltip(node.id)
        if options.show_saved:
            for slot, saved in enumerate(node.saved):
                yield f"n{number}s{slot}", "saved", expect_tooltip(f"{saved.slot} saved by {node.id}")
    for number, stub in enumerate(stubs(graph)):
        yield f"cut{number}", "cut", expect_tooltip(stub.reason)


def read_drawn_lines(graph: Graph, options: DotOptions) -> Iterator[tuple[str, ...]]:
    keys = {id_: f"n{number}" for number, id_ in enumerate(graph.nodes)}
    for edge in graph.edges:
        yield keys[edge.src], keys[edge.dst], "dotted" if edge.kind == "view" else "", ""
    *_, last = [None, *(id_ for id_, node in graph.nodes.items() if node.role == "output")]
    elsewhere = []
    for number, stub in enumerate(stubs(graph)):
        if stub.into:
            yield f"cut{number}", keys[stub.into], "dashed", ""
            continue
        above = keys.get(last) if len(elsewhere) < 3 else elsewhere[-3]
        elsewhere.append(f"cut{number}")
        if above is not None:
            yield above, elsewhere[-1], "invis", ""
    if not options.show_saved:
        return
    for node in graph.nodes.values():
        for slot, saved in enumerate(node.saved):
            yield keys[node.id], f"{keys[node.id]}s{slot}", "", "none"
            if saved.origin is not None and graph.nodes[saved.origin.id].role == "buffer":
                yield keys[saved.origin.id], f"{keys[node.id]}s{slot}", "dashed", "none"


def assert_same_graph(picture: Picture, graph: Graph, options: DotOptions) -> None:
    found = {(name, node["class"], html.unescape(node["tooltip"])) for name, node in picture.nodes.items()}
    assert found == set(read_drawn_nodes(graph, options))
    assert picture.lines() == Counter(read_drawn_lines(graph, options))
    for node in picture.nodes.values():
        assert node.get("fillcolor", "#ffffff") == FILLS.get(node["class"], "#ecd3e3")
