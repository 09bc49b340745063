import torch
from torch import nn


class G(nn.Linear):
    pass


class D(nn.Linear):
    pass


class Frozen(nn.Linear):
    pass


g, d, frozen = G(2, 3), D(3, 1), Frozen(3, 3)
for _ in range(4):
    with torch.no_grad():
        real = frozen(torch.ones(1, 3))
    d(real).sum().backward()
    fake = g(torch.ones(1, 2))
    d(fake.detach()).sum().backward()
    d(fake).sum().backward()
