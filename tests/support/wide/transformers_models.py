"""Every model type of transformers, with a configuration as small as it can be."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from real_models import RealModel
from torch import Tensor, nn
from wide.building import NotBuiltError, Recipe, reason, total
from wide.inputs import candidates
from wide.shrinking import FACTORS, SIDES, shrunk
from wide.special import SPECIAL, Special

__all__ = ["names", "recipe"]


def names() -> list[str]:
    """The model types."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return sorted(name for name in CONFIG_MAPPING_NAMES if name.islower())


def recipe(name: str) -> Recipe:
    """The first configuration and inputs with which a model of this type runs.

    Raises:
        NotBuiltError: none was found.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    special = SPECIAL.get(name, Special())
    try:
        config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[name]
        model_class = _model_class(name, special)
        defaults = config_class(**special.defaults).to_dict()
    except Exception as error:  # noqa: BLE001 (whatever a package raises is why)
        raise reason(error, "configuration") from error
    failure = NotBuiltError("configuration")
    for side in SIDES:
        for factor in FACTORS:
            try:
                config = config_class(**_merged(shrunk(defaults, factor, side), special.config))
                model_class(copy.deepcopy(config))
            except Exception as error:  # noqa: BLE001
                failure = _better(failure, reason(error, "configuration"))
                continue
            for mode in ("train", "eval"):
                try:
                    inputs = _inputs(model_class, config, mode, special)
                except Exception as error:  # noqa: BLE001
                    failure = _better(failure, reason(error, "inputs"))
                    continue
                how = f"{model_class.__name__}, {mode}, widths / {factor}, {', '.join(inputs)}"
                return Recipe(how, lambda config=config, mode=mode, inputs=inputs: _real(model_class, config, mode, inputs))
    raise failure


def _better(one: NotBuiltError, other: NotBuiltError) -> NotBuiltError:
    """The failure that came later in the making of a model says more."""
    order = ("configuration", "memory", "download", "package", "inputs", "gradient")
    return max(one, other, key=lambda failure: (order.index(failure.word), failure is one and bool(one.detail)))


def _real(model_class: Any, config: Any, mode: str, inputs: Mapping[str, Tensor]) -> RealModel:
    model = model_class(copy.deepcopy(config)).float().train(mode == "train")
    return RealModel(model, lambda: total(model(**inputs)))


def _inputs(model_class: Any, config: Any, mode: str, special: Special) -> dict[str, Tensor]:
    model = model_class(copy.deepcopy(config)).float().train(mode == "train")
    failure: Exception = NotBuiltError("inputs", "no argument of its forward is known")
    for inputs in candidates(model, config, special.inputs):
        try:
            total(model(**inputs)).item()
        except Exception as error:  # noqa: BLE001
            failure = error
            continue
        return inputs
    raise failure


def _merged(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for key, value in changes.items():
        merged[key] = _merged(merged.get(key) or {}, value) if isinstance(value, Mapping) else value
    return merged


def _model_class(name: str, special: Special) -> Any:
    """The class of a model type: the one without a head where there is one."""
    import transformers

    if special.class_name:
        return getattr(transformers, special.class_name)
    for mapping in _mappings():
        found = mapping.get(name)
        if found is not None:
            return getattr(transformers, found if isinstance(found, str) else found[0])
    return _by_config(name)


@cache
def _mappings() -> list[Mapping[str, Any]]:
    from transformers.models.auto import modeling_auto

    others = sorted(key for key in vars(modeling_auto) if key.startswith("MODEL_FOR_") and key.endswith("_NAMES"))
    return [modeling_auto.MODEL_MAPPING_NAMES, *(getattr(modeling_auto, key) for key in others)]


def _by_config(name: str) -> Any:
    """A class that is for this configuration, of the module that has the model."""
    from transformers import PreTrainedModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[name]
    module = importlib.import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
    for found in _classes(module):
        if issubclass(found, PreTrainedModel) and found.config_class is config_class and _has_forward(found):
            return found
    raise NotBuiltError("configuration", "no class is for it")


def _classes(module: Any) -> Iterator[type]:
    return (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)


def _has_forward(found: type[nn.Module]) -> bool:
    return "forward" in vars(found)
