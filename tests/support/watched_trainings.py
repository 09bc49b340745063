"""Scripts that ``gradir watch`` runs in a folder of a test, after which torch is as before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.amp import GradScaler  # noqa: E402
from torch.nn import utils  # noqa: E402
from torch.optim import Optimizer, lr_scheduler  # noqa: E402

from gradir.cli.main import main  # noqa: E402

optimizer_module = sys.modules[Optimizer.__module__]


def watched(*words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of ``gradir watch``, and the lines that it writes."""
    try:
        status = main(["watch", "-o", "watch.jsonl", *words])
    except SystemExit as left:
        status = int(left.code or 0)
    return status, [json.loads(line) for line in Path("watch.jsonl").read_text().splitlines()]


def errors(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == "finding" and line["level"] == "error"]


def patched() -> list[object]:
    """What watching puts something in the place of."""
    functions = [torch.Tensor.backward, torch.autograd.backward, Optimizer.__init__, Optimizer.zero_grad]
    functions += [nn.Module.zero_grad, utils.clip_grad_norm_, GradScaler.scale, GradScaler.step]
    return [*functions, lr_scheduler.LRScheduler.__init__, len(optimizer_module._global_optimizer_pre_hooks)]


@pytest.fixture
def watched_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    before = patched()
    yield
    assert patched() == before
