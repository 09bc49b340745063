"""Mutants of good documents: of each comes a graph that everything can work with, or one clear error."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from document_trees import json_bytes, msgpack_bytes, parse_json, parse_msgpack
from mutant_checks import check_mutant, quietly
from mutant_sources import good_document, graphs
from mutation import KINDS, mutant, mutate

COUNT = 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_mutant_comes_a_graph_or_one_clear_error(kind: str) -> None:
    with quietly():
        assert {outcome(kind, seed) for seed in range(COUNT)} == {True, False}


def outcome(kind: str, seed: int) -> bool:
    try:
        return check_mutant(mutant(kind, seed), seed)
    except Exception as error:
        raise AssertionError(f"python tests/fuzz/mutants.py --show {kind}:{seed}") from error


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_one_mutant(kind: str) -> None:
    made = [mutant(kind, seed).data for seed in range(200)]
    assert made == [mutant(kind, seed).data for seed in range(200)]
    assert len(set(made)) > 150


@pytest.mark.parametrize(
    ("encoding", "parsed", "spelled"), [("json", parse_json, json_bytes), ("msgpack", parse_msgpack, msgpack_bytes)]
)
def test_a_tree_is_its_document(encoding: str, parsed: Callable[..., object], spelled: Callable[..., bytes]) -> None:
    for number in range(len(graphs())):
        data = good_document(number, encoding)
        assert spelled(parsed(data)) == data


def test_any_bytes_can_be_mutated() -> None:
    chance = random.Random(0)
    data = good_document(0, "msgpack")
    for _ in range(300):
        data = mutate(data, chance)
    assert isinstance(data, bytes)
