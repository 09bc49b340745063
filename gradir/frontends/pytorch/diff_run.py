"""Run a program with the weights and inputs of another one, and compare what both compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from gradir.errors import CaptureError
from gradir.frontends.pytorch.reading.outputs import flatten
from gradir.frontends.pytorch.reading.tensors import ones_for
from gradir.frontends.pytorch.target import run_recorded
from gradir.protocols import Alike, Distance
from gradir.request import CaptureRequest


class _Given(NamedTuple):
    """The weights and inputs of the other program, ``pairs`` of parameters, and ``names`` of this one's."""

    weights: Mapping[str, torch.Tensor]
    inputs: Sequence[Sequence[torch.Tensor]]
    pairs: Mapping[str, str]
    names: Mapping[tuple[int, str], str]


_NOTHING: Final = _Given({}, (), {}, {})


class _Calls:
    """The modules that are called from outside any other, each with its parameters before its first call."""

    def __init__(self, seed: int, given: _Given) -> None:
        self._seed, self._given = seed, given
        self._depth = 0
        self._seen: list[nn.Module] = []
        # By the number of the module in the order of calls, and the name in the module.
        self.parameters: dict[tuple[int, str], torch.Tensor] = {}
        self.weights: dict[tuple[int, str], torch.Tensor] = {}
        self.inputs: list[list[torch.Tensor]] = []
        self.set: set[tuple[int, str]] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the calls inside, and set what is given."""
        with ExitStack() as hooks:
            hooks.callback(module_hooks.register_module_forward_pre_hook(self._enter).remove)
            hooks.callback(module_hooks.register_module_forward_hook(self._leave, always_call=True).remove)
            yield

    def _enter(self, module: nn.Module, inputs: Any) -> Any:
        self._depth += 1
        if self._depth > 1 or any(each is module for each in self._seen):
            return None
        number, given = len(self._seen), self._given
        self._seen.append(module)
        # How many numbers the initialization drew is no difference.
        torch.manual_seed(self._seed)
        for name, parameter in module.named_parameters():
            key = number, name
            own = given.names.get(key, "")
            weight = given.weights.get(given.pairs.get(own, own)) if own else None
            if weight is not None and weight.shape == parameter.shape:
                # torch refuses to write to a leaf that requires a gradient.
                parameter.detach().copy_(weight)
                self.set.add(key)
            self.parameters[key], self.weights[key] = parameter, parameter.detach().clone()
        known = iter(given.inputs[number] if number < len(given.inputs) else ())
        taken = tuple(_given_for(value, known) for value in inputs)
        self.inputs.append([value.detach().clone() for value in taken if isinstance(value, torch.Tensor)])
        return taken

    def _leave(self, module: nn.Module, inputs: object, result: object) -> None:  # noqa: ARG002 (torch's signature)
        self._depth -= 1


class _Run(NamedTuple):
    weights: dict[str, torch.Tensor]
    inputs: list[list[torch.Tensor]]
    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]
    names: dict[tuple[int, str], str]
    set: set[str]


def run_alike(request: CaptureRequest, path: str, pairs: Mapping[str, str] | None = None) -> Alike | None:
    """Run a program and save its values to a file, or with ``pairs`` run it with the values in that file."""
    first = _run(request, _NOTHING)
    if pairs is None:
        torch.save({key: getattr(first, key) for key in ("weights", "inputs", "outputs", "gradients")}, path)
        return None
    other = torch.load(path, weights_only=True)
    # The first run has told what the parameters are called, of which a module knows nothing while it runs.
    run = _run(request, _Given(other["weights"], other["inputs"], pairs, first.names))
    taken = {pairs.get(name, name) for name in run.set}
    had = {name for name in run.set if pairs.get(name, name) in other["gradients"]}
    befores = {name: other["gradients"][pairs.get(name, name)] for name in run.gradients if name in had}
    distances = {name: _distance(before, run.gradients[name]) for name, before in befores.items()}
    return Alike(
        len(run.set),
        tuple(sorted(other["weights"].keys() - taken)),
        tuple(sorted(run.weights.keys() - run.set)),
        tuple(_distance(before, after) for before, after in zip_longest(other["outputs"], run.outputs)),
        {name: distance for name, distance in distances.items() if distance is not None},
        tuple(sorted(had - run.gradients.keys())),
        tuple(sorted((run.gradients.keys() & run.set) - had)),
    )


def _run(request: CaptureRequest, given: _Given) -> _Run:
    calls = _Calls(request.seed or 0, given)
    with calls.noted():
        found = run_recorded(request)
    tensors = [entry.tensor for entry in flatten(found.outputs) if entry.role == "output"]
    owned = {id(each.tensor): each.names[0] for each in found.recorder.modules(found.model).owned if each.names}
    names = {key: owned[id(tensor)] for key, tensor in calls.parameters.items() if id(tensor) in owned}
    learning = {names[key]: tensor for key, tensor in calls.parameters.items() if key in names and tensor.requires_grad}
    if not tensors:
        raise CaptureError("nothing that it returns has a gradient")
    gradients: Any = torch.autograd.grad(tensors, [*learning.values()], list(map(ones_for, tensors)), allow_unused=True)
    return _Run(
        {names[key]: weight for key, weight in calls.weights.items() if key in names},
        calls.inputs,
        [tensor.detach() for tensor in tensors],
        {name: gradient for name, gradient in zip(learning, gradients, strict=True) if gradient is not None},
        names,
        {names[key] for key in calls.set},
    )


def _given_for(value: Any, known: Iterator[torch.Tensor]) -> Any:
    """Return the input of the other program in the place of one of the same sizes and kind."""
    if not isinstance(value, torch.Tensor):
        return value
    other = next(known, None)
    if other is None or other.shape != value.shape or other.dtype != value.dtype:
        return value
    return other.to(value.device).requires_grad_(value.requires_grad)


def _distance(a: torch.Tensor | None, b: torch.Tensor | None) -> Distance | None:
    """Return the largest difference, and its share of the largest number of the first, of tensors of equal sizes."""
    if a is None or b is None or a.shape != b.shape:
        return None
    if not a.numel():
        return Distance(0.0, 0.0)
    a, b = (each.to_dense().to(torch.complex128 if each.is_complex() else torch.float64) for each in (a, b))
    apart = (a - b).abs()
    # What is NaN or the same infinity in both is equal.
    apart[(a == b) | (a.isnan() & b.isnan())] = 0
    largest = float(apart.max())
    scale = float(a.abs().nan_to_num(posinf=0.0).max())
    return Distance(largest, largest / scale if scale and largest else largest)
