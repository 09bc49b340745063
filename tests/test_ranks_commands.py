"""gradir capture and gradir run under torchrun: a file for each rank."""

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


SPEC = """
import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2), static_graph=True)

def loss():
    return model(torch.ones(1, 3)).sum()
"""


def test_the_command_writes_a_file_for_each_rank_with_what_it_exchanges(tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text(SPEC)
    arguments = ["capture", "spec.py:loss", "-o", "run.{rank}-of-{world}.gir", "--collectives", "--step", "3"]
    done = command_on_ranks(arguments, 2, tmp_path)
    assert done.returncode == 0, done.stdout
    graphs = [gradir.load(tmp_path / f"run.{rank}-of-2.gir") for rank in (0, 1)]
    assert [graph.rank.rank for graph in graphs if graph.rank is not None] == [0, 1]
    assert [graph.rank.groups for graph in graphs if graph.rank is not None] == [{"world": (0, 1)}] * 2
    assert graphs[0].collectives == graphs[1].collectives
    # In this step, and in no other, the ranks agree on the buckets of a static graph.
    assert [(each.phase, each.op, str(each.tensors[0])) for each in graphs[0].collectives] == [
        ("forward", "broadcast", "int32[3]"),
        ("forward", "broadcast", "int32[1]"),
        ("backward", "all_reduce", "float32[8]"),
    ]
    assert graphs[0].collectives[-1].node in graphs[0].nodes
    assert not gradir.diff(*graphs)
    refused = command_on_ranks(["capture", "spec.py:loss", "-o", "run.gir"], 2, tmp_path)
    assert refused.returncode != 0
    # The launcher ends the other one as soon as the first has ended.
    assert "cannot write run.gir from all 2 processes" in refused.stdout
    assert not (tmp_path / "run.gir").exists()


UNEDITED = """\
import os

import torch
from torch import distributed, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        return y if os.environ["RANK"] == "1" else self.b(y)


distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(Net())
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
"""


def test_an_unedited_script_is_captured_with_its_collectives(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNEDITED)
    done = command_on_ranks(["run", "-o", "run.{rank}.gir", "train.py"], 2, tmp_path)
    assert done.returncode == 0, done.stdout
    found = gradir.ranks(sorted(tmp_path.glob("*.gir")))
    assert found.recorded
    assert [(finding.kind, finding.ranks) for finding in found.findings] == [
        ("hang", (0,)),
        ("missing", (1,)),
        ("graphs", (1,)),
        ("cuts", (1,)),
    ]
    assert found.findings[2].lines == ("lacks module.b (4 nodes, train.py:14)",)


APART = """\
import os
import torch
from torch import distributed, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        for group in order:
            distributed.all_reduce(torch.ones(1), group=group)
        return self.a(x)


distributed.init_process_group("gloo")
groups = [distributed.new_group([0, 1]) for _ in range(2)]
order = groups[:: -1 if os.environ["RANK"] == "1" else 1]
Net()(torch.ones(2, 4)).sum().backward()
"""


def test_ranks_that_wait_for_each_other_end_with_files_that_say_where(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(APART)
    done = command_on_ranks(["run", "-o", "run.{rank}.gir", "--patience", "4", "train.py"], 2, tmp_path)
    assert done.returncode != 0
    assert "without progress in forward all_reduce float32[1] on world:" in done.stdout
    found = gradir.ranks(sorted(tmp_path.glob("*.gir")))
    (finding,) = found.findings
    assert (finding.kind, finding.ranks, finding.lines) == (
        "hang",
        (0, 1),
        (
            "rank 0 in forward all_reduce float32[1] on world:2 (train.py:13)",
            "rank 1 in forward all_reduce float32[1] on world:3 (train.py:13)",
        ),
    ), done.stdout


BY_HAND = """\
import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
model = nn.Linear(4, 4)
if distributed.get_rank():
    x = torch.empty(2, 4)
    distributed.recv(x, 0)
    model(x.requires_grad_()).sum().backward()
    distributed.send(x.grad, 0)
else:
    y, gradient = model(torch.ones(2, 4)), torch.empty(2, 4)
    distributed.send(y.detach(), 1)
    distributed.recv(gradient, 1)
    y.backward(gradient)
"""


def test_a_rank_that_waits_for_a_captured_one_ends_without_a_failure(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BY_HAND)
    done = command_on_ranks(["run", "-o", "run.{rank}.gir", "train.py"], 2, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "rank 0 waits for a rank that was captured, in forward recv float32[2, 4]" in done.stdout
    found = gradir.ranks(sorted(tmp_path.glob("*.gir")))
    assert (found.findings, found.stopped) == ((), {"cut off": (0,)})


BEFORE = """\
import os
import threading
import time
from pathlib import Path

import torch
from torch import distributed, nn


def end():
    while not all(Path(f"run.{rank}.gir").exists() for rank in range(2)):
        time.sleep(0.1)
    time.sleep(2)
    os._exit(3)


distributed.init_process_group("gloo")
threading.Thread(target=end, daemon=True).start()
distributed.broadcast(torch.ones(4), src=distributed.get_rank())
distributed.broadcast(torch.ones(8), src=distributed.get_rank())
"""


def test_ranks_that_wait_before_their_first_step_leave_files_and_go_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BEFORE)
    done = command_on_ranks(["run", "-o", "run.{rank}.gir", "--patience", "1", "train.py"], 2, tmp_path)
    assert "still waits for its first step, in forward broadcast float32[" in done.stdout
    found = gradir.ranks(sorted(tmp_path.glob("*.gir")))
    # A rank that outlives the other may see that it has ended; the first to end does not.
    assert "starts" in found.stopped
    assert found.stopped.keys() <= {"starts", "fails"}
    assert [(finding.kind, finding.lines[0]) for finding in found.findings] == [("hang", "other roots on world")]
