import argparse
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.b(self.a(x).relu())


def train(steps, width):
    torch.manual_seed(0)
    net = Net(width)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.no_grad():
        net(torch.ones(1, 4))
    for step in range(steps):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.zeros(8, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("-o")
    words = parser.parse_args()
    train(words.steps, words.width)
