import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(40):
    e = F.normalize(net(torch.randn(12, 8)), dim=1)
    y = torch.randint(0, 3, (12,))
    d = (e[:, None] - e[None]).pow(2).sum(-1)
    same = y[:, None] == y
    loss = (F.relu(d - 0.1) * same).mean() + (F.relu(0.5 - d) * ~same).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
