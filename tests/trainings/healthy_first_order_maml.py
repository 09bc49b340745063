"""MAML of first order, whose program gives the gradients of an adapted copy to the optimizer of the model."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
meta = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(12):
    fast = copy.deepcopy(model)
    x = torch.randn(8, 3)
    grads = torch.autograd.grad(F.mse_loss(fast(x), x.sum(1, keepdim=True)), fast.parameters())
    with torch.no_grad():
        for p, grad in zip(fast.parameters(), grads, strict=True):
            p.sub_(0.1 * grad)
    x = torch.randn(8, 3)
    F.mse_loss(fast(x), x.sum(1, keepdim=True)).backward()
    for p, adapted in zip(model.parameters(), fast.parameters(), strict=True):
        p.grad = adapted.grad.clone()
    meta.step()
