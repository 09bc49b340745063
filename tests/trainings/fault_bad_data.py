import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.01)
data = torch.randn(20, 8, 4)
data[11, 5, 2] = float("nan")
for epoch in range(2):
    for i, x in enumerate(data):
        loss = F.mse_loss(net(x), x.sum(1, keepdim=True).nan_to_num())  # <- nonfinite_input
        opt.zero_grad()
        loss.backward()
        opt.step()
