import torch
from torch import nn


class EMA:
    def __init__(self, decay=0.9):
        self.decay = decay
        self.value = None

    def update(self, x):
        self.value = x if self.value is None else self.decay * self.value + (1 - self.decay) * x  # <- summed_graphs


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.ema_loss = EMA()

    def training_step(self, batch):
        x, y = batch
        return nn.functional.l1_loss(self.model(x), y)

    def fit(self, steps):
        for i in range(steps):
            loss = self.training_step((torch.randn(4, 4), torch.randn(4, 1)))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.ema_loss.update(loss)


Trainer().fit(60)
