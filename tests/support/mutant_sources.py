"""The good documents that mutants are made of: small ones, of every kind of graph that the tests have."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from diff_pairs import edited, valid_pairs
from edit_scripts import drawn, plan
from example_graphs import LISTINGS
from hostile_texts import HOSTILE_TEXTS, graph_of
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs as any_graphs

from gradir import codecs
from gradir.ir import Graph, Node, Ref, TensorMeta

__all__ = ["good_document", "graphs", "pairs"]

T = TypeVar("T")

_DRAWN = 40
_LONGEST = 100
"""A document of 10,000 letters takes long to read and shows what one of a hundred does."""


@cache
def graphs() -> tuple[Graph, ...]:
    """Many small graphs, the same in every process of one Python (whose tables of characters are drawn from)."""
    texts = [text[:_LONGEST] for name, text in HOSTILE_TEXTS.items() if name != "lone surrogates"]
    return (
        everything(),
        edited(),
        Graph.of([]),
        *map(chain, (0, 3, 30)),
        hostile(tuple(label[:_LONGEST] for label in HOSTILE_LABELS)),
        *map(graph_of, texts),
        *(_listed(listing) for listing in LISTINGS.values() if listing.count("\n") < _DRAWN),
        *(drawn(plan(12, seed)).graph for seed in range(3)),
        *_examples(any_graphs(max_functions=6)),
    )


@cache
def pairs() -> tuple[tuple[Graph, Graph], ...]:
    """Many pairs of graphs, the same in every process of one Python."""
    small = [(a, b) for a, b in _examples(valid_pairs) if len(a.nodes) + len(b.nodes) < _LONGEST]
    return ((everything(), edited()), (chain(3), chain(5)), (graphs()[6], everything()), *small)


def _examples(strategy: st.SearchStrategy[T]) -> list[T]:
    found: list[T] = []

    @seed(0)
    @settings(max_examples=_DRAWN, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


def _listed(listing: str) -> Graph:
    """The graph of an example, as far as its listing tells."""
    nodes = []
    for line in listing.strip().split("\n"):
        name, _, inputs = line.partition(" <- ")
        word, _, node_id = name.rpartition(" ")
        role = word or ("output" if node_id.startswith("output") else "function")
        fed, viewed, base = inputs.partition(", view of ")
        refs = [None if source == "-" else source.partition("#") for source in fed.split(", ") if source]
        nodes.append(
            Node(
                node_id,
                role=role,
                op=node_id.rpartition("/")[2].partition(":")[0] if role == "function" else "",
                inputs=tuple(ref and Ref(ref[0], int(ref[2] or 0)) for ref in refs),
                outputs=(TensorMeta("float32", (2, 3)),) * 4,
                base=base if viewed else None,
            )
        )
    return Graph.of(nodes)


@cache
def good_document(number: int, encoding: str) -> bytes:
    """A document of a sample graph."""
    return codecs.encode(graphs()[number], encoding)
