"""Models of any size, captured on tensors without data."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from example_files import attribute  # noqa: E402

from gradir import registry  # noqa: E402
from gradir.ir.totals import totals  # noqa: E402


def captured(spec: str, *, fake: bool):
    return registry.frontend("torch").capture_target(attribute(spec), (), fake=fake)


def test_seven_billion_parameters() -> None:
    live = captured("llama.py:loss", fake=True)
    counts = totals(live.graph)
    assert counts.parameters == 6_738_415_616
    assert len(live.grad_fns) == 2_482
    assert counts.saved_bytes > 20_000_000_000
    assert live.graph.cuts == ()
    assert live.graph.nodes["lm_head.weight"].outputs[0].shape == (32_000, 4_096)
    assert live.graph.scopes["model.layers.31.self_attn"].class_name == "LlamaAttention"


def test_a_fake_capture_is_the_real_one() -> None:
    real, fake = (captured("gpt.py:loss", fake=fake) for fake in (False, True))
    assert fake.graph == real.graph


def test_a_model_of_transformers_agrees_with_the_engine() -> None:
    # Its graph without data is another: transformers drops an attention mask only after looking at its values.
    assert captured("llama.py:small", fake=False).verify().mismatches == ()
