"""Models that were not written for gradir: the code of transformers and of torch.nn, tiny, in train mode, seeded.

Nothing is downloaded: each is built from its configuration class with random weights. Run as a program, this file
rewrites docs/verification-models.txt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from example_files import attribute
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

import gradir

__all__ = ["GPT2", "MODELS", "TEXT", "VOCABULARY", "RealModel", "from_transformers", "row", "table", "versions"]


class RealModel(NamedTuple):
    """A model, and the forward that makes its loss, to be called once and in a recorder."""

    model: nn.Module
    loss: Callable[[], Tensor]


VOCABULARY = 99
"""How many words a tiny model of language knows."""
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
"""The tiny sizes, as most models of language call them."""
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
"""The same, as GPT-2 calls them."""
_GROUPED = {**TEXT, "num_key_value_heads": 1}
_IMAGE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
_ENCODER_DECODER = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}


def from_transformers(class_name: str, config_name: str, config: Mapping[str, Any]) -> Any:
    """A model with random weights, in train mode."""
    import transformers

    # The sizes are not those that the special tokens and the fast kernels are made for, and it says so.
    transformers.logging.set_verbosity_error()
    return getattr(transformers, class_name)(getattr(transformers, config_name)(**config)).train()


def _tokens(*shape: int) -> Tensor:
    """Words without the first few, which have a meaning of their own."""
    return torch.randint(5, VOCABULARY, shape)


def _language() -> dict[str, Any]:
    tokens = _tokens(2, 7)
    return {"input_ids": tokens, "labels": tokens}


def _sentences() -> dict[str, Any]:
    return {"input_ids": _tokens(2, 7), "labels": torch.tensor([0, 1])}


def _images(side: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, side, side), "labels": torch.tensor([0, 1])}


def _speech() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 8, 32), "labels": _tokens(2, 7)}


def _waves() -> dict[str, Any]:
    return {"input_values": torch.randn(2, 800), "labels": torch.randint(1, 20, (2, 4))}


def _captions() -> dict[str, Any]:
    return {"input_ids": _tokens(2, 7), "pixel_values": torch.randn(2, 3, 16, 16), "return_loss": True}


def _segments() -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(0, 3, (2, 32, 32))}


def _transformers(
    class_name: str,
    config_name: str,
    config: Mapping[str, Any],
    inputs: Callable[[], dict[str, Any]],
    *,
    prepare: Callable[[Any], None] = lambda model: None,
    around: Callable[[], Any] = nullcontext,
) -> RealModel:
    model = from_transformers(class_name, config_name, config)
    prepare(model)
    given = inputs()

    def loss() -> Tensor:
        with around():
            return model(**given).loss

    return RealModel(model, loss)


def _checkpoint(model: Any) -> None:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _nn_transformer() -> RealModel:
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
    source, target = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    return RealModel(model, lambda: model(source, target, tgt_mask=causal, tgt_is_causal=True).pow(2).mean())


def _nn_encoder() -> RealModel:
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", norm_first=True)
    model = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
    x = torch.randn(5, 2, 16)
    return RealModel(model, lambda: model(x).pow(2).mean())


def _nn_attention() -> RealModel:
    model = nn.MultiheadAttention(16, 2, dropout=0.1, kdim=8, vdim=12, add_bias_kv=True, batch_first=True)
    query, key, value = torch.randn(2, 5, 16), torch.randn(2, 4, 8), torch.randn(2, 4, 12)
    return RealModel(model, lambda: model(query, key, value)[0].pow(2).mean())


class _Recurrent(nn.Module):
    """An embedding, a recurrent network and a head that reads every output and the last state."""

    def __init__(self, network: nn.RNNBase) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.network = network
        self.head = nn.LazyLinear(VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        outputs, state = self.network(self.embedding(tokens))
        last = state[0] if isinstance(state, tuple) else state
        return self.head(outputs) + last.mean()


def _nn_recurrent(network: Callable[..., nn.RNNBase], **options: Any) -> RealModel:
    model = _Recurrent(network(8, 6, num_layers=2, dropout=0.1, batch_first=True, bidirectional=True, **options))
    tokens = _tokens(2, 5)
    with torch.no_grad():
        model(tokens)
    return RealModel(model, lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))


def _resnet() -> RealModel:
    model = attribute("resnet.py:ResNet")()
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([3, 7])
    return RealModel(model, lambda: F.cross_entropy(model(images), labels))


_EXPERTS = {**_GROUPED, "num_experts_per_tok": 2, "output_router_logits": True}
_QWEN_MOE = {**_EXPERTS, "num_experts": 4, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}
_T5 = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
_DISTILBERT = {"vocab_size": VOCABULARY, "dim": 16, "hidden_dim": 32, "n_layers": 2, "n_heads": 2}
_STATE_SPACE = {"vocab_size": VOCABULARY, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}
_SWIN = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [1, 2], "window_size": 2}
_WHISPER = {**_ENCODER_DECODER, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16}
_WAV2VEC2 = {
    **TEXT,
    "vocab_size": 20,
    "conv_dim": (8, 8),
    "conv_stride": (4, 4),
    "conv_kernel": (8, 4),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "layerdrop": 0.0,
    "apply_spec_augment": False,
}
_SEGFORMER = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "hidden_sizes": [8, 16],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
    "decoder_hidden_size": 8,
    "num_labels": 3,
}
_CLIP = {"text_config": {**TEXT, "eos_token_id": 98}, "vision_config": _IMAGE, "projection_dim": 8}
_BFLOAT16 = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
_MASKED = {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}

_of = partial(partial, _transformers)

_BUILDERS: dict[str, Callable[[], RealModel]] = {
    "GPT-2": _of("GPT2LMHeadModel", "GPT2Config", GPT2, _language),
    "GPT-2, checkpointed": _of("GPT2LMHeadModel", "GPT2Config", GPT2, _language, prepare=_checkpoint),
    "BERT": _of("BertForMaskedLM", "BertConfig", TEXT, _language),
    "BERT, autocast": _of("BertForMaskedLM", "BertConfig", TEXT, _language, around=_BFLOAT16),
    "DistilBERT": _of("DistilBertForSequenceClassification", "DistilBertConfig", _DISTILBERT, _sentences),
    "ALBERT": _of("AlbertForMaskedLM", "AlbertConfig", {**TEXT, "embedding_size": 8}, _language),
    "DeBERTa-v2": _of("DebertaV2ForMaskedLM", "DebertaV2Config", _MASKED, _language),
    "LLaMA": _of("LlamaForCausalLM", "LlamaConfig", _GROUPED, _language),
    "Mistral": _of("MistralForCausalLM", "MistralConfig", _GROUPED, _language),
    "Gemma": _of("GemmaForCausalLM", "GemmaConfig", {**_GROUPED, "head_dim": 8}, _language),
    "Mixtral": _of("MixtralForCausalLM", "MixtralConfig", {**_EXPERTS, "num_local_experts": 4}, _language),
    "Qwen2-MoE": _of("Qwen2MoeForCausalLM", "Qwen2MoeConfig", _QWEN_MOE, _language),
    "T5": _of("T5ForConditionalGeneration", "T5Config", {**_T5, "decoder_start_token_id": 0}, _language),
    "BART": _of("BartForConditionalGeneration", "BartConfig", _ENCODER_DECODER, _language),
    "Mamba": _of("MambaForCausalLM", "MambaConfig", {**_STATE_SPACE, "conv_kernel": 3}, _language),
    "Mamba-2": _of(
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {**_STATE_SPACE, "num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
        _language,
    ),
    "RWKV": _of(
        "RwkvForCausalLM",
        "RwkvConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "context_length": 32},
        _language,
    ),
    "ViT": _of("ViTForImageClassification", "ViTConfig", _IMAGE, partial(_images, 16)),
    "Swin": _of("SwinForImageClassification", "SwinConfig", _SWIN, partial(_images, 16)),
    "ConvNeXt": _of(
        "ConvNextForImageClassification",
        "ConvNextConfig",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 2, 1]},
        partial(_images, 32),
    ),
    "SegFormer": _of("SegformerForSemanticSegmentation", "SegformerConfig", _SEGFORMER, _segments),
    "CLIP": _of("CLIPModel", "CLIPConfig", _CLIP, _captions),
    "Whisper": _of("WhisperForConditionalGeneration", "WhisperConfig", _WHISPER, _speech),
    "Wav2Vec2": _of("Wav2Vec2ForCTC", "Wav2Vec2Config", _WAV2VEC2, _waves),
    "nn.Transformer": _nn_transformer,
    "nn.TransformerEncoder": _nn_encoder,
    "nn.MultiheadAttention": _nn_attention,
    "nn.LSTM": partial(_nn_recurrent, nn.LSTM),
    "nn.GRU": partial(_nn_recurrent, nn.GRU),
    "ResNet (examples/resnet.py)": _resnet,
}


def _build_seeded(build: Callable[[], RealModel]) -> RealModel:
    torch.manual_seed(0)
    return build()


MODELS: dict[str, Callable[[], RealModel]] = {name: partial(_build_seeded, build) for name, build in _BUILDERS.items()}
"""Builders by the name to show."""


def versions() -> str:
    """What the numbers of the table depend on."""
    import transformers

    release = torch.__version__.partition("+")[0]
    return f"torch {release} and transformers {transformers.__version__}, on a CPU"


class Way(NamedTuple):
    """A way of running a model."""

    train: bool
    prepare: Callable[[nn.Module], None] = lambda _: None
    around: Callable[[], Any] = nullcontext


def _run_checkpointed(model: nn.Module, *, use_reentrant: bool) -> None:
    """Have the model run its layers again in the backward as it offers to, or else its whole forward."""
    if getattr(model, "supports_gradient_checkpointing", False):
        offered: Any = model
        offered.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        return
    forward = model.forward

    def run_again(*args: object, **kwargs: object) -> Any:
        # A reentrant checkpoint takes no keywords.
        return checkpoint(partial(forward, **kwargs), *args, use_reentrant=use_reentrant)

    model.forward = run_again


WAYS: dict[str, Way] = {
    "train": Way(train=True),
    "eval": Way(train=False),
    "train, autocast": Way(train=True, around=_BFLOAT16),
    "eval, autocast": Way(train=False, around=_BFLOAT16),
    "train, checkpointed": Way(train=True, prepare=partial(_run_checkpointed, use_reentrant=False)),
    "train, checkpointed, reentrant": Way(train=True, prepare=partial(_run_checkpointed, use_reentrant=True)),
}
"""The ways in which false alarms are looked for, by the name to show."""


def false_alarms(build: Callable[[], RealModel], way: Way) -> list[str]:
    """What an explanation tells wrongly of a model, as a real backward shows."""
    real = build()
    real.model.train(way.train)
    way.prepare(real.model)
    with gradir.record(real.model, flow=True) as recorder, way.around():
        loss = real.loss()
    found = recorder.explain(loss)
    try:
        loss.backward()
    except RuntimeError:
        return [] if found.level == "error" else ["backward raises, and nothing is told"]
    own = dict(real.model.named_parameters())
    wrong = [
        f"{name} is {status}"
        for name, status in found.statuses.items()
        if name in own and status != "hidden" and (status in {"reached", "zero"}) != (own[name].grad is not None)
    ]
    return [*wrong, *([str(found)] if found.level == "error" else [])]


def table() -> str:
    """What the engine did with each model, as a table in Markdown."""
    rows = ["| model | class | nodes | edges | fired | mismatches | false alarms |", "|---|---|--:|--:|--:|--:|--:|"]
    return "\n".join([*rows, *map(row, MODELS)])


def row(name: str) -> str:
    """What the engine did with a model, as a row of the table."""
    build = MODELS[name]
    real = build()
    with gradir.record(real.model) as recorder:
        loss = real.loss()
    found = recorder.verify(loss)
    counts = f"{found.nodes:,} | {found.edges:,} | {found.executed:,} | {len(found.mismatches)}"
    counts += f" | {sum(len(false_alarms(build, way)) for way in WAYS.values())}"
    return f"| {name} | `{type(real.model).__name__.lstrip('_')}` | {counts} |"


def update(page: Path) -> None:
    """Write the table of now below the versions that it is of."""
    page.write_text(f"With {versions()}:\n\n{table()}\n", encoding="utf-8")


if __name__ == "__main__":
    update(Path(__file__).resolve().parents[2] / "docs" / "verification-models.txt")
