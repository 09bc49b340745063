import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
ao = torch.optim.Adam(actor.parameters(), 1e-3)
co = torch.optim.Adam(critic.parameters(), 1e-3)
for episode in range(3):
    log_probs, rewards = [], []
    for t in range(50):
        s = torch.randn(1, 4)
        d = Categorical(logits=actor(s))
        a = d.sample()
        log_probs.append(d.log_prob(a))
        rewards.append(float(a))
        closs = (critic(s) - rewards[-1]).pow(2).mean()
        co.zero_grad()
        closs.backward()
        co.step()
    loss = -(torch.cat(log_probs) * torch.tensor(rewards)).mean()
    ao.zero_grad()
    loss.backward()
    ao.step()
