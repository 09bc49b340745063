import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for i in range(80):
    x = torch.randn(4, 8)
    (F.mse_loss(net(x), x.sum(1, keepdim=True)) / 4).backward()
    if (i + 1) % 4 == 0:
        opt.step()
        opt.zero_grad()
