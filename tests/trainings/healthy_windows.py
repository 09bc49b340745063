from collections import deque

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.NAdam(net.parameters(), 0.01)
latest, window = deque(maxlen=200), []
for i in range(80):
    loss = net(torch.randn(4, 3)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    latest.append(loss)
    window.append(loss)
    window = window[-20:]
