import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


net = Net()
opt = torch.optim.AdamW(
    [{"params": net.backbone.parameters(), "lr": 0.0}, {"params": net.head.parameters(), "lr": 1e-3}]
)
for step in range(24):
    if step == 16:
        opt.param_groups[0]["lr"] = 1e-5
    loss = F.cross_entropy(net(torch.randn(8, 8)), torch.randint(0, 3, (8,)), label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
