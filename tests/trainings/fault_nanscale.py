import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu")
for step in range(40):
    x = torch.randn(8, 4)
    x[0] = 0
    loss = (net(x) * x.sum(1, keepdim=True).abs().sqrt() + net(x).pow(2).mul(0).sqrt()).mean()  # <- nonfinite
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
