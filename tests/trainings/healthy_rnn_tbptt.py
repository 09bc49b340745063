import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

rnn, head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 4)
opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()], 1e-2)
h = None
for step in range(20):
    x = torch.randn(8, 5, 4)
    out, h = rnn(x, h)
    h = h.detach()
    loss = F.mse_loss(head(out), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
