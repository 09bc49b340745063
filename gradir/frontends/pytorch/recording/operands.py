"""What the tensors of a collective are: parameters, their gradients, or what a node of the graph made."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from traceback import walk_stack
from types import FrameType
from typing import Any

import torch

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.distributed import forms_of_sharded
from gradir.frontends.pytorch.reading.tensors import Modules, storage_of
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.steps import INPLACE, named, signature_of
from gradir.frontends.pytorch.recording.unsent import sharded_around

Operand = torch.Tensor | weakref.ref[torch.Tensor] | int
"""A parameter, a tensor that may be a gradient, or the sequence number of the node that made a tensor."""


class Operands:
    """Finds the operands of what one thread exchanges."""

    def __init__(self) -> None:
        # By storage, the parameters whose gradients were written there.
        self._written: defaultdict[int | None, dict[int, torch.Tensor]] = defaultdict(dict)

    def note_write(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note where an operation puts a gradient that the engine accumulates, such as into a bucket."""
        signature = signature_of(func)
        if INPLACE not in signature.kinds.values() or (parameter := _accumulating(private.running_node())) is None:
            return
        size = parameter.numel()
        given = [
            (name, value)
            for name, value in named(signature.names, args, kwargs)
            if isinstance(value, torch.Tensor) and value.numel() == size
        ]
        # What is filled with zeros is the place of a gradient that does not come.
        for name, value in given if len(given) > 1 else ():
            if signature.kinds.get(name) == INPLACE:
                self._written[storage_of(value)][id(parameter)] = parameter

    def of(
        self, given: Sequence[torch.Tensor], node: GradFn | None, frame: FrameType, phase: str
    ) -> tuple[Operand, ...]:
        """The operands of a collective that is given these tensors."""
        if sharded := sharded_around(frame):
            return tuple([getattr(each, private.FSDP_FORMS[-1]) for each in sharded])
        if phase == "forward":
            inside = _running_function(frame)
            return tuple([_made(tensor, inside) for tensor in given])
        found = {key: each for tensor in given for key, each in self._written.pop(storage_of(tensor), {}).items()}
        # A bucket that lacks a gradient may have another one on another rank.
        is_whole = sum(each.numel() for each in found.values()) == sum(tensor.numel() for tensor in given)
        if found or (parameter := _accumulating(node)) is None:
            return tuple(found.values()) if is_whole else ()
        is_own = parameter.grad is not None and {*map(storage_of, given)} == {storage_of(parameter.grad)}
        return (parameter,) if is_own else ()


class OperandNames:
    """The ids that operands have in the graph that was captured."""

    def __init__(self, modules: Modules | None = None, ids: Mapping[GradFn, str] | None = None) -> None:
        self._made = {
            private.sequence_number(fn): name
            for fn, name in (ids or {}).items()
            if type(fn).__name__ != private.ACCUMULATOR
        }
        self._owned = {} if modules is None else {id(each.tensor): each.names[0] for each in modules.owned}
        for forms in forms_of_sharded(() if modules is None else modules.paths):
            name = next((self._owned[id(form)] for form in forms if id(form) in self._owned), "")
            self._owned.update((id(form), name) for form in forms)
        self._tensors = [] if modules is None else [each.tensor for each in modules.owned]

    def __call__(self, operand: Operand) -> str:
        """The id of an operand; empty where it is not known."""
        if isinstance(operand, int):
            return self._made.get(operand, "")
        tensor = operand() if isinstance(operand, weakref.ref) else operand
        if tensor is None or isinstance(operand, torch.Tensor):
            return self._owned.get(id(tensor), "")
        owner = next((each for each in self._tensors if each.grad is tensor), tensor)
        return self._owned.get(id(owner), "")


def _made(tensor: torch.Tensor, inside: int | None) -> Operand:
    if tensor.grad_fn is not None:
        return private.sequence_number(tensor.grad_fn)
    return weakref.ref(tensor) if inside is None else inside


def _running_function(frame: FrameType) -> int | None:
    """The sequence number of the custom Function whose forward runs: it is the last that was given away."""
    is_inside = any(private.runs_a_function(outer.f_code) for outer, _ in walk_stack(frame))
    return private.next_sequence_number() - 1 if is_inside else None


def _accumulating(node: GradFn | None) -> torch.Tensor | None:
    return getattr(node, "variable", None) if type(node).__name__ == private.ACCUMULATOR else None
