"""Inputs that gradient goes through no more: said first, decided on by name, and only where it is so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from edited_gpt import GPT, capture_edit, loss_of, plain  # noqa: E402
from reports import slots  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402
from gradir.diffs.diff_json import decode, encode  # noqa: E402
from gradir.ir import Graph, Node, Ref  # noqa: E402
from gradir.review.reviewing import review_graphs  # noqa: E402

LOST = {
    "detached-residual": ("AddBackward0", 0, [(f"blocks.{n}/add:1", 0) for n in range(6)]),
    "detached-value": ("AddmmBackward0", 1, [(f"blocks.{n}.attn.v/addmm:1", 1) for n in range(6)]),
}


def slots_without_gradient(edit: str, kind: str, slot: int) -> int:
    """How many operations of a kind a real backward hands nothing to through a slot."""
    _, loss, _ = loss_of(edit)
    empty: Counter[int] = Counter()
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting.extend(above for above, _ in node.next_functions)
        if node.name() == kind:
            node.register_hook(lambda given, _: empty.update([given[slot] is None]))
    loss.backward()
    return empty[True]


@pytest.mark.parametrize("name", LOST)
def test_a_slot_is_lost_if_a_backward_gives_it_no_gradient(name: str) -> None:
    kind, slot, lost = LOST[name]
    assert slots(review_graphs(plain(), capture_edit(name)), "lost-inputs") == lost
    assert slots_without_gradient(name, kind, slot) - slots_without_gradient("", kind, slot) == len(lost)
    assert not slots(review_graphs(capture_edit(name), plain()), "lost-inputs")


@pytest.mark.parametrize("name", LOST)
def test_the_gate_of_the_docs_fails_and_says_where(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / side) for side in ("a.gir", "b.gir")]
    for graph, path in zip((plain(), capture_edit(name)), paths, strict=True):
        graph.save(path)
    _, slot, lost = LOST[name]
    assert main(["diff", *paths, "--fail-on", "cuts,lost-inputs,params,saved-bytes>5%"]) == 1
    where = "add:1 in blocks.{0..5}" if slot == 0 else "addmm:1 in blocks.{0..5}.attn.v"
    said = f"6 lost inputs: in[{slot}] of {where}"
    output, errors = capfd.readouterr()
    sentence, counts, *_ = output.splitlines()
    assert sentence.startswith(f"{said}; ")
    assert counts.startswith(f"{said}; ")
    assert errors == f"gradir: lost-inputs: {said}\n"
    assert main(["diff", *paths, "--fail-on", "cuts,params"]) == 0
    assert capfd.readouterr().err == f"gradir: {said}; --fail-on lost-inputs fails on that\n"
    report = gradir.diff(plain(), capture_edit(name)).to("markdown")
    assert report.splitlines()[3] == f"**6 lost inputs:** `in[{slot}] of {where}`  "
    assert main(["diff", *paths, "--fail-on", f"lost-inputs>{len(lost)}"]) == 0
    assert main(["diff", *paths, "--fail-on", f"lost-inputs>{len(lost) - 1}"]) == 1


@pytest.mark.parametrize(
    "name", ["swapped", "sdpa", "lora", "lora-alone", "norm", "tied", "autocast", "width", "length"]
)
def test_other_edits_lose_no_input(name: str) -> None:
    assert not slots(review_graphs(plain(), capture_edit(name)), "lost-inputs")


def frozen(model: GPT) -> None:
    model.tokens.requires_grad_(False)
    model.places.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    model.blocks[2].norm1.bias = None
    model.blocks[3].attn.q.weight.requires_grad_(False)


def test_frozen_and_removed_inputs_are_not_lost() -> None:
    _, loss, recorder = loss_of(change=frozen)
    found = review_graphs(plain(), recorder.capture(loss))
    assert any(field.after is None for change in found.changes for field in change.fields)
    assert not slots(found, "lost-inputs")


def sums(*inputs: str | None) -> Graph:
    refs = tuple(name and Ref(name, 0) for name in inputs)
    return Graph.of([Node("x"), Node("y"), Node("add:1", op="add", inputs=refs)])


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (("x", None), (None, "x"), []),
        (("x", "y"), (None, "x", "y"), []),
        (("x", "y"), (None, None), [0, 1]),
        (("x", "y"), ("y", None), [1]),
        (("x", None), ("x", None), []),
    ],
)
def test_inputs_that_change_places_are_not_lost(
    before: tuple[str | None, ...], after: tuple[str | None, ...], lost: list[int]
) -> None:
    assert [slot for _, slot in slots(review_graphs(sums(*before), sums(*after)), "lost-inputs")] == lost


@pytest.mark.parametrize("kind", ["lost-inputs", "gained-inputs"])
def test_an_input_that_another_operation_of_the_module_reads_is_neither_lost_nor_gained(kind: str) -> None:
    inputs = [Node(name, role="parameter", scope="norm") for name in ("x", "rsqrt", "gain")]
    was, now = (
        Graph.of(
            [
                *inputs,
                Node("norm/mul:1", op="mul", inputs=(Ref("x", 0), Ref(first, 0)), scope="norm"),
                Node("norm/mul:2", op="mul", inputs=(Ref("norm/mul:1", 0), second), scope="norm"),
            ]
        )
        for first, second in (("rsqrt", Ref("gain", 0)), ("gain", None))
    )
    found = review_graphs(*((was, now) if kind == "lost-inputs" else (now, was)))
    assert found
    assert not slots(found, kind)


@pytest.mark.parametrize("op", ["add", "mul"])
def test_an_input_that_only_a_new_operation_reads_is_lost(op: str) -> None:
    inputs = [Node(name, role="parameter") for name in ("x", "y")]
    was = Graph.of([*inputs, Node("mul:1", op="mul", inputs=(Ref("x", 0), Ref("y", 0)))])
    cut = Node("mul:1", op="mul", inputs=(None, Ref("y", 0)))
    now = Graph.of([*inputs, cut, Node(f"{op}:2", op=op, inputs=(Ref("mul:1", 0), Ref("x", 0)))])
    assert slots(review_graphs(was, now), "lost-inputs") == [("mul:1", 0)]


def test_slots_of_another_operation_are_not_compared() -> None:
    b = Graph.of([Node("x"), Node("y"), Node("add:1", op="pow", inputs=(Ref("x", 0), None))])
    assert not slots(review_graphs(sums("x", "y"), b), "lost-inputs")


def test_a_diff_that_was_read_reports_them_too() -> None:
    diff = gradir.diff(plain(), capture_edit("detached-residual"))
    assert "6 lost inputs: " in str(decode(encode(diff))).splitlines()[0]
