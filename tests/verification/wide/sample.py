"""The architectures that `make test` looks at: quick ones of many kinds, of packages that the tests have anyway."""

from __future__ import annotations

from typing import Final

__all__ = ["SAMPLE"]

SAMPLE: Final = (
    "transformers/bart",
    "transformers/bert",
    "transformers/clip",
    "transformers/convnext",
    "transformers/deberta-v2",
    "transformers/falcon",
    "transformers/funnel",
    "transformers/gpt2",
    "transformers/hubert",
    "transformers/mamba",
    "transformers/qwen2_moe",
    "transformers/swin",
    "transformers/t5",
    "transformers/vit",
    "transformers/whisper",
    "torch/nn.GRU",
    "torch/nn.Transformer",
    "torch/layer CrossEntropyLoss",
    "torch/layer EmbeddingBag",
    "torch/layer LSTM",
)
