"""The collectives of all ranks, as they are kept in columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gradir.distributed.reading import read_ranks
from gradir.distributed.simulation import Mismatch, simulate
from gradir.ir import Builder, Collective, Graph, Rank, Source, TensorMeta

META = TensorMeta("float32", (4,))
SENDS = (
    Collective("forward", "send", "world", 1, tensors=(META,), microbatch=0),
    Collective("forward", "send", "world", 1, tensors=(TensorMeta("int8", (4,)),), microbatch=1),
)


def graph(rank: int, world: int, *collectives: Collective) -> Graph:
    b = Builder()
    b.output(b.tensor("x", META))
    return replace(b.build(), rank=Rank(rank, world, groups={"world": (*range(world),)}), collectives=collectives)


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_collectives_are_read_back_as_they_were_written(form: str, tmp_path: Path) -> None:
    written = [
        tuple(
            Collective(
                "forward", "all_gather", "world", tensors=(META,), scope=f"h.{layer}", source=Source("a.py", line)
            )
            for layer in range(5)
        )
        for line in (1, 1, 2)
    ]
    for rank, each in enumerate(written):
        graph(rank, 3, *each).save(tmp_path / f"{rank}.gir", format=form)
    found = [one.collectives for one in read_ranks(tmp_path / f"{rank}.gir" for rank in range(3))]
    assert [*map(tuple, found)] == written
    assert found[0] is found[1]
    assert found[2][3].source == Source("a.py", 2)
    assert (len(found[2]), found[2][-1]) == (5, written[2][-1])


def test_records_that_differ_in_their_lines_are_one_kind() -> None:
    same = Collective("backward", "all_reduce", "world", tensors=(META,), node="a/mm:1")
    other = replace(same, node="b/mm:1")
    lines = [replace(same, source=Source("a.py", line)) for line in (3, 1, 2)]
    (one,) = read_ranks([graph(0, 1, lines[0], other, *lines[1:])])
    assert [*one.collectives.kinds()] == [(lines[0], 3), (other, 1)]


def test_the_place_of_a_message_that_does_not_fit_is_that_of_its_sender_too() -> None:
    receives = [replace(each, op="recv", peer=0, tensors=(META,)) for each in SENDS]
    groups = {rank: {"world": (0, 1)} for rank in range(2)}
    outcome = simulate({0: SENDS, 1: receives}, groups)
    assert isinstance(outcome.problem, Mismatch)
    assert outcome.places == {0: 1, 1: 1}
    assert simulate({0: SENDS[:1], 1: [replace(receives[0], microbatch=3)]}, groups).places == {0: 0, 1: 0}
