"""The smallest model of each module of timm and of each stem of names in torchvision, on small images."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import torch
from real_models import RealModel
from torch import nn

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
    """One name of each module, or none where timm is not installed."""
    timm = _timm()
    if timm is None:
        return []
    return [min(timm.list_models(module=module), key=_size) for module in timm.list_modules()]


def torchvision_names() -> list[str]:
    """One name of each stem, or none where torchvision is not installed."""
    if _timm() is None:
        return []
    from torchvision import models

    # Detectors need operators that no build for the CPU has; the others take no single image.
    return sorted(_smallest([*models.list_models(module=models), *models.list_models(module=models.segmentation)]))


def timm_recipe(name: str, choice: str = "") -> Recipe:
    """The model with as few layers and as small an image as it takes."""
    timm = _timm()
    return _recipe(lambda **options: timm.create_model(name, pretrained=False, **options), _SHALLOW, choice)


def torchvision_recipe(name: str, choice: str = "") -> Recipe:
    """The model as it is, on as small an image as it takes."""
    from torchvision import models

    weights = {"weights": None} | ({"weights_backbone": None} if _has_backbone(models, name) else {})
    return _recipe(lambda **options: models.get_model(name, **weights, **options), ({},), choice)


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


def _recipe(create: Callable[..., nn.Module], shallow: tuple[Mapping[str, Any], ...], choice: str) -> Recipe:
    choices = list(_choices(shallow))
    if choice:
        return Recipe(choice, lambda: _real(create, *choices[int(choice)]))
    failure = NotBuiltError("configuration")
    for number, chosen in enumerate(choices):
        try:
            _real(create, *chosen).loss().item()
        except Exception as error:  # noqa: BLE001 (whatever a package raises is why)
            failure = reason(error, "inputs")
            continue
        return Recipe(str(number), lambda chosen=chosen: _real(create, *chosen))
    raise failure


def _choices(shallow: tuple[Mapping[str, Any], ...]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    for mode in ("train", "eval"):
        for side in _SIDES:
            for options in shallow:
                if shallow != ({},):
                    yield mode, side, {**options, "img_size": side}
                yield mode, side, options


def _real(create: Callable[..., nn.Module], mode: str, side: int, options: Mapping[str, Any]) -> RealModel:
    model = create(**options).train(mode == "train")
    x = torch.randn(2, 3, side, side)
    return RealModel(model, lambda: total(model(x)))
