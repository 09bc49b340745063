"""Models in torch beside ports to JAX, which are stored as graphs: `ports/in_jax.py` made them."""

from __future__ import annotations

from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import gradir
from gradir import cli
from gradir.ir import Graph

torch = pytest.importorskip("torch")

PORTS = Path(__file__).parent / "ports"


@cache
def models() -> Any:
    spec = spec_from_file_location("in_torch", PORTS / "in_torch.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def in_torch(kind: str, **how: Any) -> Graph:
    torch.manual_seed(0)
    known = models()
    model, loss = {
        "mlp": (known.MLP, known.mlp_loss),
        "block": (known.GPT, known.gpt_loss),
        "cnn": (known.CNN, known.cnn_loss),
        "residuals": (known.Residuals, known.residuals_loss),
        "stack": (lambda **how: known.GPT(3, **how), known.gpt_loss),
    }[kind]
    made = model(**how)
    with gradir.record(made) as rec:
        value = loss(made)
    return rec.capture(value)


def in_jax(name: str) -> Graph:
    return gradir.load(PORTS / f"{name}.gir")


@pytest.mark.parametrize(
    ("written", "kind", "operations"),
    [
        *((written, *each) for written in ("plain", "linen") for each in (("mlp", 7), ("block", 27), ("stack", 63))),
        ("linen", "cnn", 9),
        ("nnx", "residuals", 24),
        ("equinox", "residuals", 24),
    ],
)
def test_an_honest_port_has_no_difference(kind: str, operations: int, written: str) -> None:
    a, b = in_torch(kind), in_jax(f"{written}_{kind}")
    assert gradir.diff(a, b)
    found = gradir.diff(a, b, vocabulary=True)
    assert not found, str(found)
    assert f"{operations} of {operations} operations in common" in str(found)
    assert not gradir.diff(b, a, vocabulary=True)


@pytest.mark.parametrize("written", ["plain", "linen"])
def test_another_activation_is_reported_in_the_words_of_both(written: str) -> None:
    found = gradir.diff(in_torch("stack", activation="relu"), in_jax(f"{written}_stack"), vocabulary=True)
    assert [(change.kind, change.label) for change in found.changes] == [("changed", "gelu")] * 3
    assert 'native: relu -> "integer_pow, mul, add, tanh"' in found.to("text", details=True)


def test_the_exact_gelu_is_not_the_approximate_one() -> None:
    found = gradir.diff(in_torch("block", activation="gelu_erf"), in_jax("linen_block"), vocabulary=True)
    assert [(field.name, field.before, field.after) for change in found.changes for field in change.fields] == [
        ("attrs.approximate", "none", "tanh")
    ]


def test_a_bias_that_one_has_not_is_reported() -> None:
    found = gradir.diff(in_torch("mlp", bias=False), in_jax("linen_mlp"), vocabulary=True)
    assert {(change.kind, change.id) for change in found.changes if change.kind == "added"} == {
        ("added", "fc2.bias"),
        ("added", "fc2/add:1"),
    }


@pytest.mark.parametrize("written", ["plain", "linen"])
def test_a_residual_that_one_has_not_is_reported(written: str) -> None:
    found = gradir.diff(in_torch("block", residual=False), in_jax(f"{written}_block"), vocabulary=True)
    assert [change.label for change in found.changes if change.kind == "added"] == ["add"]
    assert not [change for change in found.changes if change.kind == "removed"]


def test_another_width_is_reported_of_every_parameter_it_changes() -> None:
    found = gradir.diff(in_torch("mlp", hidden=12), in_jax("plain_mlp"), vocabulary=True)
    parameters = {change.id: change.fields for change in found.changes if change.label == "parameter"}
    assert [*parameters] == ["fc1.weight", "fc1.bias", "fc2.weight"]
    assert [(field.before, field.after) for field in parameters["fc1.weight"]] == [((4, 12), (4, 16))]


def test_the_command_says_what_both_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gradir.save(in_torch("mlp"), tmp_path / "torch.gir")
    paths = [str(tmp_path / "torch.gir"), str(PORTS / "linen_mlp.gir")]
    assert cli.main(["diff", *paths, "--vocabulary"]) == 0
    assert "no difference in shared words" in capsys.readouterr().out
    assert cli.main(["diff", *paths]) == 1
    out, err = capsys.readouterr()
    assert "the frameworks differ" in out
    assert "--vocabulary" in err


@pytest.mark.parametrize("form", ["markdown", "json", "html", "mermaid", "dot"])
def test_every_form_shows_a_port(form: str) -> None:
    found = gradir.diff(in_torch("stack", activation="relu"), in_jax("linen_stack"), vocabulary=True)
    assert form == "html" or "gelu" in found.to(form)
    assert found.to(form)
