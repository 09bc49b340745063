"""What a file says of the process that it was captured in, and of what that exchanges with others."""

from __future__ import annotations

import json

import documented_writer
import pytest
from msgspec.structs import replace
from samples import everything

import gradir
from gradir.codecs import codec, strict
from gradir.ir import Collective, Graph, Node, Rank, Ref, Source, TensorMeta
from gradir.passes import fold, within, without

GROUPS = {"world": (0, 1, 2, 3), "tp": (2, 3)}
RANK = Rank(3, 4, "nccl", {"dp": 1, "tp": 1}, GROUPS, {"fc.weight": (2, 3)}, stage=0, stages=2, microbatches=4)
MESSAGES = (
    Collective("forward", "all_reduce", "tp", reduce="sum", tensors=(TensorMeta("float32", (2, 4)),), scope="fc"),
    Collective("forward", "send", "world", 0, tensors=(TensorMeta("int64", (1,)),), source=Source("train.py", 3)),
    Collective("backward", "all_to_all", "tp", splits=((1, 2), (3, 0)), node="fc/addmm:1"),
    Collective("backward", "barrier", "world"),
)
FORMS = ("json", "msgpack")


@pytest.fixture
def whole() -> Graph:
    return replace(everything(), rank=RANK, collectives=MESSAGES)


@pytest.mark.parametrize("form", FORMS)
def test_both_forms_keep_them_in_one_spelling(whole: Graph, form: str) -> None:
    for graph in (whole, replace(whole, collectives=()), replace(whole, rank=None)):
        data = gradir.dumps(graph, format=form)
        found = gradir.loads(data)
        assert (found.rank, found.collectives) == (graph.rank, graph.collectives)
        assert found == graph != everything()
        assert strict.check_canonical(data) == graph
        codec.check_known(data)
    assert gradir.dumps(replace(whole, rank=None, collectives=()), format=form) == gradir.dumps(
        everything(), format=form
    )


def test_another_writer_spells_them_by_the_documentation(whole: Graph) -> None:
    data = gradir.dumps(whole)
    document = json.loads(data)
    assert list(document)[4:8] == ["rank", "scopes", "cuts", "collectives"]
    assert documented_writer.text(document) == data
    assert gradir.loads(documented_writer.write_msgpack(document)) == whole
    spelled = {key: value for key, value in document.items() if key not in ("nodes", "scopes", "cuts")}
    bare = {**spelled, "nodes": [{"id": "x", "role": "leaf"}]}
    packed = documented_writer.write_msgpack(bare)
    assert gradir.dumps(gradir.loads(packed), format="msgpack") == packed


@pytest.mark.parametrize("form", FORMS)
def test_info_counts_them(whole: Graph, form: str) -> None:
    survey = codec.survey(gradir.dumps(whole, format=form))
    assert survey.others == {"rank": RANK, "collectives": 4}
    assert codec.survey(gradir.dumps(everything(), format=form)).others == {"rank": None, "collectives": 0}


def test_a_diff_leaves_them_out_and_a_patch_has_them(whole: Graph) -> None:
    other = replace(whole, rank=replace(RANK, rank=2), collectives=MESSAGES[:1])
    for changed in (other, everything()):
        assert not gradir.diff(whole, changed)
        assert gradir.patch(whole, gradir.diff(whole, changed)) == changed


def test_a_pass_keeps_them_and_forgets_nodes_that_are_gone(whole: Graph) -> None:
    for graph, node in (
        (without(whole, {"fc/addmm:1"}, lambda _: False), ""),
        (within(whole, {"fc/addmm:1"}), "fc/addmm:1"),
        (fold(whole, 1), "fc"),
    ):
        assert graph.rank == RANK
        assert graph.collectives == (*MESSAGES[:2], replace(MESSAGES[2], node=node), MESSAGES[3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": Rank(-1, 4)}, "the rank: rank is -1; expected an integer from 0"),
        ({"rank": Rank(0, 4, groups={"world": [0, 1]})}, r"the rank: groups\['world'\] is \[0, 1\] of type list"),
        ({"collectives": (Collective("forward", "send", "world", -2),)}, "collective 0: peer is -2"),
        ({"collectives": list(MESSAGES)}, "the collectives of the graph are of type list; expected tuple"),
    ],
)
def test_an_invalid_rank_record_is_refused(whole: Graph, changes: dict[str, object], message: str) -> None:
    for form in FORMS:
        with pytest.raises(gradir.FormatError, match=message):
            gradir.dumps(replace(whole, **changes), format=form)


def test_an_error_in_a_rank_record_names_its_place() -> None:
    head = b'{"format":"gir","version":"1.0","requires":[],"producer":{},'
    for part, place in (
        (b'"rank":{"rank":1},"nodes":[]}', r"\$\.rank"),
        (b'"rank":{"rank":1,"world":-1},"nodes":[]}', r"\$\.rank\.world"),
        (b'"collectives":[{"phase":"forward","op":"send"}],"nodes":[]}', r"\$\.collectives\[0\]"),
    ):
        with pytest.raises(gradir.FormatError, match=place):
            gradir.loads(head + part)
    graph = Graph.of([Node("x", role="leaf"), Node("f:1", inputs=(Ref("x", 0),))], rank=RANK, collectives=MESSAGES)
    packed = gradir.dumps(graph, format="msgpack")
    for old, new, message in (
        (b"\xa5phase", b"\xa5phasf", r"collectives\[0\]"),
        (b"\xa5world", b"\xa5wurld", r"\$\.rank: object missing required field `world`"),
    ):
        assert old in packed
        with pytest.raises(gradir.FormatError, match=message):
            gradir.loads(packed.replace(old, new, 1))


def test_unknown_keys_of_them_are_ignored_and_said() -> None:
    text = gradir.dumps(Graph.of([Node("x", role="leaf")], rank=RANK, collectives=MESSAGES))
    more = text.replace(b'"phase":"forward"', b'"later":1,"phase":"forward"', 1)
    found = gradir.loads(more)
    assert "later" in found.unknown
    assert found.collectives == MESSAGES
    with pytest.raises(gradir.FormatError, match=r"\$\.collectives"):
        codec.check_known(more)
