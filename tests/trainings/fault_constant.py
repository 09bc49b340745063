import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 3)
opt = torch.optim.Adam(net.parameters(), 0.01)
for i in range(30):
    loss = net(torch.randn(8, 4)).softmax(1).sum(1).mean()  # <- adds_up
    opt.zero_grad()
    loss.backward()
    opt.step()
