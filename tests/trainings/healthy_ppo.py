import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

pi, v = (
    nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)),
    nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)),
)
opt = torch.optim.Adam([*pi.parameters(), *v.parameters()], 3e-4)
for it in range(4):
    s = torch.randn(64, 4)
    with torch.no_grad():
        d = torch.distributions.Categorical(logits=pi(s))
        a = d.sample()
        old = d.log_prob(a)
        R = torch.randn(64)
    for k in range(4):
        d = torch.distributions.Categorical(logits=pi(s))
        ratio = (d.log_prob(a) - old).exp()
        val = v(s).squeeze(-1)
        adv = (R - val).detach()
        loss = (
            -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            + 0.5 * F.mse_loss(val, R)
            - 0.01 * d.entropy().mean()
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
