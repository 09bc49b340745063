import torch
from collections import defaultdict
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters())
history = defaultdict(list)
for epoch in range(3):
    for i in range(15):
        x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history["logits"].append(logits)  # <- kept_graphs
        history["acc"].append((logits.argmax(1) == y).float().mean().item())
    print(epoch, sum(history["acc"]) / len(history["acc"]))
