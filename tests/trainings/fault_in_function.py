import torch
from torch import nn

torch.manual_seed(0)


class Trainer:
    def __init__(self):
        self.net = nn.Linear(4, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)
        self.stats = {"loss": []}

    def step(self, x):
        loss = self.net(x).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.stats["loss"].append(loss)  # <- kept_graphs


def main():
    t = Trainer()
    total = 0
    for i in range(30):
        t.step(torch.randn(8, 4))


main()
