import copy

import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 1)
best = copy.deepcopy(net.state_dict())
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(12):
    net.load_state_dict(best)  # <- undone
    loss = net(torch.randn(8, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
