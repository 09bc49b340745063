import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for batch in range(24):
    opt.zero_grad()  # <- cleared
    loss = net(torch.randn(8, 4)).pow(2).mean() / 4
    loss.backward()
    if batch % 4 == 3:
        opt.step()
