"""Pipelines whose stages are linked: a schedule's, and modules that send and receive by themselves."""

from __future__ import annotations

import torch
from rank import Net, run
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import gradir

losses_of = {}


def schedule_stage(kind, rank: int, world: int, swaps: bool = False):
    """The graph of a stage for one of four microbatches, of which the second stage may receive two in another order."""
    torch.manual_seed(0)
    model = Net().h[0] if rank else Net(blocks=1)
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    if swaps and rank == 1:
        receive = stage.get_fwd_recv_ops
        stage.get_fwd_recv_ops = lambda number: receive({0: 1, 1: 0}.get(number, number))
    schedule = kind(stage, n_microbatches=4, loss_fn=lambda output, target: (output - target).square().mean())
    rows = torch.arange(32.0).view(8, 4)
    first, last = [rows] if rank == 0 else [], {"target": rows} if rank + 1 == world else {}
    losses = []
    with gradir.record(model, collectives=True) as rec:
        schedule.step(*first, **last, losses=losses)
    losses_of[kind.__name__, swaps] = [loss.item() for loss in losses]
    return rec.with_collectives(gradir.capture(model, torch.ones(2, 4, requires_grad=rank > 0)))


class Layer(nn.Module):
    def __init__(self, width: int, then: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, then)

    def forward(self, x):
        return torch.relu(self.fc(x))


def exchange_by_hand(rank: int, world: int):
    """What each process sends and receives with no schedule, gradients too."""
    model = Layer(4 + rank, 5 + rank)
    with gradir.record(model, collectives=True) as rec:
        x = torch.ones(2, 4 + rank)
        if rank:
            distributed.recv(x, rank - 1)
            x.requires_grad_()
        y = model(x)
        graph = rec.capture(y)
        if rank + 1 < world:
            distributed.send(y.detach(), rank + 1)
            back = torch.empty_like(y)
            distributed.recv(back, rank + 1)
            y.backward(back)
        else:
            y.sum().backward()
        if rank:
            distributed.send(x.grad, rank - 1)
    return rec.with_collectives(graph)


def main(rank: int, world: int) -> object:
    graphs = {
        "1F1B": schedule_stage(Schedule1F1B, rank, world),
        "GPipe": schedule_stage(ScheduleGPipe, rank, world),
        "by hand": exchange_by_hand(rank, world),
    }
    # torch 2.15 refuses to.
    if torch.__version__ < torch.torch_version.TorchVersion("2.15"):
        graphs["swapped"] = schedule_stage(ScheduleGPipe, rank, world, swaps=True)
    found = {name: gradir.dumps(graph).decode() for name, graph in graphs.items()}
    return {**found, "losses": [losses for (kind, _), losses in losses_of.items() if kind == "ScheduleGPipe"]}


if __name__ == "__main__":
    run(main)
