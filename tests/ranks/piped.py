"""Pipelines whose stages are linked: a schedule's, and modules that send and receive by themselves."""

from __future__ import annotations

import torch
from rank import Net, run
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import gradir


def scheduled(kind, rank: int, world: int):
    """The graph of a stage for one of four microbatches."""
    torch.manual_seed(0)
    model = Net().h[0] if rank else Net(blocks=1)
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = kind(stage, n_microbatches=4, loss_fn=lambda output, target: (output - target).square().mean())
    first, last = [torch.ones(8, 4)] if rank == 0 else [], {"target": torch.zeros(8, 4)} if rank + 1 == world else {}
    with gradir.record(model, collectives=True) as rec:
        schedule.step(*first, **last)
    return rec.with_collectives(gradir.capture(model, torch.ones(2, 4, requires_grad=rank > 0)))


class Layer(nn.Module):
    def __init__(self, width: int, then: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, then)

    def forward(self, x):
        return torch.relu(self.fc(x))


def by_hand(rank: int, world: int):
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
        "1F1B": scheduled(Schedule1F1B, rank, world),
        "GPipe": scheduled(ScheduleGPipe, rank, world),
        "by hand": by_hand(rank, world),
    }
    return {name: gradir.dumps(graph).decode() for name, graph in graphs.items()}


if __name__ == "__main__":
    run(main)
