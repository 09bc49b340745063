import torch
from torch import nn

torch.manual_seed(0)

emb, lin = nn.Embedding(10000, 16, sparse=True), nn.Linear(16, 1)
oe, ol = torch.optim.SparseAdam(emb.parameters(), 1e-3), torch.optim.Adam(lin.parameters(), 1e-3)
for step in range(20):
    loss = lin(emb(torch.randint(0, 10000, (4, 3))).mean(1)).pow(2).mean()
    oe.zero_grad()
    ol.zero_grad()
    loss.backward()
    oe.step()
    ol.step()
