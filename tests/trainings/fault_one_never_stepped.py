import torch
from torch import nn

torch.manual_seed(0)
gen = nn.Linear(4, 2)
dis = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
opt_g = torch.optim.Adam(gen.parameters(), 1e-3)
opt_d = torch.optim.Adam(dis.parameters(), 1e-3)  # <- never_stepped
bce = nn.BCEWithLogitsLoss()
for i in range(40):
    real, fake = torch.randn(8, 2), gen(torch.randn(8, 4))
    opt_d.zero_grad()
    d = bce(dis(real), torch.ones(8, 1)) + bce(dis(fake.detach()), torch.zeros(8, 1))
    d.backward()
    opt_g.zero_grad()
    g = bce(dis(fake), torch.ones(8, 1))
    g.backward()
    opt_g.step()
