import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.5)
x = torch.randn(32, 4)
y = x.sum(1, keepdim=True)
for i in range(200):
    p = net(x)
    loss = -(torch.log(p.relu() * 1.0 if i == 50 else p.exp())).mean() + (p - y).pow(2).mean()  # <- loss_undefined
    opt.zero_grad()
    loss.backward()
    opt.step()
