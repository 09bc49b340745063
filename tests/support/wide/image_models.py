"""The models of timm and torchvision: of each stem of names in each module the smallest, on small images."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import torch
from real_models import RealModel
from torch import Tensor, nn
from wide.building import NotBuiltError, Recipe, reason, total
from wide.torchvision_ready import make_ready

__all__ = ["timm_names", "timm_recipe", "torchvision_names", "torchvision_recipe"]

_SMALL: Final = (
    *("test", "zepto", "atto", "femto", "pico", "nano", "xxs", "xxtiny", "xs", "xtiny", "tiny", "ti", "t"),
    *("mini", "s", "small", "x", "m", "medium", "", "b", "base", "l", "large", "h", "huge", "g", "giant", "enormous"),
)
_SIDES: Final = (64, 96, 128, 224, 256)
_SHALLOW: Final[tuple[Mapping[str, Any], ...]] = (
    {"depth": 2},
    {"depths": (1, 1, 1, 1)},
    {"layers": (1, 1, 1, 1)},
    {},
)


def timm_names() -> list[str]:
    """One name of each stem, or none where timm is not installed."""
    timm = _timm()
    if timm is None:
        return []
    chosen = []
    for module in timm.list_modules():
        chosen += _smallest(timm.list_models(module=module))
    return sorted(set(chosen))


def torchvision_names() -> list[str]:
    """One name of each stem, or none where torchvision is not installed."""
    if _timm() is None:
        return []
    from torchvision import models

    names = [name for name in models.list_models() if not name.startswith("quantized_")]
    return sorted(_smallest(names))


def timm_recipe(name: str) -> Recipe:
    """The model with as few layers and as small an image as it takes."""
    timm = _timm()
    assert timm is not None
    return _first_that_runs(lambda **options: timm.create_model(name, pretrained=False, **options), _SHALLOW)


def torchvision_recipe(name: str) -> Recipe:
    """The model as it is, on as small an image as it takes."""
    from torchvision import models

    weights = {"weights": None} | ({"weights_backbone": None} if _has_backbone(models, name) else {})
    return _first_that_runs(lambda **options: models.get_model(name, **weights, **options), ({},))


def _has_backbone(models: Any, name: str) -> bool:
    import inspect

    return "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters


@cache
def _timm() -> Any:
    try:
        make_ready()
        import timm
    except ImportError:
        return None
    return timm


def _smallest(names: list[str]) -> list[str]:
    """The smallest of each stem, going by what models are called."""
    by_stem: dict[str, list[str]] = {}
    for name in names:
        stem = re.match(r"[a-z]+(?:v\d+(?=_|$))?", name)
        by_stem.setdefault(stem[0] if stem else name, []).append(name)
    return [min(group, key=_size) for group in by_stem.values()]


def _size(name: str) -> tuple[int, list[int], int, str]:
    words = re.split(r"[_\d]+", name)
    ranks = [_SMALL.index(word) for word in words[1:] if word in _SMALL and word]
    rank = min(ranks) if ranks else _SMALL.index("")
    numbers = [int(number) for number in re.findall(r"\d+", name)]
    return (0 if words[0] == "test" else rank, numbers, len(name), name)


def _first_that_runs(create: Callable[..., nn.Module], shallow: tuple[Mapping[str, Any], ...]) -> Recipe:
    failure = NotBuiltError("configuration")
    for side, options, mode in _choices(shallow):
        try:
            model = create(**options).train(mode == "train")
            x = torch.randn(2, 3, side, side)
            total(model(x)).item()
        except Exception as error:  # noqa: BLE001 (whatever a package raises is why)
            failure = reason(error, "inputs")
            continue
        how = ", ".join([mode, f"{side} pixels", *options])
        return Recipe(how, lambda options=options, mode=mode, x=x: _real(create, options, mode, x))
    raise failure


def _choices(shallow: tuple[Mapping[str, Any], ...]) -> Iterator[tuple[int, Mapping[str, Any], str]]:
    for mode in ("train", "eval"):
        for side in _SIDES:
            for options in shallow:
                if shallow != ({},):
                    yield side, {**options, "img_size": side}, mode
                yield side, options, mode


def _real(create: Callable[..., nn.Module], options: Mapping[str, Any], mode: str, x: Tensor) -> RealModel:
    model = create(**options).train(mode == "train")
    return RealModel(model, lambda: total(model(x)))
