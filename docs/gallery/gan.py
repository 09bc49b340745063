"""A generator that learns nothing, since its images are detached."""

import torch
from torch import Tensor, nn


class GAN(nn.Module):
    """A generator, and the critic that it should learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, noise: Tensor) -> Tensor:
        """What the critic says of the images."""
        fake = self.generator(noise).detach()
        return self.critic(fake)


def loss() -> tuple[nn.Module, Tensor]:
    """The loss of the generator."""
    model = GAN()
    return model, -model(torch.randn(4, 8)).mean()
