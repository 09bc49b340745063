"""Documents are taken apart alike, whichever were before them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from samples import chain
from strategies import graphs

from gradir import codecs
from gradir.codecs import rank_parts
from gradir.codecs.rank_parts import RankParts, RankSplitter
from gradir.errors import FormatError
from gradir.ir import Collective, Graph, Rank

GROUPS = {"world": (0, 1)}
ENCODINGS = ("json", "msgpack")


def of_rank(graph: Graph, rank: int, collectives: int = 2) -> Graph:
    issued = [Collective("backward", "all_reduce", "world")] * collectives
    return replace(graph, rank=Rank(rank, 2, groups=GROUPS), collectives=tuple(issued))


def result(splitter: RankSplitter, data: bytes) -> RankParts | str:
    try:
        return splitter.split(data)
    except FormatError as error:
        return str(error)


def after(first: bytes, data: bytes) -> RankParts | str:
    splitter = RankSplitter()
    result(splitter, first)
    return result(splitter, data)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(graph=graphs(), edit=st.tuples(st.integers(0), st.binary(max_size=3), st.integers(0, 3)))
def test_a_document_is_taken_apart_alike_after_one_with_its_nodes(
    encoding: str, graph: Graph, edit: tuple[int, bytes, int]
) -> None:
    first, other = (codecs.encode(of_rank(graph, rank), encoding) for rank in (0, 1))
    at, put, cut = edit[0] % (len(other) + 1), edit[1], edit[2]
    for data in (other, other[:at] + put + other[at + cut :], first[:at] + put + first[at + cut :]):
        assert after(first, data) == result(RankSplitter(), data)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_documents_have_one_digest_exactly_where_all_but_rank_and_collectives_is_equal(encoding: str) -> None:
    splitter, graph = RankSplitter(), chain(3)
    same = [of_rank(graph, 0), of_rank(graph, 1), of_rank(graph, 0, 5)]
    others = [
        of_rank(chain(4), 0),
        replace(of_rank(graph, 0), producer=replace(graph.producer, gradir="9")),
        of_rank(graph, 1),
    ]
    parts = [splitter.split(codecs.encode(each, encoding)) for each in (*same, *others)]
    digests = [each.rest for each in parts]
    assert digests[0] == digests[1] == digests[2] == digests[5]
    assert len({*digests}) == 3
    assert [each.rank.rank for each in parts[:3]] == [0, 1, 0]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_bytes_of_equal_nodes_are_read_once(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, read = [], rank_parts.read_record
    monkeypatch.setattr(
        rank_parts, "read_record", lambda form, data, kind: sizes.append(len(data)) or read(form, data, kind)
    )
    splitter, files = RankSplitter(), [codecs.encode(of_rank(chain(500), rank % 2), encoding) for rank in range(4)]
    for data in files:
        splitter.split(data)
    assert sum(sizes) < 1.5 * len(files[0])


def test_text_that_swallows_the_nodes_is_not_taken_for_their_key() -> None:
    graph = of_rank(chain(2), 0)
    first = codecs.encode(graph, "msgpack")
    nodes = msgspec.msgpack.encode(msgspec.msgpack.decode(first)["nodes"])
    assert first.endswith(nodes)
    # A text as long as a short document would have room for, with the same bytes at its end.
    for length in range(20, 60):
        data = first[: -len(nodes)] + b"\xd9" + bytes([length]) + nodes
        assert after(first, data) == result(RankSplitter(), data)
