"""Small configurations: the defaults of a configuration class with fewer layers and narrower ones.

No rule knows a model. Widths are divided by one number for the whole configuration, so what divides what stays as it
is: heads times their size, groups of channels, the parts of a rotary embedding. The caller tries one number after the
other until a model can be built and run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["SIZES", "VOCABULARY", "shrunk"]

SIZES: Final = ((16, 64), (8, 64), (4, 64), (2, 64), (1, 64), (16, 0), (4, 0), (1, 0))
"""What the widths are divided by, and how wide an image is at most (0 leaves it as it is), in the order to try."""
VOCABULARY: Final = 128
"""How many words there are; the last ones are the special ones."""

_LAYERS: Final = 2
_EXPERTS: Final = 4
_POSITIONS: Final = 64
_NARROW: Final = 16
"""A width below this may be something else."""

_DERIVED: Final = {
    *("transformers_version", "model_type", "architectures", "id2label", "label2id", "_name_or_path"),
    *("out_features", "out_indices", "_out_features", "_out_indices", "stage_names", "per_layer_config"),
}
"""What a configuration finds by itself, and would contradict."""
_COUNT_OF_LAYERS: Final = re.compile(
    r"(^|_)(n_?|num_?|number_of_)?(hidden_|encoder_|decoder_|attention_|resampler_|res_)*(layers?|blocks?|depth)$"
)
_WORDS: Final = re.compile(r"(^|_)vocab_size|vocab_size(_|$)|^n_vocab$|^codebook_size$")
_SPECIAL_WORD: Final = re.compile(r"_token$|_token_id$|_token_ids$|_token_index$|^(eos|bos|pad)_id$|_codebook_\w+_id$")
_POSITION: Final = re.compile(r"^(max_position_embeddings|n_positions|n_ctx|max_\w*_positions|context_length)$")
_SIDE: Final = re.compile(r"(^|_)(image_size|img_size|input_size|crop_size)$")
_EXPERT: Final = re.compile(r"^(n_routed_experts|num_experts|num_local_experts|moe_num_experts|n_experts)$")
_CHOSEN_EXPERTS: Final = re.compile(r"^(num_experts_per_tok|moe_k|moe_topk|num_selected_experts|top_k_experts)$")
_GROUPS: Final = re.compile(r"^(n_group|topk_group|num_expert_groups?)$")
_PERIOD: Final = re.compile(r"_(period|interval|every|step|pattern|frequency)$|^(first_k_dense_replace)$")
_OFFSET: Final = re.compile(r"_layer_offset$")
_WIDTH: Final = re.compile(
    r"hidden|dims?($|_)|_dim$|width|d_model|embd|embed|inner|ffn|d_ff|d_kv|channels|filters|_rank$|intermediate|"
    r"^planes$|head_size|_size$|features$|projection|expansion_size"
)
_NO_WIDTH: Final = re.compile(
    r"heads|layers|patch|kernel|window|pool|num_channels$|in_chans|in_channels|image|chunk|stride|token|vocab|cache|"
    r"init|std|dropout|type|scale|ratio|factor|block_size|batch|crop|tile|grid|segment|sample|group_size|codebook_|"
    r"mel|bins|prob|max_|min_|feature_size|input_size|num_|label"
)


def shrunk(config: Mapping[str, Any], factor: int, side: int) -> dict[str, Any]:
    """The configuration, and what is configured in it, with widths divided by ``factor`` and images ``side`` wide."""
    return _Shrinking(factor, side).of(config)


class _Shrinking:
    def __init__(self, factor: int, side: int) -> None:
        self._factor = factor
        self._side = side
        self._special: dict[int, int] = {}

    def of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        kept = _choose_layers(config)
        lengths = {len(value) for value in config.values() if isinstance(value, list | tuple)}
        small: dict[str, Any] = {}
        for key, value in config.items():
            if key in _DERIVED:
                continue
            if isinstance(value, Mapping):
                small[key] = self.of(value) if _is_config(value) else self._options(value)
            elif isinstance(value, list | tuple) and kept and len(value) == kept[0]:
                small[key] = type(value)(value[place] for place in kept[1])
            elif isinstance(value, list | tuple):
                small[key] = self._values(key, value)
            elif kept and _is_count_of_layers(key, value) and value == kept[0]:
                small[key] = len(kept[1])
            elif _is_count_of_layers(key, value) and value in lengths:
                small[key] = value
            else:
                small[key] = self._value(key, value)
        if "model_type" in config:
            small["model_type"] = config["model_type"]
        heads, width = small.get("num_attention_heads"), small.get("hidden_size")
        if _is_number(heads) and _is_number(width):
            usual = {"head_dim": width // heads, "num_key_value_heads": heads}
            small |= {key: value for key, value in usual.items() if key in small and small[key] is None}
        return small

    def _values(self, key: str, values: Any) -> Any:
        """Widths from one layer to the next become smaller together or not at all."""
        if _is_width(key) and any(value % self._factor for value in values if isinstance(value, int)):
            return values
        return type(values)(self._value(key, value) for value in values)

    def _options(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that are no configuration: a sum of parts that follows a width is the one thing to be made small."""
        return {
            key: self._sections(entry) if isinstance(entry, list) and key.endswith("section") else entry
            for key, entry in value.items()
        }

    def _sections(self, parts: list[int]) -> list[int]:
        total = sum(parts) // self._factor
        small = [part // self._factor for part in parts]
        for place in range(total - sum(small)):
            small[-1 - place % len(small)] += 1
        return small

    def _value(self, key: str, value: Any) -> Any:
        if not _is_number(value):
            return False if key == "use_cache" else value
        if _SPECIAL_WORD.search(key):
            return self._word(value)
        if _WORDS.search(key):
            return min(value, VOCABULARY)
        if _SIDE.search(key):
            return min(value, self._side) if self._side else value
        for pattern, bound in _BOUNDS:
            if pattern.search(key):
                return min(value, bound)
        if _is_width(key) and value >= _NARROW and value % self._factor == 0:
            return value // self._factor
        return value

    def _word(self, value: int) -> int:
        """Equal numbers stay equal, and different ones different."""
        if value < VOCABULARY // 4:
            return value
        return self._special.setdefault(value, VOCABULARY - 1 - len(self._special))


_BOUNDS: Final = (
    (_POSITION, _POSITIONS),
    (_EXPERT, _EXPERTS),
    (_CHOSEN_EXPERTS, 2),
    (_GROUPS, 1),
    (_COUNT_OF_LAYERS, _LAYERS),
    (_PERIOD, 2),
    (_OFFSET, 1),
)


def _is_width(key: str) -> bool:
    return bool(_WIDTH.search(key)) and not _NO_WIDTH.search(key)


def _is_config(value: Mapping[str, Any]) -> bool:
    return "model_type" in value or "transformers_version" in value


def _is_count_of_layers(key: str, value: Any) -> bool:
    return _is_number(value) and bool(_COUNT_OF_LAYERS.search(key))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _choose_layers(config: Mapping[str, Any]) -> tuple[int, list[int]] | None:
    """How many layers there are, and the places of those that stay: the first of each kind, at least two of them."""
    counts = [value for key, value in config.items() if _is_count_of_layers(key, value) and value > _LAYERS]
    if not counts:
        return None
    count = counts[0]
    by_layer = [value for value in config.values() if isinstance(value, list | tuple) and len(value) == count]
    if count <= 8 and not any(isinstance(entry, str) for value in by_layer for entry in value):
        by_layer = []
    first: dict[str, int] = {}
    for place in range(count):
        first.setdefault(repr([value[place] for value in by_layer]), place)
    places = sorted(first.values())[:4]
    return count, places if len(places) > 1 else list(range(min(count, _LAYERS)))
