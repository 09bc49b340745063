import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(12):
    y = torch.randint(0, 3, (8,))
    if i == 7:
        y[:] = -100
    loss = F.cross_entropy(net(torch.randn(8, 4)), y)  # <- lost
    opt.zero_grad()
    loss.backward()
    opt.step()
