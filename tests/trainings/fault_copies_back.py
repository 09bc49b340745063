import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 1)
initial = [parameter.detach().clone() for parameter in net.parameters()]
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(12):
    loss = net(torch.randn(8, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        torch._foreach_copy_([*net.parameters()], initial)  # <- undone
