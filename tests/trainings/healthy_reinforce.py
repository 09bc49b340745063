import torch
from torch import nn

torch.manual_seed(0)

pi = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.Adam(pi.parameters(), 1e-2)
returns = []
for episode in range(20):
    logs, rewards = [], []
    for t in range(10):
        d = torch.distributions.Categorical(logits=pi(torch.randn(4)))
        a = d.sample()
        logs.append(d.log_prob(a))
        rewards.append(float(a))
    G = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    G = (G - G.mean()) / (G.std() + 1e-8)
    loss = -(torch.stack(logs) * G).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    returns.append(sum(rewards))
