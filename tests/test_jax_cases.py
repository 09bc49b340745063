"""Each case of JAX beside JAX itself: gradients, cuts, and bytes. test_jax_releases compares whole graphs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

import jax_oracle  # noqa: E402
import jax_told  # noqa: E402
from jax_captures import assert_files_hold, capture_case  # noqa: E402
from jax_cases import CASES, ERRORS, Case  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.ir import Ref  # noqa: E402
from gradir.ir.validate import check_all  # noqa: E402

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cache
def asked(case: Case) -> jax_oracle.Question:
    return jax_oracle.make_question(case.fn, case.args, case.argnums, has_aux=case.has_aux)


@every_case
def test_each_leaf_is_in_the_graph_or_cut(case: Case) -> None:
    graph = capture_case(case)
    reached, cut = jax_told.names(graph, "parameter").split(), [name for cut in graph.cuts for name in cut.names]
    differentiated = {*asked(case).names, *(name for cut in graph.cuts if cut.kind == "integer" for name in cut.names)}
    assert sorted([*reached, *cut]) == sorted(differentiated)
    assert {node.role for node in graph.nodes.values()} <= {"function", "parameter", "input", "output"}


@every_case
def test_a_cut_has_the_line_of_its_operation(case: Case) -> None:
    sources = {
        (cut.source.file, cut.source.line) for cut in capture_case(case).cuts if cut.op and cut.source is not None
    }
    place = f"tests/support/{case.fn.__module__.replace('.', '/')}.py", case.line
    assert sources == ({place} if case.line is not None else set())


@every_case
def test_slots_name_the_value_that_is_kept(case: Case) -> None:
    graph = capture_case(case)
    check_all(graph)
    for node in graph.nodes.values():
        for slot in node.saved:
            kind, number = slot.slot.rstrip("0123456789"), slot.slot.lstrip("abcdefghijklmnopqrstuvwxyz")
            if kind == "out":
                assert slot.origin == Ref(node.id, int(number))
            if kind == "in" and node.inputs[int(number)] is not None and not _is_carried(node, int(number)):
                assert slot.origin is None or slot.origin == node.inputs[int(number)]
            assert (slot.bytes is None) == (slot.state == "recomputed")


def _is_carried(node: gradir.Node, slot: int) -> bool:
    return slot in node.ext.get("carried_inputs", ())


@every_case
def test_a_real_backward_gives_a_gradient_to_the_leaves_of_the_graph(case: Case) -> None:
    moved, reached = jax_oracle.find_moved(asked(case)), {*jax_told.names(capture_case(case), "parameter").split()}
    assert moved <= reached if case.one_way else moved == reached


@every_case
def test_jax_keeps_as_many_bytes_of_the_whole_function(case: Case) -> None:
    assert jax_told.sum_held_bytes(capture_case(case)) == jax_oracle.residual_bytes(asked(case))


@every_case
def test_a_file_of_either_form_is_read_back_equal_and_fits_its_schema(case: Case, tmp_path: Path) -> None:
    assert_files_hold(capture_case(case), tmp_path)


@every_case
def test_verify_finds_nothing_wrong(case: Case) -> None:
    assert gradir.verify(case.fn, *case.args, argnums=case.argnums, has_aux=case.has_aux).mismatches == ()


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_an_object_that_cannot_be_captured_is_reported_in_one_line(case: Case) -> None:
    with pytest.raises(CaptureError) as raised:
        gradir.capture(case.fn, *case.args, argnums=case.argnums, has_aux=case.has_aux, frontend="jax")
    text = str(raised.value)
    assert text.startswith(case.error.format(line=case.line))
    assert "\n" not in text
