"""Exchanges that some ranks leave out, or that no rank completes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from ranks_by_hand import make_rank

import gradir
from gradir.ir import Builder, Collective, Cut, Graph, Rank, Scope, Source, TensorMeta

META = TensorMeta("float32", (4,))
REDUCES = {"": ()}


def graph(*modules: str, cuts: tuple[str, ...] = (), kinds: dict[str, str] | None = None) -> Graph:
    """A model whose modules run one after the other; parameters in ``cuts`` get no gradient."""
    b = Builder()
    made = b.tensor("x", META, role="leaf")
    for number, path in enumerate(modules):
        weight = b.tensor(f"{path}.weight", META, role="parameter")
        made = b.function("mul", [made, weight], [META], scope=path, source=Source("train.py", 10 + number))
    b.output(made)
    scopes = [Scope("", calls=1), *(Scope(path, (kinds or {}).get(path, ""), calls=1) for path in modules)]
    found = replace(b.build(), scopes={scope.path: scope for scope in scopes})
    return replace(found, cuts=tuple(Cut("unreached", (f"{path}.weight",), path) for path in cuts))


def reduced(*paths: str) -> Collective:
    return Collective("backward", "all_reduce", "world", operands=tuple(f"{path}.weight" for path in paths))


def of_ranks(*sides: tuple[Graph, dict[str, tuple[str, ...]], list[Collective]]) -> gradir.Ranks:
    return gradir.ranks(
        make_rank(rank, collectives, graph=each, world=len(sides), wrappers=wrappers)
        for rank, (each, wrappers, collectives) in enumerate(sides)
    )


def told(found: gradir.Ranks) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    return [(finding.ranks, finding.lines) for finding in found.findings if finding.kind == "missing"]


def test_a_wrapper_that_waits_for_a_gradient_names_parameter_and_line() -> None:
    waits = {"": ("unfinished",)}
    text, image = graph("a", "text", cuts=("image",)), graph("a", "image", cuts=("text",))
    ends = "the next forward raises that the reduction of this backward has not finished"
    assert told(of_ranks((text, waits, []), (image, waits, []))) == [
        (
            (0,),
            (
                "waits for the gradients of image.weight, and reduces no bucket that lacks one",
                "other ranks run image (train.py:11)",
                ends,
            ),
        ),
        (
            (1,),
            (
                "waits for the gradients of text.weight, and reduces no bucket that lacks one",
                "other ranks run text (train.py:11)",
                ends,
            ),
        ),
    ]
    # What such a rank does not reduce is the same again.
    ((ranks, _),) = told(of_ranks((text, waits, []), (graph("a", "text", "image"), REDUCES, [reduced("a", "image")])))
    assert ranks == (0,)
    everywhere = of_ranks((text, waits, []), (text, waits, []))
    ((ranks, lines),) = told(everywhere)
    assert (ranks, lines[1]) == ((0, 1), "no loss depends on image")
    assert "MISSING EXCHANGE: ranks 0-1" in str(everywhere)
    # A module may run without its parameters.
    partly = graph("a", "text", cuts=("text",))
    ((_, lines),) = told(of_ranks(*[(partly, waits, [])] * 2))
    assert lines[1] == "the loss depends on text (train.py:11), and not on these"
    # One that was frozen behind the wrapper is known from the other ranks.
    both = graph("a", "text", "image")
    ((_, lines),) = told(of_ranks((graph("a", "text"), waits, []), (both, REDUCES, [reduced("a", "text", "image")])))
    assert lines[:2] == (
        "waits for the gradients of image.weight, and reduces no bucket that lacks one",
        "other ranks run image (train.py:12)",
    )
    # What asks which gradients are to come waits for none.
    assert told(of_ranks(*[(text, {"": ("unused",)}, [reduced("a", "text")])] * 2)) == []


def test_the_first_of_many_modules_without_gradient_are_reported() -> None:
    paths = [f"expert{number}" for number in range(9)]
    some = graph("a", *paths, cuts=tuple(paths))
    ((_, lines),) = told(of_ranks(*[(some, {"": ("unfinished",)}, [])] * 2))
    assert len(lines) == 6
    assert "expert3.weight and 5 others" in lines[0]


def test_ranks_that_wrap_their_own_experts_lack_nothing() -> None:
    both = reduced("a")
    assert told(of_ranks(*[(graph("a", path), {"a": (), path: ()}, [both]) for path in ("one", "other")])) == []


def test_wrappers_in_another_state_on_some_ranks_are_named_once() -> None:
    one = graph("a", "b")
    reduces = {"": (), "b": ()}
    unsynced = {"": ("no_sync",), "b": ("no_sync",)}
    both = [reduced("a"), reduced("b")]
    assert told(of_ranks((one, unsynced, []), (one, reduces, both), (one, reduces, both))) == [
        (
            (0,),
            (
                "the model, b on rank 0: no gradient is reduced in this backward (no_sync)",
                "the model, b on ranks 1-2: gradients are reduced",
            ),
        )
    ]
    hooked = {"": ("hook:compress",), "b": ()}
    (finding,) = told(of_ranks((one, hooked, both), (one, reduces, both)))
    assert finding == (
        (0,),
        ("the model on rank 0: gradients are reduced by compress", "the model on rank 1: gradients are reduced"),
    )
    ((ranks, lines),) = told(of_ranks((one, {}, []), (one, REDUCES, both)))
    assert (ranks, lines[0]) == ((0,), "the model on rank 0: no wrapper reduces gradients")
    ((ranks, lines),) = told(of_ranks(*[(one, {"": ("uncalled",)}, [])] * 2))
    assert ranks == (0, 1)
    assert "its own forward was not called" in lines[0]
    for states in ({"": ("no_sync",)}, hooked, reduces, {}):
        assert told(of_ranks(*[(one, states, both)] * 2)) == [], states


def test_a_module_that_exchanges_on_other_ranks_only_is_named_with_its_class() -> None:
    norm = Collective("forward", "all_reduce", "world", scope="bn")
    synced = graph("a", "bn", kinds={"bn": "SyncNorm"})
    local = graph("a", "bn", kinds={"bn": "BatchNorm"})
    found = of_ranks((synced, {}, [norm, reduced("a")]), (local, {}, [reduced("a")]))
    assert told(found) == [
        (
            (1,),
            ("runs no collective in the forward of bn, and others do (it is BatchNorm here and SyncNorm there)",),
        )
    ]
    # A rank that communicates there in another group is not silent.
    groups = {"world": (0, 1), "own": (1,)}
    other = make_rank(1, [replace(norm, group="own")], graph=synced, world=2, groups=groups)
    assert told(gradir.ranks([make_rank(0, [norm], graph=synced, world=2), other])) == []
    # A rank that does not run the module is another matter, which the graphs tell.
    assert told(of_ranks((synced, {}, [norm]), (graph("a"), {}, []))) == []


def test_parameters_whose_gradients_no_rank_exchanges_are_named_where_several_ranks_have_them() -> None:
    def found(*names: tuple[str, ...], path: str = "a") -> gradir.Ranks:
        one = graph("a", "head")
        world = tuple(range(len(names)))
        around = {"groups": {"world": world}, "wrappers": {path: ()}}
        records = [Rank(rank, len(names), unreduced=names[rank], **around) for rank in world]
        return gradir.ranks(replace(one, rank=record, collectives=(reduced("a"),)) for record in records)

    assert told(found(("head.weight",), (), ("head.weight",))) == [
        (
            (0, 2),
            (
                "no wrapper has head.weight, and no collective reduces the gradients before the optimizer's step",
                "used in head (train.py:11)",
                "these copies part: wrap the module that has them, or reduce their gradients",
            ),
        )
    ]
    assert told(found(("own.0.weight",), ("own.1.weight",))) == []
    ((_, lines),) = told(found(("head.weight",), ("head.weight",), path="head"))
    assert lines[0].startswith("the wrapper does not reduce head.weight, and")
    assert "added, replaced or unfrozen after it was created" in lines[-1]


def unreduced(*values: int | None, issued: Collective | None = None) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Return the findings about ranks with these values of a parameter that no collective reduces."""
    groups = {"world": tuple(range(len(values)))}
    return told(
        gradir.ranks(
            make_rank(
                rank,
                (reduced("a"), *([] if issued is None else [issued])),
                graph=graph("a", "head"),
                world=len(values),
                groups=groups,
                unreduced=("head.weight",),
                values={} if value is None else {"head.weight": value},
            )
            for rank, value in enumerate(values)
        )
    )


@pytest.mark.parametrize(
    ("values", "ranks"),
    [
        ((5, 5), [(0, 1)]),
        ((5, 5, 7, 7), [(0, 1, 2, 3)]),
        # Each rank may have a part of the weight, or nothing is known of the values.
        ((5, 6), []),
        ((5, 5, 7), []),
        ((None, None), []),
    ],
)
def test_a_program_without_wrappers_lacks_the_sum_of_equal_parameters_only(
    values: tuple[int | None, ...], ranks: list[tuple[int, ...]]
) -> None:
    assert [each for each, _ in unreduced(*values)] == ranks


@pytest.mark.parametrize(
    ("op", "peer", "line"),
    [
        ("reduce", 0, "forward reduce on world with 0 gives the sum to one rank only"),
        ("all_reduce", None, "forward all_reduce on world sums a copy, which is not copied back"),
    ],
)
def test_the_message_that_returns_no_sum_is_named(op: str, peer: int | None, line: str) -> None:
    ((_, lines),) = unreduced(5, 5, issued=Collective("forward", op, "world", peer, operands=("head.weight",)))
    assert line in lines


def test_wrappers_that_reduce_nothing_on_any_rank_before_a_step_are_named() -> None:
    def found(*states: tuple[str, ...]) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
        names = [("a.weight",) if state else () for state in states]
        each = ({"wrappers": {"": state}, "unreduced": name} for state, name in zip(states, names, strict=True))
        return told(gradir.ranks(make_rank(rank, graph=graph("a"), world=2, **more) for rank, more in enumerate(each)))

    ((ranks, lines),) = found(("no_sync",), ("no_sync",))
    assert ranks == (0, 1)
    assert lines[0] == (
        "the optimizer steps after a backward in no_sync, which leaves the gradients of a.weight unreduced"
    )
    # Another state of one rank explains the same.
    ((ranks, lines),) = found(("no_sync",), ())
    assert lines[0] == "the model on rank 0: no gradient is reduced in this backward (no_sync)"


def test_a_parameter_of_another_shape_on_each_rank_is_no_copy() -> None:
    def head(rank: int, size: int) -> Graph:
        b = Builder()
        b.output(b.function("mm", [b.tensor("w", TensorMeta("float32", (size,)), role="parameter")], [META]))
        record = Rank(rank, 2, groups={"world": (0, 1)}, wrappers={"body": ()}, unreduced=("w",))
        return replace(b.build(), rank=record)

    assert [bool(told(gradir.ranks([head(0, 4), head(1, size)]))) for size in (4, 5)] == [True, False]


def test_a_parameter_that_others_reduce_is_named_with_the_reason() -> None:
    every = graph("a", "b", "c")
    frozen, unused = graph("a", "b"), graph("a", "b", cuts=("c",))
    by_hand = [reduced("a"), reduced("b"), reduced("c")]
    ((ranks, lines),) = told(of_ranks((every, {}, by_hand), (every, {}, by_hand), (frozen, {}, by_hand[:2])))
    assert (ranks, lines) == ((2,), ("does not reduce c.weight, and others do: they are frozen here, or not there",))
    ((_, lines),) = told(of_ranks((every, {}, by_hand), (unused, {}, by_hand[:2])))
    assert lines == ("does not reduce c.weight, and others do: they are without gradient here",)
    ((_, lines),) = told(of_ranks((every, {}, by_hand), (every, {}, [])))
    assert lines == ("does not reduce a.weight, b.weight, c.weight, and others do",)
    # As many exchanges with other gradients in them: a bucket has place for what does not come.
    assert told(of_ranks((every, {}, [reduced("a", "c")]), (unused, {}, [reduced("a")]))) == []
