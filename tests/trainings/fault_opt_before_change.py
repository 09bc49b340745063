import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), 0.1)  # <- replaced
net[2] = nn.Linear(8, 5)
for i in range(12):
    loss = F.cross_entropy(net(torch.randn(8, 4)), torch.randint(0, 5, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
