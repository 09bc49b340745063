import torch
from torch import nn

torch.manual_seed(0)


class Deep(nn.Module):
    def __init__(self, depth=40, width=16):
        super().__init__()
        self.inp = nn.Linear(8, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.tanh(self.inp(x))
        for layer in self.hidden:
            x = torch.tanh(layer(x))  # <- vanished
        return self.out(x)


net = Deep()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(30):
    loss = (net(torch.randn(16, 8)) - torch.randn(16, 1)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
