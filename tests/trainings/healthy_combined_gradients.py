"""Gradients that the program combines or only measures, and an inner step that a meta-step takes back."""

import copy

import torch
from torch import nn

torch.manual_seed(0)

net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(30):
    x = torch.randn(8, 4)
    grads = []
    for task in range(2):
        opt.zero_grad()
        (net(x)[:, task] - x[:, task]).pow(2).mean().backward()
        grads.append([each.grad.clone() for each in net.parameters()])
    for each, *several in zip(net.parameters(), *grads):
        if step < 12:
            each.grad = torch.stack(several).mean(0)
        else:
            each.grad.copy_(torch.stack(several).mean(0))
    if step >= 18:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()

norms = []
for step in range(12):
    x = torch.randn(8, 4)
    for part in x.split(2):
        opt.zero_grad()
        (net(part) - part[:, :2]).pow(2).mean().backward()
        norms.append(net.weight.grad.norm().item())
    opt.zero_grad()
    (net(x) - x[:, :2]).pow(2).mean().backward()
    opt.step()

for step in range(12):
    start = copy.deepcopy(net.state_dict())
    x = torch.randn(8, 4)
    opt.zero_grad()
    (net(x) - x[:, :2]).pow(2).mean().backward()
    opt.step()
    net.load_state_dict({name: value.lerp(net.state_dict()[name], 0.5) for name, value in start.items()})

x = torch.randn(8, 4)
delta = torch.zeros(8, 4, requires_grad=True)
attack = torch.optim.SGD([delta], 0.1)
for _ in range(12):
    with torch.no_grad():
        delta.zero_()
    attack.zero_grad()
    (-net(x + delta).pow(2).mean()).backward()
    attack.step()
    opt.zero_grad()
    net(x + delta.detach()).pow(2).mean().backward()
    opt.step()
