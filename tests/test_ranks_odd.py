"""Files of ranks that are broken, missing, of others or sly, and orders of messages that do or do not hang."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

import gradir
from gradir.cli import main
from gradir.ir import Builder, Collective, Cut, Graph, Node, Producer, Rank, Scope, Source, TensorMeta

META = TensorMeta("float32", (4,))


def graph(*, placement: str = "dp:Shard(0)", dtype: str = "float32") -> Graph:
    b = Builder()
    weight = b.tensor("w", TensorMeta(dtype, (4, 4), placements=(placement,)), role="parameter")
    b.output(b.function("mm", [weight], [META]))
    return b.build()


def issued(op: str, peer: int | None = None, group: str = "world", phase: str = "forward", size: int = 4) -> Collective:
    return Collective(phase, op, group, peer, tensors=(TensorMeta("float32", (size,)),))


def world(*programs: list[Collective], groups: dict[str, tuple[int, ...]] | None = None) -> gradir.Ranks:
    every = groups or {"world": tuple(range(len(programs)))}
    own = [{label: ranks for label, ranks in every.items() if rank in ranks} for rank in range(len(programs))]
    return gradir.ranks(
        replace(graph(), rank=Rank(rank, len(programs), groups=own[rank]), collectives=tuple(program))
        for rank, program in enumerate(programs)
    )


def kinds(found: gradir.Ranks) -> list[str]:
    return [finding.kind for finding in found.findings]


def test_sends_before_receives_are_no_alarm() -> None:
    # With a buffer both go on; isend looks the same and waits for nothing.
    found = world([issued("send", 1), issued("recv", 1)], [issued("send", 0), issued("recv", 0)])
    assert (kinds(found), found.proved) == ([], 4)
    batch = [issued("recv", 1), issued("send", 1)]
    assert kinds(world([issued("send", 1), issued("recv", 1)], [replace(each, peer=0) for each in batch])) == []


def test_receives_before_sends_may_hang_and_a_receive_of_nothing_in_a_backward_does() -> None:
    found = world([issued("recv", 1), issued("send", 1)], [issued("recv", 0), issued("send", 0)])
    assert kinds(found) == ["may hang"]
    found = world([issued("recv", 1, phase="backward")], [])
    assert [(finding.kind, finding.lines) for finding in found.findings] == [
        (
            "hang",
            (
                "wait for ever: rank 0 in backward recv float32[4] on world with 1",
                "rank 1 has ended after 0 collectives",
            ),
        )
    ]


def test_an_unreceived_message_may_hang() -> None:
    found = world([issued("send", 1), issued("send", 1)], [issued("recv", 0)])
    assert [(finding.kind, finding.ranks, finding.lines) for finding in found.findings] == [
        ("may hang", (0,), ("never received: rank 0 in forward send float32[4] on world with 1",))
    ]
    assert found.proved == 2
    # Of a sample nothing is claimed.
    one = replace(graph(), rank=Rank(0, 2, groups={"world": (0, 1)}), collectives=(issued("send", 1),))
    assert not gradir.ranks([one])


def test_asynchronous_collectives_of_two_groups_may_hang_and_no_more() -> None:
    groups = {"a": (0, 1), "b": (0, 1)}
    one, other = issued("all_reduce", group="a"), issued("all_reduce", group="b")
    assert kinds(world([one, other], [other, one], groups=groups)) == ["may hang"]
    assert kinds(world([one, other], [one, other], groups=groups)) == []
    # Three groups in a ring, each of two ranks.
    ring = {"a": (0, 1), "b": (1, 2), "c": (2, 0)}
    a, b, c = (issued("all_reduce", group=group) for group in ring)
    assert kinds(world([a, c], [b, a], [c, b], groups=ring)) == ["may hang"]
    assert kinds(world([a, c], [a, b], [b, c], groups=ring)) == []


def test_uneven_all_to_all_fits_in_pairs_or_is_named() -> None:
    def parts(sent: list[list[int]], received: list[list[int]]) -> gradir.Ranks:
        return world(
            *(
                [replace(issued("all_to_all", size=sum(out)), splits=(tuple(out), tuple(into)))]
                for out, into in zip(sent, received, strict=True)
            )
        )

    sent = [[1, 2, 0], [3, 0, 1], [0, 0, 5]]
    received = [[1, 3, 0], [2, 0, 0], [0, 1, 5]]
    assert not parts(sent, received)
    found = parts(sent, [*received[:2], [0, 2, 5]])
    assert found.findings[0].lines[0] == "rank 1 sends 1 to rank 2, which expects 2 on world"


def test_equal_sizes_in_other_places_or_of_another_dtype_are_another_graph() -> None:
    def of(second: Graph) -> gradir.Ranks:
        return gradir.ranks(replace(each, rank=Rank(rank, 2)) for rank, each in enumerate([graph(), second]))

    (finding,) = of(graph(placement="dp:Shard(1)")).findings
    assert (finding.kind, finding.ranks) == ("graphs", (1,))
    assert kinds(of(graph(dtype="bfloat16"))) == ["graphs"]
    jax = replace(graph(), producer=Producer("1", "jax", "0.8"))
    assert of(jax).findings[0].lines == ("is made by jax 0.8, not by one",)
    assert kinds(of(graph())) == []


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([Rank(0, 2), Rank(0, 2)], "are both of rank 0"),
        ([Rank(0, 2), Rank(1, 4)], "rank 1 of 4, and graph 0 rank 0 of 2"),
        ([Rank(0, 2, groups={"a": (0, 1)}), Rank(1, 2, groups={"a": (1, 0)})], "has other ranks in the group a"),
        ([Rank(0, 2, groups={"a": (0, 1, 1)}), Rank(1, 2)], "the group 'a' has a rank twice"),
        ([Rank(5, 2)], "is rank 5 of 2"),
    ],
)
def test_files_of_different_runs_are_an_error_of_both_commands(ranks: list[Rank], message: str) -> None:
    graphs = [replace(graph(), rank=rank) for rank in ranks]
    for ask in (gradir.ranks, gradir.link):
        with pytest.raises(gradir.GradirError, match=message):
            ask(graphs)


def test_numbers_beyond_counting_cost_nothing() -> None:
    most = 2**63 - 1
    sly = replace(
        graph(),
        rank=Rank(0, most, local={"w": (most, most)}, stage=0, stages=most, microbatches=most, groups={"g": (0, most)}),
        collectives=(Collective("forward", "send", "g", 1, tensors=(TensorMeta("float32", (most,)),)),),
    )
    found = gradir.ranks([sly])
    assert found.is_sample
    assert found.groups[0].elements == most
    for form in ("text", "markdown", "json", "html"):
        assert found.to(form)
    with pytest.raises(gradir.GradirError, match=f"cannot be matched: rank {most} has no file"):
        gradir.link([sly])


def test_broken_files_are_one_line_of_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    groups = {"world": (0, 1)}
    programs = [[issued("send", 1), issued("all_reduce")], [issued("recv", 0), issued("all_reduce")]]
    paths = [tmp_path / f"{rank}.gir" for rank in range(2)]
    for form in ("json", "msgpack"):
        for rank, path in enumerate(paths):
            one = replace(graph(), rank=Rank(rank, 2, groups=groups), collectives=tuple(programs[rank]))
            one.save(path, format=form)
        whole = paths[1].read_bytes()
        chance = random.Random(0)
        for number in range(300):
            data = bytearray(whole)
            if number % 3 == 0:
                del data[chance.randrange(len(data)) :]
            elif number % 3 == 1:
                data[chance.randrange(len(data))] = chance.randrange(256)
            else:
                start = chance.randrange(len(data))
                data[start:start] = data[start : start + chance.randrange(40)]
            paths[1].write_bytes(bytes(data))
            for more in ([], ["--link", str(tmp_path / "out.gir")]):
                status = main(["ranks", *map(str, paths), "-o", str(tmp_path / "out.txt"), *more])
                said = capfd.readouterr().err
                assert status in (0, 1, 2), (number, said)
                assert "Traceback" not in said
                assert status < 2 or len([line for line in said.splitlines() if "warning:" not in line]) == 1, said


def of(
    phase: str, op: str, *, scope: str = "", node: str = "", line: int = 0, shape: tuple[int, ...] = (4,)
) -> Collective:
    source = Source("train.py", line) if line else None
    tensors = (TensorMeta("float32", shape),)
    return Collective(phase, op, "world", scope=scope, node=node, tensors=tensors, source=source)


MIXED = {
    "modules": (
        of("forward", "all_gather", scope="image", line=12),
        of("forward", "all_gather", scope="text", line=12),
    ),
    "reductions": (
        replace(of("forward", "all_reduce", line=3), reduce="sum"),
        replace(of("forward", "all_reduce", line=3), reduce="max"),
    ),
    "phases": (of("forward", "all_reduce", line=3), of("backward", "all_reduce", node="exp:1")),
    "gradients": (
        of("backward", "all_reduce", node="image.weight/accumulate_grad:1", shape=(2, 2)),
        of("backward", "all_reduce", node="text.weight/accumulate_grad:1", shape=(2, 2)),
    ),
    "gradients of modules": (
        of("backward", "reduce_scatter", node="image/register_post_backward_function:1"),
        of("backward", "reduce_scatter", node="text/register_post_backward_function:1"),
    ),
}
ALIKE = {
    "a bucket": (
        of("backward", "all_reduce", node="image.weight/accumulate_grad:1"),
        of("backward", "all_reduce", node="text.weight/accumulate_grad:1"),
    ),
    "a root and who receives": (of("forward", "broadcast", line=3), of("forward", "broadcast", line=9)),
    "another number": (of("backward", "all_gather", node="f:1"), of("backward", "all_gather", node="f:2")),
    "an operation on the way": (
        of("backward", "all_gather", node="out/addmm:1"),
        of("backward", "all_gather", node="head/addmm:1"),
    ),
    "a reduction that is not known": (
        replace(of("forward", "all_reduce", line=3), reduce="sum"),
        of("forward", "all_reduce", line=3),
    ),
    "a line to which one rank alone comes": (
        of("forward", "all_reduce", line=3),
        of("forward", "all_reduce", line=9),
    ),
    "a line that is not known": (of("forward", "all_reduce", line=3), of("forward", "all_reduce")),
}


@pytest.mark.parametrize("name", MIXED)
def test_equal_sizes_of_different_tensors_are_reported(name: str) -> None:
    one, other = MIXED[name]
    found = world([one], [one], [other])
    assert (kinds(found), found.proved) == (["mixed"], 1)
    (finding,) = found.findings
    assert finding.ranks == (0, 1, 2)
    assert finding.lines[0] == "the sizes fit, the tensors do not:"
    assert [line.partition(" in ")[0] for line in finding.lines[1:]] == ["ranks 0-1", "rank 2"]
    assert "some mix tensors" in str(found)
    assert kinds(world([one], [one], [one])) == []


@pytest.mark.parametrize("name", ALIKE)
def test_possibly_equal_tensors_are_no_alarm(name: str) -> None:
    one, other = ALIKE[name]
    assert kinds(world([one], [other])) == []


def test_lines_to_which_ranks_come_in_another_order_are_reported_whatever_their_folder() -> None:
    lines = [of("forward", "all_reduce", line=line) for line in (3, 9)]
    elsewhere = [replace(each, source=replace(each.source, file=f"../{each.source.file}")) for each in lines]
    assert kinds(world(lines, elsewhere)) == []
    assert kinds(world(lines, elsewhere[::-1])) == ["mixed"]
    barriers = [replace(each, op="barrier") for each in lines]
    assert kinds(world(barriers, barriers[::-1])) == []


def test_modules_that_each_rank_has_for_itself_are_no_alarm() -> None:
    def rank(number: int, *others: str) -> Graph:
        own = f"expert{number}"
        scopes = [Scope(path, calls=1) for path in ("", own, *others)]
        found = replace(summed(own), scopes={scope.path: scope for scope in scopes})
        issued = of("forward", "all_reduce", scope=own, line=12)
        record = Rank(number, 2, groups={"world": (0, 1)})
        return replace(found, rank=record, collectives=(issued,))

    found = gradir.ranks([rank(0), rank(1)])
    assert "mixed" not in kinds(found)
    assert "first mismatch" not in found.to("html")
    assert "mixed" in kinds(gradir.ranks([rank(0, "expert1"), rank(1, "expert0")]))


def test_a_rank_that_joined_is_not_counted_among_mixed_tensors() -> None:
    sides = [[of("forward", "all_gather", scope=f"{name}.{n}") for n in range(9)] for name in ("a", "b")]
    there = [
        Graph({}, rank=Rank(rank, 2, groups={"world": (0, 1)}, stopped="joins" if rank else ""), collectives=(*side,))
        for rank, side in enumerate(sides)
    ]
    assert kinds(gradir.ranks(there)) == []


def test_many_mixed_tensors_are_reported_by_kind_and_counted() -> None:
    pairs = [[of("forward", "all_gather", scope=f"{name}.{n}") for n in range(9)] for name in ("a", "b")]
    (finding,) = world(*pairs).findings
    assert finding.lines.count("and:") == 2
    assert finding.lines[-1] == "and 6 collectives more"


def test_names_in_markdown_are_code() -> None:
    name = "@all ![i](https://evil.test) `x`"
    cuts = (Cut("unreached", (name,)),)
    there = [Graph.of([Node("x")], cuts=cuts, rank=Rank(rank, 2)) for rank in range(2)]
    assert gradir.ranks(there).to("markdown").splitlines()[-1] == f"no gradient on any rank for `` {name} ``"


def summed(*order: str, module: str = "") -> Graph:
    """A rank that sums two tensors of modules by one line, one after the other."""
    b = Builder()
    total = None
    for name in order:
        made = b.function("mm", [b.tensor(f"{name}.weight", META, role="parameter")], [META], scope=name)
        summed = b.function("all_reduce", [made], [META], scope=module, source=Source("train.py", 9))
        total = summed if total is None else b.function("add", [total, summed], [META])
    b.output(total)
    operands = [f"{module}/all_reduce:{number}".removeprefix("/") for number in range(1, 1 + len(order))]
    issued = [replace(of("forward", "all_reduce", line=9, scope=module), operands=(each,)) for each in operands]
    return replace(b.build(), collectives=tuple(issued))


def of_ranks(*graphs: Graph) -> gradir.Ranks:
    world = tuple(range(len(graphs)))
    return gradir.ranks(
        replace(each, rank=Rank(rank, len(graphs), groups={"world": world})) for rank, each in enumerate(graphs)
    )


def test_sums_of_one_line_in_another_order_mix_tensors() -> None:
    found = of_ranks(summed("a", "b"), summed("a", "b"), summed("b", "a"))
    mixed, _ = found.findings
    assert (mixed.kind, mixed.ranks, mixed.lines) == (
        "mixed",
        (0, 2),
        (
            "the sizes fit, the tensors do not:",
            "rank 0 in forward all_reduce float32[4] on world (train.py:9), of what a/mm:1 made",
            "rank 2 in forward all_reduce float32[4] on world (train.py:9), of what b/mm:1 made",
            "and 1 collective more",
        ),
    )


def test_sums_of_several_tensors_name_the_one_that_differs() -> None:
    found = []
    for graph in (summed("a", "b", "c"), summed("a", "c", "b")):
        (first, _), *others = [(each.operands[0], each) for each in graph.collectives]
        issued = [replace(each, operands=(first, operand)) for operand, each in others]
        found.append(replace(graph, collectives=tuple(issued)))
    lines = of_ranks(*found).findings[0].lines
    assert [line.partition(", ")[2] for line in lines[1:3]] == ["of what b/mm:1 made", "of what c/mm:1 made"]


def test_one_flat_tensor_of_the_same_tensors_in_another_order_is_mixed() -> None:
    several = summed("a", "b")
    operands = [each.operands[0] for each in several.collectives]
    flat = [
        replace(several, collectives=(replace(several.collectives[0], operands=tuple(order)),))
        for order in (operands, operands[::-1])
    ]
    assert kinds(of_ranks(*flat)) == ["mixed"]
    assert kinds(of_ranks(flat[0], flat[0])) == []


def test_a_sum_that_another_branch_led_to_on_one_rank_is_no_alarm() -> None:
    # Neither tensor is one that both ranks sum, as the loss of a rank that has no image.
    assert "mixed" not in kinds(of_ranks(summed("a", "b"), summed("a", "c")))
    assert "mixed" not in kinds(of_ranks(summed("a"), summed("b")))
    assert kinds(of_ranks(summed("a", "b"), summed("a", "b"))) == []


def test_buckets_mix_tensors_where_no_gradient_is_in_both() -> None:
    def bucket(*names: str) -> Collective:
        node = f"{names[-1]}/accumulate_grad:1"
        return replace(of("backward", "all_reduce", node=node), operands=names)

    assert kinds(world([bucket("a.bias", "b.bias")], [bucket("b.bias")])) == []
    assert kinds(world([bucket("a.bias")], [bucket("b.bias")])) == ["mixed"]
