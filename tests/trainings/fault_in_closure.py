"""A step that runs its backward in a closure, in which the encoder is cut off."""

import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)


def closure():
    optimizer.zero_grad()
    hidden = net[0](torch.randn(2, 3)).detach()  # <- detach
    loss = net[1](hidden).square().mean()
    loss.backward()
    return loss


for _ in range(12):
    optimizer.step(closure)
