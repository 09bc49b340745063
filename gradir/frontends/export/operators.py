"""Look up operations of torch: their names, the names of their arguments, and the arguments that they write to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import torch

from gradir.frontends.pytorch.private import Operator
from gradir.frontends.pytorch.recording.steps import INPLACE, signature_of
from gradir.frontends.texts import plain_text
from gradir.ir.frozen import NOTHING

METHOD: Final = "Tensor.{}"
_WRITERS: Final = frozenset({"iadd", "isub", "imul", "itruediv", "ifloordiv", "ipow", "iand", "ior", "ixor"})
_OVERLOAD: Final = re.compile(r"(?:torch\.ops\.)?([A-Za-z]\w*)\.([A-Za-z]\w*|__[a-z]+__|_[a-z]\w*)\.([A-Za-z]\w*)")


class Operation(NamedTuple):
    """An operation: its neutral name, torch's, the names and kinds of its arguments, and if it reads values."""

    op: str
    native: str
    names: tuple[str, ...] = ()
    kinds: Mapping[str, str] = NOTHING
    reads_values: bool = False


@lru_cache(maxsize=4096)
def operation_of(target: Any) -> Operation:
    """Return the operation of a callable or of a name such as ``torch.ops.aten.add_.Tensor``."""
    if isinstance(target, str):
        found = _find_overload(target)
        if found is None:
            native = plain_text(target.removeprefix("torch.ops.higher_order.").removeprefix("torch.ops."))
            return Operation(native.rpartition(".")[2], native, (), _guess_kinds(native))
        target = found
    name = plain_text(str(getattr(target, "__name__", type(target).__name__)))
    if isinstance(target, Operator):
        names, kinds, _ = signature_of(target)
        reads = torch.Tag.data_dependent_output in target.tags
        return Operation(name.partition(".")[0], plain_text(str(target)), names, kinds, reads)
    if "HigherOrderOperator" in {kind.__name__ for kind in type(target).__mro__}:
        return Operation(name, name)
    module = str(getattr(target, "__module__", None) or "torch").removeprefix("_")
    return Operation(name, plain_text(f"{module}.{name}"), (), _guess_kinds(name))


def _guess_kinds(name: str) -> Mapping[str, str]:
    """Return the arguments that an operation without a schema writes to, by its name."""
    last = name.rpartition(".")[2]
    return {"0": INPLACE} if last in _WRITERS or (last.endswith("_") and not last.endswith("__")) else NOTHING


def _find_overload(target: str) -> Any:
    """Return the overload of a registered operation, without importing a module."""
    match = _OVERLOAD.fullmatch(target)
    found = None
    if match is not None:
        with suppress(AttributeError, RuntimeError):
            found = attrgetter(".".join(match.groups()))(torch.ops)
    return found if isinstance(found, Operator) else None
