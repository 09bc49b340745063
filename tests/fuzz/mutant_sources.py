"""The good documents that mutants are made of: small ones, of every kind of graph that the tests have."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeVar

from diff_pairs import edit_sample, valid_pairs
from edit_scripts import draw_plan, plan
from hostile_texts import HOSTILE_TEXTS, graph_of
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs as any_graphs

import gradir
from gradir import codecs
from gradir.ir import Graph

__all__ = ["good_document", "graphs", "pairs"]

T = TypeVar("T")

_DRAWN = 40
_CAPTURED = Path(__file__).parents[1] / "goldens" / "torch" / "2.5.1"
_LONGEST = 100
"""A document of 10,000 letters takes long to read and shows what one of a hundred does."""


@cache
def graphs() -> tuple[Graph, ...]:
    """Many small graphs, the same in every process of one Python (whose tables of characters are drawn from)."""
    texts = [text[:_LONGEST] for name, text in HOSTILE_TEXTS.items() if name != "lone surrogates"]
    return (
        everything(),
        edit_sample(),
        Graph.of([]),
        *map(chain, (0, 3, 30)),
        hostile(tuple(label[:_LONGEST] for label in HOSTILE_LABELS)),
        *map(graph_of, texts),
        *(gradir.load(path) for path in sorted(_CAPTURED.glob("[abl]*-*.autograd.gir.gz"))),
        *(draw_plan(plan(12, seed)).graph for seed in range(3)),
        *_examples(any_graphs(max_functions=6)),
    )


@cache
def pairs() -> tuple[tuple[Graph, Graph], ...]:
    """Many pairs of graphs, the same in every process of one Python."""
    small = [(a, b) for a, b in _examples(valid_pairs) if len(a.nodes) + len(b.nodes) < _LONGEST]
    return ((everything(), edit_sample()), (chain(3), chain(5)), (graphs()[6], everything()), *small)


def _examples(strategy: st.SearchStrategy[T]) -> list[T]:
    found: list[T] = []

    @seed(0)
    @settings(max_examples=_DRAWN, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


@cache
def good_document(number: int, encoding: str) -> bytes:
    """A document of a sample graph."""
    return codecs.encode(graphs()[number], encoding)
