import torch
from torch import nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
opt = torch.optim.SGD(net.parameters(), 0.1)
crit = nn.BCEWithLogitsLoss()
for i in range(12):
    loss = crit(net(torch.randn(8, 4)), torch.randint(0, 2, (8, 1)).float())  # <- sigmoid_twice
    opt.zero_grad()
    loss.backward()
    opt.step()
