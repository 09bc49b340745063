"""Features that go through a file or a pickle, and come back as tensors without a graph."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402

Through = Callable[[Any], Any]


def an_array_file(features: Any) -> Any:
    file = io.BytesIO()
    np.save(file, features.detach().numpy())
    file.seek(0)
    return torch.from_numpy(np.load(file))


def raw_bytes(features: Any) -> Any:
    return torch.frombuffer(bytearray(features.detach().numpy().tobytes()), dtype=torch.float32).view(features.shape)


def a_list_in_text(features: Any) -> Any:
    return torch.tensor([[float(word) for word in repr(row).strip("[]").split(", ")] for row in features.tolist()])


def a_torch_file(features: Any) -> Any:
    file = io.BytesIO()
    torch.save({"features": features}, file)
    file.seek(0)
    return torch.load(file)["features"]


def a_pickle(features: Any) -> Any:
    return pickle.loads(pickle.dumps(features.detach()))


def safetensors(features: Any) -> Any:
    library = pytest.importorskip("safetensors.torch")
    return library.load(library.save({"features": features.detach().contiguous()}))["features"]


def other_numbers(features: Any) -> Any:
    np.save(io.BytesIO(), features.detach().numpy())
    return torch.from_numpy(np.linspace(0, 1, features.numel(), dtype=np.float32)).view(features.shape)


WAYS = [an_array_file, raw_bytes, a_list_in_text, a_torch_file, a_pickle, safetensors]


@pytest.mark.parametrize("through", [*WAYS, other_numbers])
def test_features_that_come_back_from_a_file_are_cut_where_they_left(through: Through) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"body": nn.Linear(3, 4), "head": nn.Linear(4, 2)})
    with gradir.record(model, flow=True) as rec:
        features = through(model["body"](torch.randn(5, 3)))
        loss = model["head"](features).square().mean()
    found = rec.explain(loss)
    cause = found.causes[0]
    assert found.statuses["head.weight"] == "reached"
    if through is other_numbers:
        assert found.level == "info"
    else:
        assert (cause.level, set(cause.names)) == ("error", {"body.weight", "body.bias"})
        assert cause.source is not None
        assert cause.source.function == through.__name__
    loss.backward()
    assert model["body"].weight.grad is None


@pytest.mark.filterwarnings("ignore:.*in (beta|prototype).*")
@pytest.mark.parametrize("of", ["to_sparse_csr", "to_mkldnn", "unbind"])
def test_tensors_that_are_not_read_as_rows_of_numbers_do_not_come_back(of: str) -> None:
    model, other = nn.Linear(3, 4), getattr(torch.ones(4, 4), of)()
    odd = torch.nested.nested_tensor(list(other)) if of == "unbind" else other
    with gradir.record(model, flow=True) as rec:
        output = model(torch.randn(5, 3))
        np.save(io.BytesIO(), output.detach().numpy())
        torch.clone(odd)
        loss = output.sum()
    assert rec.explain(loss).level == "none"
