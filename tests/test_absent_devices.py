"""Programs that are written for a device that is not there, captured without data."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from command_line import runner  # noqa: E402

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402

if torch.cuda.is_available():
    pytest.skip("there is a GPU", allow_module_level=True)

WARNING = "gradir: warning: there is no cuda device here: gradir uses cpu instead\n"
MOVED = """
import torch
from torch import nn


def loss():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    trained = torch.optim.SGD(model.parameters(), lr=0.1)
    model = model.DEVICE().half().to(torch.bfloat16).to("DEVICE").to(device=torch.device("DEVICE", 0)).double()
    assert trained.param_groups[0]["params"] == [*model.parameters()]
    x = torch.randn(2, 4, device="DEVICE", dtype=torch.float64)
    with torch.device("DEVICE"):
        x = x + torch.ones(4) + torch.tensor([1.0, 2.0, 3.0, 4.0])
    x = x if "DEVICE" == "cpu" else x.pin_memory()
    return model, (model(x.DEVICE()).to("DEVICE", torch.float32, non_blocking=True) * x.new_ones(4)).sum()
"""


def test_a_model_that_is_moved_has_the_graph_that_it_has_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for device in ("cpu", "cuda"):
        Path(f"{device}.py").write_text(MOVED.replace("DEVICE", device))
    assert main(["capture", "cpu.py:loss", "-o", "cpu.gir"]) == 0
    assert WARNING not in capfd.readouterr().err
    assert main(["capture", "cuda.py:loss", "--fake", "-o", "cuda.gir"]) == 0
    assert capfd.readouterr().err.count(WARNING) == 1
    cpu, cuda = (gradir.load(f"{device}.gir") for device in ("cpu", "cuda"))
    assert cpu.nodes == cuda.nodes
    # What was put in the place of torch's own functions is gone again.
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(1).cuda()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(1, device="cuda")
    with pytest.raises((AssertionError, AttributeError, RuntimeError)):
        torch.cuda.set_device(0)


TRAINING = """
import os
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def layers():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))


def loss():
    distributed.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    ddp = DistributedDataParallel(layers().to(device), [local], output_device=local)
    mesh = init_device_mesh("cuda", (2, 1), mesh_dim_names=("dp", "tp"))
    sharded = fully_shard(layers().cuda(local), mesh=mesh["dp"])
    with torch.device("meta"):
        late = layers()
    fully_shard(late, mesh=mesh["dp"])
    late.to_empty(device="cuda")
    x = torch.randn(2, 4, device=f"cuda:{local}").to(torch.cuda.current_device())
    torch.cuda.synchronize()
    return nn.ModuleDict({"ddp": ddp, "sharded": sharded, "late": late}), (ddp(x) + sharded(x) + late(x)).sum()
"""


def test_ranks_on_devices_of_their_own_have_the_same_graph(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    run = runner(tmp_path, clean_environment)
    line = ("capture", "train.py:loss", "--ranks", "all", "--world", "2", "--collectives", "-o", "run.{rank}.gir")
    done = run(*line)
    assert done.returncode == 0, done.stderr
    assert "ranks 0-1: gradir: warning: there is no cuda device here: gradir uses cpu instead\n" in done.stderr
    compared = run("ranks", *(f"run.{rank}.gir" for rank in range(2)))
    assert compared.returncode == 0, compared.stdout
    assert compared.stdout.startswith("2 of 2 ranks, 1 graph\n")
