import torch
from torch import nn

torch.manual_seed(0)


def train(net, opt, n):
    running = 0.0
    for i in range(n):
        loss = net(torch.randn(8, 4)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        running = running + loss  # <- summed_graphs
    return running / n


net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
print(train(net, opt, 30).item())
