"""A residual network for small images: four stages of two blocks, as in ResNet-18 but narrow.

Its blocks work in place where they can: an in-place operation is a node like any other.

gradir capture examples/resnet.py:loss -o resnet.gir
gradir capture examples/resnet.py:ResNet --input 'float32[2,3,32,32]' -o logits.gir
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut, which is a convolution too where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Identity()
            if (before, stride) == (after, 1)
            else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        )

    def forward(self, x: Tensor) -> Tensor:
        """The features after this block."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """A stem, four stages that halve the image and double the width, and a linear head."""

    def __init__(self, classes: int = 10, width: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self._stage(width, width, blocks, stride=1)
        self.layer2 = self._stage(width, 2 * width, blocks, stride=2)
        self.layer3 = self._stage(2 * width, 4 * width, blocks, stride=2)
        self.layer4 = self._stage(4 * width, 8 * width, blocks, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)

    @staticmethod
    def _stage(before: int, after: int, blocks: int, stride: int) -> nn.Sequential:
        rest = (BasicBlock(after, after, 1) for _ in range(blocks - 1))
        return nn.Sequential(BasicBlock(before, after, stride), *rest)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, of shape ``[batch, classes]``."""
        x = self.relu(self.bn1(self.conv1(images)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def loss() -> tuple[ResNet, Tensor]:
    torch.manual_seed(0)
    model = ResNet()
    logits = model(torch.randn(2, 3, 32, 32))
    return model, F.cross_entropy(logits, torch.tensor([3, 7]))
