"""The operators that torch tests itself with: each can be captured, verified, explained, written and read."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")
if torch.__version__ < torch.torch_version.TorchVersion("2.13"):
    pytest.skip("an older torch has other samples, of which some fail by themselves", allow_module_level=True)

from operators import NAMES, try_operator  # noqa: E402

# The others are tried by `make verification`; those with a layout, samples or results of their own are tried here too.
ODD = {"linalg.eig", "norm", "normal.number_mean", "sparse.sampled_addmm", "svd_lowrank", "to_sparse"}
CHOSEN = sorted({*NAMES[::6], *ODD} & {*NAMES})
ONLY_ON_A_GPU = {"torch.ops.aten._efficient_attention_forward", "torch.ops.aten._flash_attention_forward"}


def test_a_hundred_are_tried() -> None:
    assert len(CHOSEN) >= 95


@pytest.mark.parametrize("name", CHOSEN)
def test_an_operator_is_captured_verified_and_explained(name: str) -> None:
    # The graph of another precision differs in dtypes alone; `make verification` tries all.
    found = try_operator(name, {torch.float32, torch.complex64})
    assert found.faults == ()
    assert found.graphs or name in ONLY_ON_A_GPU
