"""Models in plain JAX, linen, nnx and equinox: their modules, and leaves and bytes as JAX itself says."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

for package in ("jax", "flax", "equinox"):
    pytest.importorskip(package)

import jax  # noqa: E402
import jax_oracle  # noqa: E402
import jax_told  # noqa: E402
import jax_verification  # noqa: E402
from jax_captures import assert_files_hold, capture_case, make_arguments  # noqa: E402
from jax_models import MODELS, Model  # noqa: E402
from jax_models.plain import BILLIONS, llama  # noqa: E402

import gradir  # noqa: E402
from gradir.ir.validate import check_all  # noqa: E402

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@cache
def asked(model: Model) -> jax_oracle.Question:
    fn, args = make_arguments(model)
    return jax_oracle.make_question(fn, args, has_aux=model.has_aux)


@every_model
def test_the_modules_are_those_of_the_program(model: Model) -> None:
    scopes = capture_case(model).scopes
    assert {path: (scope.class_name, scope.calls) for path, scope in scopes.items()} == model.modules
    assert {path: scope.rounds for path, scope in scopes.items() if scope.rounds} == model.rounds


@every_model
def test_a_real_backward_gives_a_gradient_to_every_leaf(model: Model) -> None:
    graph = capture_case(model)
    check_all(graph)
    reached = set(jax_told.names(graph, "parameter").split())
    assert reached == set(asked(model).names) == jax_oracle.find_moved(asked(model))
    assert graph.cuts == ()


@every_model
def test_jax_keeps_as_many_bytes_of_the_whole_function(model: Model) -> None:
    assert jax_told.sum_held_bytes(capture_case(model)) == jax_oracle.residual_bytes(asked(model))


@every_model
def test_leaves_belong_to_the_modules_that_use_them(model: Model) -> None:
    scopes = capture_case(model).scopes
    for node in capture_case(model).nodes.values():
        if node.role == "parameter":
            assert node.scope in scopes
            assert node.names[0].startswith(node.scope)
    sizes = [jax.numpy.size(leaf) for leaf in asked(model).leaves]
    assert scopes[""].total == scopes[""].trainable == sum(sizes) == sum(scope.own for scope in scopes.values())


@every_model
def test_a_file_of_either_form_is_read_back_equal_and_fits_its_schema(model: Model, tmp_path: Path) -> None:
    assert_files_hold(capture_case(model), tmp_path)


@pytest.mark.parametrize("name", ["linen cnn with batch statistics", "equinox transformer", "nnx scanned stack"])
def test_verify_finds_nothing_wrong(name: str) -> None:
    fn, args = make_arguments(MODELS[name])
    assert gradir.verify(fn, *args, has_aux=MODELS[name].has_aux).mismatches == ()


@pytest.mark.parametrize(
    ("scanned", "nodes", "leaves"), [(False, 2558, 291), (True, 110, 12)], ids=["unrolled", "scanned"]
)
def test_a_llama_of_seven_billion_parameters_needs_no_memory(scanned: bool, nodes: int, leaves: int) -> None:
    loss, args = llama(BILLIONS, scanned=scanned)
    graph = gradir.capture(loss, *args)
    assert len(graph.nodes) == nodes
    assert len(jax_told.names(graph, "parameter").split()) == leaves
    assert graph.scopes[""].total == 6_738_415_616
    assert jax_told.sum_held_bytes(graph) == jax_oracle.residual_bytes(jax_oracle.make_question(loss, args))


def test_the_table_of_the_docs_is_of_these_models_and_has_no_mismatch() -> None:
    shown = jax_verification.PAGE.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if line[:1] == "|"]
    assert [row[0] for row in rows[2:-4]] == [*MODELS]
    assert {row[-1] for row in rows[2:]} == {"0"}
    if jax_verification.versions() in shown:
        for row in rows[2:-4]:
            graph = capture_case(MODELS[row[0]])
            assert row[1] == str(len(graph.nodes))
            assert row[5] == row[6] == f"{jax_told.sum_held_bytes(graph):,}"
