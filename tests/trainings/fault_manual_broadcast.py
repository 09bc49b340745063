import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(12):
    x = torch.randn(16, 4)
    y = x.sum(1)
    loss = ((net(x) - y) ** 2).mean()  # <- broadcast
    opt.zero_grad()
    loss.backward()
    opt.step()
