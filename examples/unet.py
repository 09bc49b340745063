"""A U-Net for small images: what each level down keeps is read again by the level up on the other side.

gradir capture examples/unet.py:loss -o unet.gir
gradir view unet.gir
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


class Block(nn.Module):
    """Two convolutions beside a shortcut of one."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.norm = nn.GroupNorm(2, after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.shortcut = nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The features after this block."""
        y = torch.relu(self.norm(self.conv1(x)))
        return torch.relu(self.conv2(y) + self.shortcut(x))


class UNet(nn.Module):
    """Levels down, a block at the bottom, and as many levels up, each beside the one that it mirrors."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 32), classes: int = 2) -> None:
        super().__init__()
        first, last = widths[0], widths[-1]
        self.down = nn.ModuleList(Block(*pair) for pair in zip((3, *widths), widths, strict=False))
        self.bottom = Block(last, last)
        above = list(zip((last, *widths[::-1]), widths[::-1], strict=False))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(before, after, 2, stride=2) for before, after in above)
        self.up = nn.ModuleList(Block(2 * after, after) for _, after in above)
        self.head = nn.Conv2d(first, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """One score for each class and pixel."""
        kept = []
        for block in self.down:
            kept.append(block(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.bottom(x)
        for widen, block in zip(self.widen, self.up, strict=True):
            x = block(torch.cat([widen(x), kept.pop()], dim=1))
        return self.head(x)


def loss() -> tuple[UNet, Tensor]:
    torch.manual_seed(0)
    model = UNet()
    images, masks = torch.randn(1, 3, 16, 16), torch.randint(2, (1, 16, 16))
    return model, F.cross_entropy(model(images), masks)
