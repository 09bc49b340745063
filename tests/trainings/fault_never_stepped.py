import torch
from torch import nn

torch.manual_seed(0)


def fit(model, epochs=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # <- never_stepped
    for epoch in range(epochs):
        running = 0.0
        for _ in range(10):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.randn(8, 5)), torch.randint(0, 4, (8,)))
            loss.backward()
            running += loss.item()
        print("loss", running / 10)


fit(nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 4)))
