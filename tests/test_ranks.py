"""Captures and verifications in several processes that train together, over the loopback interface."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torchrun import results_of  # noqa: E402

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("needs a torch built with distributed and gloo", allow_module_level=True)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loopback interface has another name")


def test_a_backward_behind_verify_is_the_same_under_ddp(tmp_path: Path) -> None:
    refused = (
        "a function of the graph runs a backward of its own, whose gradients a process group would send: "
        "verify in a process without a group"
    )
    for found in results_of("ddp.py", 3, tmp_path):
        assert found.pop("own backward") == [True, [refused]]
        assert found == {name: [True, []] for name in found}
        assert len(found) == 12


def test_a_backward_behind_verify_is_the_same_under_fsdp2_and_every_parameter_has_its_name(tmp_path: Path) -> None:
    for found in results_of("fsdp.py", 2, tmp_path):
        assert found == {name: [True, [], [True, 16, [], []]] for name in found}
        assert len(found) == 7
