"""Every model type of transformers, with a configuration as small as it can be."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from real_models import RealModel
from torch import nn

from wide.building import NotBuiltError, Recipe, reason, total
from wide.inputs import candidates
from wide.shrinking import SIZES, shrunk
from wide.special import SPECIAL, Special

__all__ = ["names", "recipe"]


def names() -> list[str]:
    """The model types."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return sorted(name for name in CONFIG_MAPPING_NAMES if name.islower())


def recipe(name: str, choice: str = "") -> Recipe:
    """The first configuration and inputs with which a model of this type runs, or those of an earlier choice.

    Raises:
        NotBuiltError: none was found.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    special = SPECIAL.get(name, Special())
    try:
        config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[name]
        plan = _Plan(config_class, _model_class(name, special), config_class(**special.defaults).to_dict(), special)
    except Exception as error:
        raise reason(error, "configuration") from error
    if choice:
        side, factor, mode, number = choice.split()
        return plan.recipe(plan.config(int(factor), int(side)), choice, mode, int(number))
    failures: list[NotBuiltError] = []
    for factor, side in SIZES:
        # What does not depend on the width is the same with the full one, too.
        if _is_always_the_same(failures) and (factor, side) != (1, 64):
            continue
        try:
            return plan.try_inputs(factor, side)
        except NotBuiltError as failure:
            failures.append(failure)
        if failures[-1].word == "package":
            break
    # What came later in the making of a model says more.
    raise max(failures, key=lambda failure: _ORDER.index(failure.word))


_PARAMETERS: Final = 40_000_000
_SETS: Final = {"train": 24, "eval": 6}
"""How many sets of inputs are tried at most."""
_ORDER: Final = ("package", "configuration", "size", "memory", "download", "inputs", "gradient")


def _is_always_the_same(failures: list[NotBuiltError]) -> bool:
    return len(failures) > 1 and failures[-1].detail == failures[-2].detail


class _Plan(NamedTuple):
    """How the models of one type are made."""

    config_class: Any
    model_class: Any
    defaults: Mapping[str, Any]
    special: Special

    def config(self, factor: int, side: int) -> Any:
        return self.config_class(**_merge(shrunk(self.defaults, factor, side), self.special.config))

    def model(self, config: Any, mode: str) -> nn.Module:
        """A new model; the configuration is its own, since some models change theirs."""
        model: nn.Module = self.model_class(copy.deepcopy(config))
        return model.float().train(mode == "train")

    def check_size(self, config: Any) -> None:
        """Refuse a model that is too large to be run many times.

        Raises:
            NotBuiltError: it is.
        """
        with torch.device("meta"), suppress(NotImplementedError, RuntimeError):
            count = sum(parameter.numel() for parameter in self.model_class(copy.deepcopy(config)).parameters())
            if count > _PARAMETERS:
                raise NotBuiltError("size", f"{count:,} parameters")

    def try_inputs(self, factor: int, side: int) -> Recipe:
        """With the first inputs that it runs with, in training mode if it does.

        Raises:
            NotBuiltError: the model cannot be built, or no inputs are right.
        """
        try:
            config = self.config(factor, side)
            if factor < SIZES[0][0]:
                self.check_size(config)
            model = self.model(config, "train")
        except Exception as error:
            raise reason(error, "configuration") from error
        failures: list[Exception] = []
        for mode in ("train", "eval"):
            model.train(mode == "train")
            for number, inputs in enumerate(islice(candidates(model, config, self.special.inputs), _SETS[mode])):
                try:
                    total(model(**inputs)).item()
                except Exception as error:  # noqa: BLE001
                    failures.append(error)
                    continue
                return self.recipe(config, f"{side} {factor} {mode} {number}", mode, number)
        # The first inputs are those that seemed right.
        raise reason(failures[0], "inputs") if failures else NotBuiltError("inputs", "it takes none that are known")

    def recipe(self, config: Any, choice: str, mode: str, number: int) -> Recipe:
        """With the inputs of this number."""

        def build() -> RealModel:
            model = self.model(config, mode)
            inputs = next(islice(candidates(model, config, self.special.inputs), number, None))
            return RealModel(model, lambda: total(model(**inputs)))

        return Recipe(choice, build)


def _merge(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for key, value in changes.items():
        merged[key] = _merge(merged.get(key) or {}, value) if isinstance(value, Mapping) else value
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
    return _find_class(name)


@cache
def _mappings() -> list[Mapping[str, Any]]:
    from transformers.models.auto import modeling_auto

    others = sorted(key for key in vars(modeling_auto) if key.startswith("MODEL_FOR_") and key.endswith("_NAMES"))
    return [modeling_auto.MODEL_MAPPING_NAMES, *(getattr(modeling_auto, key) for key in others)]


def _find_class(name: str) -> Any:
    """A class that is for this configuration, of the package that has the model."""
    from transformers import PreTrainedModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[name]
    package = config_class.__module__.rpartition(".")[0]
    folder = Path(str(importlib.import_module(package).__file__)).parent
    for path in sorted(folder.glob("modeling_*.py")):
        for found in _classes(importlib.import_module(f"{package}.{path.stem}")):
            if issubclass(found, PreTrainedModel) and found.config_class is config_class and _has_forward(found):
                return found
    raise NotBuiltError("configuration", "no class is for it")


def _classes(module: Any) -> Iterator[type]:
    return (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)


def _has_forward(found: type[nn.Module]) -> bool:
    return found.forward is not nn.Module.forward
