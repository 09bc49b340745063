import torch
from torch import nn

torch.manual_seed(0)

cell = nn.GRUCell(4, 8)
opt = torch.optim.SGD(cell.parameters(), 0.01)
h = torch.zeros(2, 8)
for t in range(16):
    h = cell(torch.randn(2, 4), h)  # <- freed
    loss = h.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
