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


SPECIAL: Final[Mapping[str, Special]] = {}
