import torch
from torch import nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()
x = torch.randn(32, 2, dtype=torch.float64)
y = (x[:, :1] * x[:, 1:]).sin()
opt = torch.optim.LBFGS(m.parameters(), lr=0.8, max_iter=10, line_search_fn="strong_wolfe")


def closure():
    opt.zero_grad()
    loss = nn.functional.mse_loss(m(x), y)
    loss.backward()
    return loss


for i in range(20):
    loss = opt.step(closure)
print(loss.item())
