"""T5 from the model code and the configuration class of transformers, small; no weights are downloaded.

Its decoder reads the last output of its encoder in each of its layers, and both embed with one weight.

    gradir capture examples/t5.py:loss -o t5.gir
    gradir view t5.gir

This needs transformers: pip install transformers
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration


def loss() -> tuple[T5ForConditionalGeneration, Tensor]:
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 6}
    model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).train()
    tokens = torch.randint(64, (1, 8))
    return model, model(input_ids=tokens, labels=tokens, use_cache=False).loss
