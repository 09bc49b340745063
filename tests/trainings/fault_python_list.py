import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = []
        for _ in range(depth):
            self.layers.append(nn.Linear(8, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


torch.manual_seed(0)
model = Stack(2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # <- not_registered
while True:
    loss = nn.functional.mse_loss(model(torch.randn(8, 8)), torch.randn(8, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if optimizer.state[model.head.weight]["step"] >= 30:
        break
