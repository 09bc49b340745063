"""What is to be explained, as a recorder gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from gradir.errors import CaptureError
from gradir.frontends.pytorch.explaining.registered import broken_ties, hooked_modules, kept_aside
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.distributed import forms_of_sharded
from gradir.frontends.pytorch.reading.tensors import Modules, named_tensors
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.protocols import Names

__all__ = ["Subject", "subject_of"]


class Subject(NamedTuple):
    """What is to be explained.

    ``tensors`` are the parameters and tensors by name, ``owned`` the names that a module gives, ``captured`` what
    backward would start from, ``live`` their graph if they have one, ``trained`` the tensors of the optimizer if there
    is one. ``parametrized`` are names that a module computes of its parameters, ``aside`` the tensors that
    modules keep otherwise than as parameters and buffers, ``untied`` pairs of parameters that were one tensor,
    ``hooks`` those on the backward of modules, by path, ``lent`` the names of parameters that a module has only while
    it runs, and ``paths`` where the modules are.
    """

    flow: Flow
    tensors: Mapping[str, torch.Tensor]
    owned: frozenset[str]
    captured: Sequence[torch.Tensor]
    live: LiveGraph | None
    trained: Sequence[torch.Tensor] | None
    parametrized: frozenset[str]
    aside: Mapping[str, torch.Tensor]
    untied: Sequence[tuple[str, str]]
    hooks: Mapping[str, Sequence[object]]
    lent: frozenset[str]
    paths: Mapping[nn.Module, str]

    def tied(self) -> tuple[tuple[str, ...], ...]:
        """The names that are of one tensor."""
        names: dict[int, list[str]] = {}
        for name, tensor in self.tensors.items():
            names.setdefault(id(tensor), []).append(name)
        return tuple(tuple(group) for group in names.values() if len(group) > 1)


def subject_of(
    flow: Flow,
    modules: Modules,
    captured: Sequence[torch.Tensor],
    live: LiveGraph | None,
    ran: Mapping[str, torch.Tensor],
    *,
    params: Names | None,
    optimizer: Any,
) -> Subject:
    """What is to be explained of captured tensors, with the parameters of modules and further names.

    ``ran`` are by name the parameters that modules had only while they ran.

    Raises:
        CaptureError: ``optimizer`` is none, nor several.
    """
    held = None if optimizer is None else _held_by(optimizer)
    # Backward gives a gradient to the form that the forward ran with, and the optimizer has the other.
    whole = {id(form): forms[0] for forms in forms_of_sharded(modules.paths) for form in forms}
    owned = [entry for entry in modules.owned if entry.is_parameter]
    # What has no data cannot have run: offloading puts a tensor with data in its place for the call.
    lent = {name: ran[name] for entry in owned if entry.tensor.is_meta for name in entry.names if name in ran}
    whole.update((id(entry.tensor), lent[name]) for entry in owned for name in entry.names if name in lent)
    named = {name: whole.get(id(entry.tensor), entry.tensor) for entry in owned for name in entry.names}
    extra = dict(named_tensors(params))
    return Subject(
        flow,
        {**named, **extra},
        frozenset(named),
        captured,
        live,
        None if held is None else [whole.get(id(tensor), tensor) for tensor in held],
        frozenset(name for name in extra if f"parametrizations.{name}.original" in named),
        kept_aside(modules.paths),
        broken_ties(modules.paths),
        hooked_modules(modules.paths),
        frozenset(lent),
        modules.paths,
    )


def _held_by(optimizer: Any) -> list[torch.Tensor]:
    """Return the tensors that an optimizer has, or a list or tuple of several."""
    several = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not several:
        raise CaptureError("optimizer is an empty list: give the optimizers of the step, or leave it out")
    for each in several:
        if getattr(each, "param_groups", None) is None:
            raise CaptureError(f"optimizer is no optimizer of torch.optim but {type(each).__name__}")
    return [tensor for each in several for group in each.param_groups for tensor in group["params"]]
