import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
og, od = torch.optim.Adam(G.parameters(), 2e-4), torch.optim.Adam(D.parameters(), 2e-4)
for step in range(20):
    real, z = torch.randn(16, 2) + 2, torch.randn(16, 4)
    fake = G(z)
    loss_d = F.binary_cross_entropy_with_logits(D(real), torch.ones(16, 1)) + F.binary_cross_entropy_with_logits(
        D(fake.detach()), torch.zeros(16, 1)
    )
    od.zero_grad()
    loss_d.backward()
    od.step()
    loss_g = F.binary_cross_entropy_with_logits(D(fake), torch.ones(16, 1))
    og.zero_grad()
    loss_g.backward()
    og.step()
