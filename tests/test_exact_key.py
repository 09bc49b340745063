"""Texts that exporters keep for equal values are not taken for values that only compare equal."""

from __future__ import annotations

from typing import Any

import pytest

import gradir
from gradir.ir import AttrValue, Graph, Node, NonFinite
from gradir.ir.memo import exact_key

ALIKE: list[list[AttrValue]] = [
    [1, 1.0, True],
    [0, 0.0, -0.0, False],
    [(1, True), (True, 1), (1.0, 1)],
    ["nan", NonFinite("nan")],
    ["1", 1],
    [2**70, 2**70 + 1],
    ["\ud800", "\ud801"],
]
EXPORTERS: dict[str, dict[str, Any]] = {"dot": {"show_attrs": True}, "plain": {}, "model-explorer": {}}


def key_of(value: AttrValue) -> bytes | None:
    return exact_key({"value": value})


@pytest.mark.parametrize("values", ALIKE, ids=ascii)
def test_a_key_differs_where_a_text_would(values: list[AttrValue]) -> None:
    keys = [key for key in map(key_of, values) if key is not None]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("values", ALIKE, ids=ascii)
@pytest.mark.parametrize("name", EXPORTERS)
def test_each_node_shows_its_own_values(name: str, values: list[AttrValue]) -> None:
    def export(nodes: list[Node]) -> str:
        return gradir.export(Graph.of(nodes), name, **EXPORTERS[name])

    nodes = [Node(f"n:{number}", op="f", attrs={"value": value}) for number, value in enumerate(values)]
    together = export(nodes)
    for node in nodes:
        (line,) = [line for line in export([node]).splitlines() if "value" in line]
        # A box is called by its place, and a line of JSON ends with a comma unless it is the last.
        shown = line.partition(" ")[2] if name == "dot" else line
        assert any(other.rstrip(",").endswith(shown) for other in together.splitlines())
