import torch
from torch import nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).bfloat16()
with torch.no_grad():
    for p in net.parameters():
        p.add_(0.5)
opt = torch.optim.AdamW(net.parameters(), lr=1e-6, weight_decay=0)  # <- below_resolution
for step in range(15):
    loss = (net(torch.randn(8, 64).bfloat16()).float() - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
