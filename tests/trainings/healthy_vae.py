import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.lv, self.dec = (
            nn.Linear(8, 16),
            nn.Linear(16, 2),
            nn.Linear(16, 2),
            nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 8)),
        )

    def forward(self, x):
        h = self.enc(x).relu()
        mu, lv = self.mu(h), self.lv(h)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        return self.dec(z), mu, lv


vae = VAE()
opt = torch.optim.Adam(vae.parameters(), 1e-3)
total = 0.0
for step in range(20):
    x = torch.rand(16, 8)
    out, mu, lv = vae(x)
    loss = F.binary_cross_entropy(out.sigmoid(), x, reduction="sum") - 0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    total += loss.item()
