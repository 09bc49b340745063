import torch
from torch import nn
from torch.optim.lr_scheduler import PolynomialLR

torch.manual_seed(0)
EPOCHS = 10
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.01)
sched = PolynomialLR(opt, total_iters=EPOCHS)  # <- lr_zero
for e in range(EPOCHS):
    for b in range(12):
        loss = nn.functional.mse_loss(net(torch.randn(4, 3)), torch.randn(4, 1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
