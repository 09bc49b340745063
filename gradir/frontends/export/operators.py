"""What torch says of an operation: its name, the names of its arguments, and what it writes to."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    """An operation: its neutral name, torch's, the names and kinds of its arguments, and if it reads numbers."""

    op: str
    native: str
    names: tuple[str, ...] = ()
    kinds: Mapping[str, str] = NOTHING
    reads_numbers: bool = False


@lru_cache(maxsize=4096)
def operation_of(target: Any) -> Operation:
    """The operation that a callable is, or that a text names, such as ``torch.ops.aten.add_.Tensor``."""
    if isinstance(target, str):
        found = _overload(target)
        if found is None:
            native = plain_text(target.removeprefix("torch.ops.higher_order.").removeprefix("torch.ops."))
            return Operation(native.rpartition(".")[2], native, (), _kinds(native))
        target = found
    name = plain_text(str(getattr(target, "__name__", type(target).__name__)))
    if isinstance(target, Operator):
        names, kinds, _ = signature_of(target)
        reads = torch.Tag.data_dependent_output in target.tags
        return Operation(name.partition(".")[0], plain_text(str(target)), names, kinds, reads)
    if "HigherOrderOperator" in {kind.__name__ for kind in type(target).__mro__}:
        return Operation(name, name)
    module = str(getattr(target, "__module__", None) or "torch").removeprefix("_")
    return Operation(name, plain_text(f"{module}.{name}"), (), _kinds(name))


def _kinds(name: str) -> Mapping[str, str]:
    """What an operation without a schema writes to, told by its name."""
    last = name.rpartition(".")[2]
    return {"0": INPLACE} if last in _WRITERS or (last.endswith("_") and not last.endswith("__")) else NOTHING


def _overload(target: str) -> Any:
    """The overload of a registered operation; no module is imported to find one."""
    match = _OVERLOAD.fullmatch(target)
    if match is None:
        return None
    try:
        found = attrgetter(".".join(match.groups()))(torch.ops)
    except (AttributeError, RuntimeError):
        return None
    return found if isinstance(found, Operator) else None
