"""Edits that people make to models, each as the graph before it and the graph after it.

The models are those of transformers, of the examples and a small one, tiny, in train mode, seeded; nothing is
downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from example_files import attribute
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import gradir
from gradir.ir import Graph

__all__ = ["CHANGES", "Pair"]

Pair = tuple[Graph, Graph]

_VOCABULARY = 99
_TEXT = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GPT2 = {"vocab_size": _VOCABULARY, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
_GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}


def _recorded(model: nn.Module, loss: Callable[[], Tensor]) -> Graph:
    with gradir.record(model) as recorder:
        value = loss()
    return recorder.capture(value)


def _language(class_name: str, config_name: str, config: dict[str, Any], prepare: Callable[[Any], None]) -> Graph:
    import transformers

    # The sizes are not those that the special tokens and the fast kernels are made for, and it says so.
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = getattr(transformers, class_name)(getattr(transformers, config_name)(**config)).train()
    prepare(model)
    tokens = torch.randint(5, _VOCABULARY, (2, 7))
    return _recorded(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def _as_it_is(model: nn.Module) -> None:
    """No edit."""


def _bert(layers: int) -> Graph:
    return _language("BertForMaskedLM", "BertConfig", {**_TEXT, "num_hidden_layers": layers}, _as_it_is)


def _gpt2(prepare: Callable[[Any], None] = _as_it_is, **config: Any) -> Graph:
    return _language("GPT2LMHeadModel", "GPT2Config", {**_GPT2, **config}, prepare)


def _llama(key_value_heads: int) -> Graph:
    config = {**_TEXT, "num_key_value_heads": key_value_heads}
    return _language("LlamaForCausalLM", "LlamaConfig", config, _as_it_is)


def _checkpointed(model: Any, *, reentrant: bool) -> None:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})


def _resnet(edit: Callable[[nn.Module], None]) -> Graph:
    torch.manual_seed(0)
    model = attribute("resnet.py:ResNet")()
    edit(model)
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([3, 7])
    return _recorded(model, lambda: F.cross_entropy(model(images), labels))


def _group_norms(model: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, nn.GroupNorm(2, child.num_features))


class Layer(nn.Module):
    """A residual step; ``detached`` is the edit by accident."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self._detached = detached

    def forward(self, x: Tensor) -> Tensor:
        step = self.down(F.gelu(self.up(self.norm(x))))
        return x + (step.detach() if self._detached else step)


class Classifier(nn.Module):
    """Three layers below a name of choice, and a head."""

    def __init__(self, stack: str = "encoder", detached: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, 8)
        self.add_module(stack, nn.Sequential(*(Layer(number == detached) for number in range(3))))
        self.head = nn.Linear(8, 3)
        self._stack = stack

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.get_submodule(self._stack)(self.embedding(x)))


def _classifier(**options: Any) -> Graph:
    torch.manual_seed(0)
    model = Classifier(**options)
    x, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    return _recorded(model, lambda: F.cross_entropy(model(x), labels))


CHANGES: dict[str, Callable[[], Pair]] = {
    "one-more-layer": lambda: (_bert(2), _bert(3)),
    "dropout-removed": lambda: (_gpt2(), _gpt2(resid_pdrop=0.0)),
    "fewer-key-value-heads": lambda: (_llama(2), _llama(1)),
    "batch-norm-to-group-norm": lambda: (_resnet(_as_it_is), _resnet(_group_norms)),
    "rename": lambda: (_classifier(), _classifier(stack="blocks")),
    "detach-by-accident": lambda: (_classifier(), _classifier(detached=1)),
    "checkpointing": lambda: (_gpt2(), _gpt2(partial(_checkpointed, reentrant=False))),
    "checkpointing-reentrant": lambda: (_gpt2(), _gpt2(partial(_checkpointed, reentrant=True))),
}
"""Functions that make both graphs, by the name of the edit."""
