import torch
from torch import nn


class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.criterion = nn.Sequential(nn.Linear(4, 3)), nn.Linear(3, 4), nn.MSELoss()

    def training_step(self, batch, index):
        return {"loss": self.criterion(self.decoder(self.encoder(batch)), batch), "log": {"index": index}}


class Trainer:
    def fit(self, module, batches):
        self.module = module
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        with torch.no_grad():
            self.module.training_step(batches[0], 0)
        for index, batch in enumerate(batches):

            def closure():
                optimizer.zero_grad()
                self.backward(self.module.training_step(batch, index)["loss"])

            optimizer.step(closure)

    def backward(self, loss):
        torch.autograd.backward(loss)


Trainer().fit(Lit(), [torch.randn(2, 4) for _ in range(4)])
