"""Schedules of pipelines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torchrun import command_on_ranks  # noqa: E402

import gradir  # noqa: E402

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("needs a torch built with distributed and gloo", allow_module_level=True)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loopback interface has another name")

PIPELINE = """\
import sys
import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleavedZeroBubble


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.fc(x))


distributed.init_process_group("gloo")
rank, is_lone, fault = distributed.get_rank(), sys.argv[1] == "lone", sys.argv[2]
count = 3 if fault == "skips" and rank == 1 else 4
blocks = nn.ModuleList([Block() for _ in range(1 if is_lone else 2)])
numbers = range(rank, 2 * len(blocks), 2)
stages = [PipelineStage(each, at, 2 * len(blocks), torch.device("cpu")) for each, at in zip(blocks, numbers)]
if fault == "swaps" and rank == 1:
    receive = stages[0].get_fwd_recv_ops
    stages[0].get_fwd_recv_ops = lambda number: receive({0: 1, 1: 0}.get(number, number))
kind = Schedule1F1B if is_lone else ScheduleInterleavedZeroBubble
schedule = kind(stages[0] if is_lone else stages, count, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(blocks.parameters(), 0.1)
rows = torch.arange(8.0 * count).view(2 * count, 4)
for _ in range(3):
    schedule.step(*[] if rank else [rows], **{"target": rows} if rank else {})
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("kind", "fault", "step", "kinds", "line"),
    [
        ("lone", "", "1", [], ""),
        ("several", "", "2", [], ""),
        ("several", "swaps", "1", ["mixed"], "rank 0 in forward send float32[2, 4] on world with 1 of microbatch 0"),
        ("lone", "skips", "1", ["hang"], "never received: rank 0 in forward send float32[2, 4] on world with 1"),
    ],
)
def test_an_unedited_pipeline_is_captured_as_its_schedule_runs(
    kind: str, fault: str, step: str, kinds: list[str], line: str, tmp_path: Path
) -> None:
    if fault == "swaps" and torch.__version__ >= torch.torch_version.TorchVersion("2.15"):
        pytest.skip("torch 2.15 does not receive into the buffer of another microbatch")
    (tmp_path / "train.py").write_text(PIPELINE)
    arguments = ["run", "-o", "run.{rank}.gir", "--patience", "5", "--step", step, "train.py", kind, fault]
    done = command_on_ranks(arguments, 2, tmp_path)
    paths = sorted(tmp_path.glob("*.gir"))
    found = gradir.ranks(paths)
    assert [finding.kind for finding in found.findings] == kinds, done.stdout
    assert line in "\n".join(line for finding in found.findings for line in finding.lines)
    if fault:
        return
    assert (done.returncode, found.stopped) == (0, {})
    graphs = [gradir.load(path) for path in paths]
    # Each has one microbatch of all of its stages.
    parameters = [name for graph in graphs for name, node in graph.nodes.items() if node.role == "parameter"]
    assert len(parameters) == (4 if kind == "lone" else 8)
    assert [graph.rank.stage for graph in graphs if graph.rank is not None] == [0, 1]
    if kind == "lone":
        links = [(edge.src, edge.dst) for edge in gradir.link(graphs).edges if edge.dst.endswith("recv:1")]
        assert links == [("stage0/send:1", "stage1/recv:1")]


@pytest.mark.parametrize(
    ("command", "kind", "said"),
    [
        ("watch", "lone", "Nothing wrong was found in 3 steps."),
        ("watch", "several", "Nothing wrong was found in 3 steps."),
        ("explain", "lone", "Both parameters get a gradient."),
    ],
)
def test_every_stage_of_a_pipeline_is_watched_and_explained(command: str, kind: str, said: str, tmp_path: Path) -> None:
    # Of one seed, all stages begin with equal parameters.
    (tmp_path / "train.py").write_text(PIPELINE.replace("distributed.init", "torch.manual_seed(0)\ndistributed.init"))
    done = command_on_ranks([command, "train.py", kind, ""], 2, tmp_path)
    assert done.stdout.count(said) == 2, done.stdout
