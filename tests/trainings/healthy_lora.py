import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Lora(nn.Module):
    def __init__(self, base, r=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = (
            nn.Parameter(torch.randn(r, base.in_features) * 0.02),
            nn.Parameter(torch.zeros(base.out_features, r)),
        )

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


net = nn.Sequential(Lora(nn.Linear(8, 16)), nn.ReLU(), Lora(nn.Linear(16, 1)))
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)
for step in range(20):
    x = torch.randn(8, 8)
    loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
    loss.backward()
    opt.step()
    opt.zero_grad()
