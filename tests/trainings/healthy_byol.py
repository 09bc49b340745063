import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

import copy

online, predictor = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)), nn.Linear(8, 8)
target = copy.deepcopy(online).requires_grad_(False)
opt = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05)
for step in range(20):
    x = torch.randn(16, 8)
    a, b = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    with torch.no_grad():
        ta, tb = target(a), target(b)
    loss = (
        2 - F.cosine_similarity(predictor(online(a)), tb).mean() - F.cosine_similarity(predictor(online(b)), ta).mean()
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, t in zip(online.parameters(), target.parameters()):
            t.mul_(0.99).add_(p, alpha=0.01)
