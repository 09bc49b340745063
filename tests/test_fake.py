"""Models of any size, captured on tensors without data."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from example_files import attribute, live  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from reports import markdown, render_details, render_text  # noqa: E402

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402
from gradir.ir.totals import totals  # noqa: E402

nn = torch.nn


def run(target, *inputs: str, fake: bool):
    return live(target, *inputs, fake=fake)


def captured(spec: str, *, fake: bool):
    return run(attribute(spec), fake=fake)


def test_a_fake_capture_is_the_real_one() -> None:
    real, fake = (captured("gpt.py:loss", fake=fake) for fake in (False, True))
    assert replace(fake.graph, producer=real.graph.producer) == real.graph
    # The head says which is which.
    assert fake.graph.producer.options == {**real.graph.producer.options, "fake": True}
    assert "fake" not in real.graph.producer.options


def test_a_model_of_transformers_agrees_with_the_engine() -> None:
    # Its graph without data is another: transformers drops an attention mask only after looking at its values.
    assert captured("llama.py:small", fake=False).verify().mismatches == ()


class Dropping(nn.Module):
    """A model that looks at small tensors while it is built, as those do whose layers drop more the deeper they are."""

    def __init__(self) -> None:
        super().__init__()
        rates = [x.item() for x in torch.linspace(0, 0.5, 3)]
        rates += torch.arange(4).float().div(8).tolist()[2:]
        sizes = torch.tensor([2, 3])
        sizes[0] += 1
        if (torch.zeros(2, 2) == 0).all():
            self.layers = nn.ModuleList(nn.Linear(3, int(sizes.min())) for _ in rates)
        self.rates = rates

    def forward(self, x):
        for layer, rate in zip(self.layers, self.rates, strict=True):
            x = x + layer(x).transpose(0, 1).reshape(2, 3) * rate
        return x.sum()


class Looking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return x * self.weight if torch.randn(3).max() > 9 else x.sum()


def kinds(target, *inputs: str, fake: bool) -> gradir.Graph:
    return run(target, *inputs, fake=fake).graph


def test_a_model_may_look_at_small_tensors_of_numbers_while_it_is_built() -> None:
    real, fake = (kinds(Dropping, "float32[2,3]", fake=fake) for fake in (False, True))
    assert replace(fake, producer=real.producer) == real
    # What is multiplied by is among the attributes.
    factors = [node.attrs["other"] for node in fake.nodes.values() if node.op == "mul"]
    assert factors == [0.0, 0.25, 0.5, 0.25, 0.375]


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("PoolFormer", {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 8]}),
        ("ConvNext", {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 8]}),
        ("ViT", {"image_size": 32, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}),
        ("Swinv2", {"image_size": 32, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 2}),
    ],
)
def test_models_of_transformers_are_built_without_data(model: str, config: dict[str, object]) -> None:
    transformers = pytest.importorskip("transformers")

    def loss():
        made = getattr(transformers, f"{model}Model")(
            getattr(transformers, f"{model}Config")(drop_path_rate=0.1, **config)
        ).eval()
        return made, made(torch.randn(1, 3, 32, 32)).last_hidden_state.sum()

    real, fake = (kinds(loss, fake=fake) for fake in (False, True))
    assert fake.scopes == real.scopes
    assert fake.cuts == real.cuts
    assert totals(fake).parameters == totals(real).parameters


def test_limits_of_tensors_without_data_are_reported(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(2, 2)\n"
    text += "        if self.weight.sum() > 0:\n            self.extra = 1\n"
    (tmp_path / "net.py").write_text(text, encoding="utf-8")
    assert main(["capture", "net.py:Net", "--input", "float32[1,2]", "--fake"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Net looks at the values of a tensor (net.py line 5)" in line
    assert line.endswith("or capture without --fake")
    # Nor do random numbers have values, of which a model without data draws others than the one with.
    with pytest.raises(gradir.SpecError, match="looks at the values of a tensor"):
        kinds(Looking, "float32[2]", fake=True)


def test_operations_that_need_data_are_reported() -> None:
    def lazy():
        return nn.LazyLinear(2)(torch.ones(1, 3)).sum()

    assert kinds(lazy, fake=False)
    with pytest.raises(gradir.SpecError, match=r"RuntimeError: .* \(torch cannot run .* try it without --fake\)$"):
        kinds(lazy, fake=True)


def test_a_diff_says_which_side_has_no_data() -> None:
    real, fake = (kinds(Dropping, "float32[2,3]", fake=fake) for fake in (False, True))
    other = kinds(lambda: torch.ones(2, requires_grad=True).exp(), fake=False)
    for sides, said in (((other, fake), "second"), ((fake, other), "first")):
        found = gradir.diff(*sides)
        note = f"without data: the {said} graph (--fake), where torch runs some operations in other ways"
        assert render_details(found, sides).splitlines()[1] == note
        assert render_text(found, sides).splitlines()[1] == note
        assert f"**Without data:** `{note.partition(': ')[2]}`" in markdown(*sides, found)
    for sides in ((other, real), (fake, kinds(lambda: torch.ones(3, requires_grad=True).exp(), fake=True))):
        assert "without data" not in render_details(gradir.diff(*sides), sides)
