"""Inputs for the forward of a model that nobody looked at, made from the names of its arguments.

Each name has one or more shapes that models use it with; `candidates` gives whole sets of inputs, in the order in which
to try. A shape is written in letters that the configuration gives a size, as in `batch channels side side`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import Any, Final

import torch
from torch import Tensor, nn

__all__ = ["candidates", "tensor"]

_SETS: Final = 12
"""How many sets of inputs are tried at most."""

_SHAPES: Final[Mapping[str, tuple[str, ...]]] = {
    "input_ids": ("word batch words", "word batch books words"),
    "decoder_input_ids": ("word batch words",),
    "decoder_inputs_embeds": (),
    "inputs_embeds": ("float batch words width",),
    "hidden_states": ("float batch words width", "float patches inside", "float patches width"),
    "inputs": ("float batch words width", "word batch words"),
    "latents": ("float batch words width", "float batch channels side side"),
    "spectrogram": ("float batch times mels",),
    "query_embeds": ("float batch words width",),
    "patch_embeds": ("float batch patches width",),
    "image_embeds": ("float batch patches width",),
    "image_features": ("float batch patches width",),
    "encoder_outputs": (),
    "task_inputs": ("word batch words",),
    "codes": ("word batch books words",),
    "input_coords": (),
    "cross_attention_states": ("float batch patches width",),
    "pixel_position_ids": ("pairs",),
    "image_position_ids": ("pairs",),
    "mask_labels": (),
    "encoder_hidden_states": ("float batch words context", "float batch words width"),
    "pixel_values": (
        "float batch channels side side",
        "float batch frames channels side side",
        "float batch one channels side side",
        "float batch two channels side side",
        "float batch patches inside",
        "float patches inside",
    ),
    "pixel_values_videos": ("float batch frames channels side side",),
    "input_values": (
        "float batch samples",
        "float batch one samples",
        "float batch mels times",
        "float batch times mels",
    ),
    "input_features": (
        "float batch mels frequent",
        "float batch times mels",
        "float batch one times mels",
        "float batch mels times",
        "float mels times",
        "float batch one mels times",
    ),
    "is_longer": (),
    "bbox": ("box batch words four",),
    "flattened_patches": ("float batch patches flat",),
    "grid_thw": ("grid",),
    "image_grid_thw": ("grid",),
    "past_values": ("float batch past", "float batch past channels"),
    "past_time_features": ("float batch past features",),
    "past_observed_mask": ("one_bool batch past",),
    "states": ("float batch words states",),
    "actions": ("float batch words actions",),
    "rewards": ("float batch words one",),
    "returns_to_go": ("float batch words one",),
    "timesteps": ("order batch words",),
    "attention_mask": ("one_int batch words",),
    "token_type_ids": ("zero batch words",),
    "position_ids": ("order batch words",),
    "labels": ("word batch words",),
}
_WORDS: Final = 8
_FIRST_WORD: Final = 3
_LAST_WORD: Final = 60


def candidates(model: nn.Module, config: Any, special: Mapping[str, str]) -> Iterator[dict[str, Tensor]]:
    """Sets of inputs for a model: all that it can take first, then its main input alone, each in every known shape.

    ``special`` gives the shapes that are known of this model, and no others are tried then.
    """
    sizes = _sizes(config)
    if special:
        yield {name: tensor(text, sizes) for name, text in special.items()}
        return
    arguments = inspect.signature(model.forward).parameters
    needed = [
        name
        for name, argument in arguments.items()
        if argument.default is argument.empty and argument.kind in _NAMED and name != "self"
    ]
    named = getattr(model, "main_input_name", None) or next(iter(arguments), "")
    main = [named] if isinstance(named, str) else list(named)
    tried: list[list[str]] = []
    rich = [name for name in _RICH if name in arguments]
    mains = [*rich, *needed], [*main, *needed], ["input_ids", *needed], ["pixel_values", *needed], needed
    for names in (*mains, [*main, *needed, "encoder_hidden_states"]):
        chosen = list(dict.fromkeys(name for name in names if name in arguments))
        if not chosen or chosen in tried or not all(name in _SHAPES for name in chosen):
            continue
        tried.append(chosen)
        for shapes in islice(product(*(_SHAPES[name] for name in chosen)), _SETS):
            yield {name: tensor(text, sizes) for name, text in zip(chosen, shapes, strict=True)}


_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_RICH: Final = ("input_ids", "pixel_values", "input_values", "input_features", "decoder_input_ids", "bbox")
"""What is given wherever it can be: more of the model runs then."""


def tensor(text: str, sizes: Mapping[str, int]) -> Tensor:
    """A tensor as ``kind size size ...`` says; a size is a number or a name in ``sizes``."""
    kind, *words = text.split()
    if kind == "grid":
        side = sizes["rows"]
        return torch.tensor([[1, side, side]])
    if kind == "pairs":
        side = torch.arange(sizes["rows"])
        return torch.cartesian_prod(side, side).expand(sizes["batch"], -1, -1).contiguous()
    shape = [int(word) if word.isdigit() else sizes[word] for word in words]
    if kind == "word":
        return torch.randint(_FIRST_WORD, _LAST_WORD, shape)
    if kind == "box":
        return torch.randint(0, 50, shape).cumsum(-1).clamp(max=63)
    if kind == "order":
        return torch.arange(shape[-1]).expand(shape).contiguous()
    if kind in _FULL:
        value, dtype = _FULL[kind]
        return torch.full(shape, value, dtype=dtype)
    if kind == "positive":
        return torch.rand(shape) + 0.5
    return torch.randn(shape)


_FULL: Final = {"zero": (0, torch.int64), "one_int": (1, torch.int64), "one_bool": (1, torch.bool)}


def _sizes(config: Any) -> dict[str, int]:
    """What the letters of a shape stand for."""
    side = _first(config, ("image_size", "img_size", "input_size", "crop_size"), 64)
    patch = _first(config, ("patch_size",), 16)
    channels = _first(config, ("num_channels", "in_channels", "in_chans", "num_input_channels"), 3)
    temporal = _first(config, ("temporal_patch_size",), 1)
    mels = _first(config, ("num_mel_bins", "n_mels", "num_mels", "feature_size", "input_feat_per_channel"), 80)
    rows = 4 if side % patch else max(side // patch, 2)
    return {
        "batch": 2,
        "one": 1,
        "two": 2,
        "four": 4,
        "words": _WORDS,
        "books": _first(config, ("num_codebooks", "num_vq", "audio_channels"), 4),
        "width": _first(config, ("hidden_size", "d_model", "n_embd", "embed_dim", "dim"), 32),
        "context": _first(config, ("encoder_hidden_size", "cross_attention_hidden_size", "hidden_size"), 32),
        "channels": channels,
        "side": side,
        "frames": _first(config, ("num_frames",), 4),
        "rows": rows,
        "patches": rows * rows,
        "inside": channels * temporal * patch * patch,
        "flat": channels * patch * patch + 2,
        "samples": 4000,
        "mels": mels,
        "times": _first(config, ("max_length", "max_source_positions_features", "spec_size"), 128),
        "frequent": 2 * _first(config, ("max_source_positions",), 64),
        "past": _first(config, ("context_length", "prediction_length"), 32) + max(_lags(config), default=0),
        "features": _first(config, ("num_time_features",), 1) or 1,
        "states": _first(config, ("state_dim",), 17),
        "actions": _first(config, ("act_dim", "action_dim"), 4),
    }


def _lags(config: Any) -> list[int]:
    lags = getattr(config, "lags_sequence", None)
    return lags if isinstance(lags, list) else []


def _first(config: Any, names: tuple[str, ...], otherwise: int) -> int:
    """The first of these settings that there is, in the configuration or in one that it holds."""
    for place in (config, *_parts(config)):
        for name in names:
            value = getattr(place, name, None)
            if isinstance(value, list | tuple) and value:
                value = value[0]
            if isinstance(value, dict):
                value = value.get("height", value.get("longest_edge"))
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return otherwise


def _parts(config: Any) -> Iterator[Any]:
    for key in getattr(config, "sub_configs", None) or {}:
        part = getattr(config, key, None)
        if part is not None and not isinstance(part, dict):
            yield part
