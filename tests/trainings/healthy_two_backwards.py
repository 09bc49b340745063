"""An actor and a critic with one optimizer, whose losses are differentiated one after the other before its step."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
net = nn.ModuleDict({"body": nn.Linear(4, 16), "actor": nn.Linear(16, 2), "critic": nn.Linear(16, 1)})
optimizer = torch.optim.Adam(net.parameters())
for _ in range(12):
    hidden = net["body"](torch.randn(8, 4)).relu()
    choice, value = Categorical(logits=net["actor"](hidden)), net["critic"](hidden).squeeze(1)
    advantage = torch.randn(8) - value
    optimizer.zero_grad()
    (-(choice.log_prob(choice.sample()) * advantage.detach()).mean()).backward(retain_graph=True)
    advantage.square().mean().backward()
    optimizer.step()
