import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(dim=1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(12):
    loss = F.cross_entropy(net(torch.randn(8, 4)), torch.randint(0, 3, (8,)))  # <- softmax_twice
    opt.zero_grad()
    loss.backward()
    opt.step()
