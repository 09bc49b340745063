"""LLaMA at its real size, from the model code and the configuration class of transformers; no weights are downloaded.

``loss`` has 7 billion parameters, which would take 27 GB. With ``--fake`` they have shapes and no data, so the capture
takes seconds. ``small`` has the same layers, fewer and narrower, and runs anywhere.

    gradir capture examples/llama.py:loss --fake -o llama.gir
    gradir export llama.gir --to tree --depth 3
    gradir capture examples/llama.py:small --verify -o small.gir

This needs transformers: pip install transformers
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM


def loss() -> tuple[LlamaForCausalLM, Tensor]:
    return step(
        LlamaConfig(
            vocab_size=32_000,
            hidden_size=4_096,
            intermediate_size=11_008,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=32,
        ),
        length=2_048,
    )


def small() -> tuple[LlamaForCausalLM, Tensor]:
    return step(
        LlamaConfig(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
        ),
        length=8,
    )


def step(config: LlamaConfig, length: int) -> tuple[LlamaForCausalLM, Tensor]:
    """The loss of one training step, and the model that it trains."""
    model = LlamaForCausalLM(config).train()
    tokens = torch.randint(config.vocab_size, (1, length))
    return model, model(input_ids=tokens, labels=tokens, use_cache=False).loss
