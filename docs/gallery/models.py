"""Models that the gallery shows at first sight, beside those of examples/."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


class Encoder(nn.Module):
    """A classifier on an encoder that gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Classify what the encoder says."""
        return self.head(self.encoder(x).detach())


class Flattened(nn.Module):
    """A linear layer that expects other features than the convolution makes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Raise: the features are 288, not 64."""
        return self.fc(F.relu(self.conv(x)).flatten(1))


class Attention(nn.Module):
    """Attention that forgets to transpose its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Raise: queries and keys do not fit."""
        weights = (self.q(x) @ self.k(x)).softmax(-1)
        return weights @ self.v(x)


def detached() -> tuple[nn.Module, Tensor]:
    """An encoder that is detached."""
    model = Encoder()
    return model, model(torch.randn(4, 16)).sum()


def flattened() -> tuple[nn.Module, Tensor]:
    """A shape error in a linear layer."""
    model = Flattened()
    return model, model(torch.randn(2, 3, 8, 8)).sum()


def attention() -> tuple[nn.Module, Tensor]:
    """A shape error in attention."""
    model = Attention()
    return model, model(torch.randn(2, 5, 16)).sum()


def deep() -> tuple[nn.Module, Tensor]:
    """A residual network with 10,000 blocks."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)) for _ in range(10_000)])
    value = torch.randn(2, 4)
    for block in model:
        value = value + block(value)
    return model, value.sum()


def resnet50() -> tuple[nn.Module, Tensor]:
    """ResNet-50 with few channels."""
    from transformers import ResNetConfig, ResNetModel

    sizes = ResNetConfig(embedding_size=16, hidden_sizes=[32, 64, 128, 256], depths=[3, 4, 6, 3])
    model = ResNetModel(sizes)
    return model, model(torch.randn(2, 3, 64, 64)).last_hidden_state.sum()


def gpt2() -> tuple[nn.Module, Tensor]:
    """GPT-2 with few features."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = GPT2Config(n_embd=48, n_head=4, vocab_size=100, n_positions=64, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(sizes)
    tokens = torch.randint(0, 100, (2, 16))
    return model, model(tokens, labels=tokens).loss
