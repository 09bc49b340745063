import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
losses = []
for epoch in range(3):
    net.train()
    for i in range(8):
        x, y = torch.randn(16, 8, 8), torch.randint(0, 10, (16,))
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        val = sum(F.cross_entropy(net(torch.randn(16, 8, 8)), torch.randint(0, 10, (16,))) for _ in range(3))
