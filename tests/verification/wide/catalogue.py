"""Every architecture there is, by family and name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from real_models import RealModel

from wide import image_models, torch_models, transformers_models
from wide.building import NotBuiltError, Recipe

__all__ = ["NotBuiltError", "RealModel", "Recipe", "keys", "prepare", "recipe"]


class _Family(NamedTuple):
    names: Callable[[], list[str]]
    recipe: Callable[[str, str], Recipe]


FAMILIES: Final = {
    "transformers": _Family(transformers_models.names, transformers_models.recipe),
    "timm": _Family(image_models.timm_names, image_models.timm_recipe),
    "torchvision": _Family(image_models.torchvision_names, image_models.torchvision_recipe),
    "torch": _Family(torch_models.names, torch_models.recipe),
}


def keys() -> list[str]:
    """``family/name`` of each, in the order of the record."""
    return [f"{family}/{name}" for family, (names, _) in FAMILIES.items() for name in names()]


def recipe(family: str, name: str, choice: str = "") -> Recipe:
    """How to build one; ``choice`` is that of a recipe found earlier.

    Raises:
        NotBuiltError: it cannot be built here.
    """
    return FAMILIES[family].recipe(name, choice)


def prepare() -> None:
    """Import what every architecture needs, once for all."""
    # First, since transformers imports torchvision where it is there.
    image_models.timm_names()
    import transformers
    from transformers.models.auto import modeling_auto

    transformers.logging.set_verbosity_error()
    for name in ("LlamaModel", "CLIPModel", "BartModel", "Qwen2VLModel", "MixtralModel"):
        getattr(transformers, name)
    assert modeling_auto
