"""The two steps of adversarial training with convolutional networks (DCGAN).

The discriminator's step detaches the forged images, so no parameter of the generator is in its graph. The generator's
step runs through both networks.

    gradir capture examples/dcgan.py:discriminator_step -o discriminator.gir
    gradir capture examples/dcgan.py:generator_step -o generator.gir
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

NOISE = 8
BATCH = 2


def generator(width: int = 4) -> nn.Sequential:
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE, 2 * width, 4, 1, 0, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.ConvTranspose2d(width, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def discriminator(width: int = 4) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 1, 4, 1, 0, bias=False),
        nn.Flatten(0),
    )


class GAN(nn.Module):
    """A generator and the discriminator that it has to fool."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = generator()
        self.discriminator = discriminator()

    def forge(self) -> Tensor:
        """A batch of generated images."""
        return self.generator(torch.randn(BATCH, NOISE, 1, 1))


def discriminator_step() -> tuple[GAN, Tensor]:
    torch.manual_seed(0)
    gan = GAN()
    on_real = gan.discriminator(torch.randn(BATCH, 1, 16, 16))
    on_forged = gan.discriminator(gan.forge().detach())
    loss_real = F.binary_cross_entropy_with_logits(on_real, torch.ones(BATCH))
    loss_forged = F.binary_cross_entropy_with_logits(on_forged, torch.zeros(BATCH))
    return gan, loss_real + loss_forged


def generator_step() -> tuple[GAN, Tensor]:
    torch.manual_seed(0)
    gan = GAN()
    on_forged = gan.discriminator(gan.forge())
    return gan, F.binary_cross_entropy_with_logits(on_forged, torch.ones(BATCH))
