"""What no rule finds: settings and inputs of single model types of transformers, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["SPECIAL", "Special"]


class Special(NamedTuple):
    """``config`` replaces what the rules made, ``defaults`` are what the configuration is made with first, ``inputs``
    are shapes as in `wide.inputs`, and ``class_name`` is the class to build."""

    config: Mapping[str, Any] = {}
    inputs: Mapping[str, str] = {}
    class_name: str = ""
    defaults: Mapping[str, Any] = {}


_SERIES: Final = Special(
    {"context_length": 16, "num_time_features": 1, "label_length": 4},
    {
        "past_values": "float 2 23",
        "past_time_features": "float 2 23 1",
        "past_observed_mask": "one_bool 2 23",
        "future_values": "float 2 8",
        "future_time_features": "float 2 8 1",
    },
    defaults={"prediction_length": 8},
)

SPECIAL: Final[Mapping[str, Special]] = {
    "autoformer": _SERIES,
    "aya_vision": Special({"vision_config": {"num_attention_heads": 9}}),
    "dac": Special(inputs={"input_values": "float 2 1 4000"}),
    "decision_transformer": Special(
        inputs={
            "states": "float 2 8 17",
            "actions": "float 2 8 4",
            "rewards": "float 2 8 1",
            "returns_to_go": "float 2 8 1",
            "timesteps": "order 2 8",
            "attention_mask": "one_int 2 8",
        }
    ),
    "deepseek_v2": Special(defaults={"num_experts_per_tok": 2}),
    "esm": Special(defaults={"vocab_size": 64, "pad_token_id": 1, "mask_token_id": 63}),
    "informer": _SERIES,
    "lxmert": Special(
        {"visual_feat_dim": 16},
        {"input_ids": "word 2 8", "visual_feats": "float 2 4 16", "visual_pos": "float 2 4 4"},
    ),
    "reformer": Special(
        {
            "axial_pos_shape": [2, 4],
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "num_buckets": 2,
            "feed_forward_size": 32,
        },
        {"input_ids": "word 2 8"},
    ),
    "time_series_transformer": _SERIES,
}
