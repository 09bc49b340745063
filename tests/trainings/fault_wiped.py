import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(8):
    loss = net(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    opt.zero_grad()  # <- wiped
    opt.step()
