"""Run a program with the weights and inputs of another one, and compare the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import nn

from gradir.errors import CaptureError
from gradir.frontends.pytorch.reading.members import iter_named_parameters
from gradir.frontends.pytorch.reading.outputs import flatten
from gradir.frontends.pytorch.reading.tensors import ones_for
from gradir.frontends.pytorch.recording.removable_modes import add_hooks
from gradir.frontends.pytorch.target import run_recorded
from gradir.protocols import Alike, Distance
from gradir.request import CaptureRequest


class _Other(NamedTuple):
    """The other program's weights and inputs, its name of each parameter (``pairs``), and this program's ``names``."""

    weights: Mapping[str, torch.Tensor]
    inputs: Sequence[Sequence[torch.Tensor]]
    pairs: Mapping[str, str]
    names: Mapping[tuple[int, str], str]


class _Calls:
    """The outermost module calls of a run, with the parameters of each module before its first call."""

    def __init__(self, seed: int, other: _Other) -> None:
        self._seed, self._other = seed, other
        self._depth = 0
        self._seen: list[nn.Module] = []
        # By the position of the module in the order of calls, and the name in the module.
        self.parameters: dict[tuple[int, str], torch.Tensor] = {}
        self.weights: dict[tuple[int, str], torch.Tensor] = {}
        self.inputs: list[list[torch.Tensor]] = []
        self.set: set[tuple[int, str]] = set()

    def enter(self, module: nn.Module, inputs: Any) -> Any:
        """Record a call that begins, and set the weights and inputs of the other program."""
        self._depth += 1
        if self._depth > 1 or any(each is module for each in self._seen):
            return None
        number, other = len(self._seen), self._other
        self._seen.append(module)
        # The initializations may have drawn different counts of random numbers.
        torch.manual_seed(self._seed)
        for name, parameter in iter_named_parameters(module):
            key = number, name
            own = other.names.get(key, "")
            weight = other.weights.get(other.pairs.get(own, own)) if own else None
            if weight is not None and weight.shape == parameter.shape:
                # torch refuses to write to a leaf that requires a gradient.
                parameter.detach().copy_(weight)
                self.set.add(key)
            self.parameters[key], self.weights[key] = parameter, parameter.detach().clone()
        values = iter(other.inputs[number] if number < len(other.inputs) else ())
        replaced = tuple(_replace_input(value, values) for value in inputs)
        self.inputs.append([value.detach().clone() for value in replaced if isinstance(value, torch.Tensor)])
        return replaced

    def leave(self, module: nn.Module, inputs: object, result: object) -> None:  # noqa: ARG002 (torch's signature)
        """Record the end of a call."""
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
    first = _run(request, _Other({}, (), {}, {}))
    if pairs is None:
        torch.save({key: getattr(first, key) for key in ("weights", "inputs", "outputs", "gradients")}, path)
        return None
    other = torch.load(path, weights_only=True)
    # A running module does not know the full names of its parameters, so the first run finds them.
    run = _run(request, _Other(other["weights"], other["inputs"], pairs, first.names))
    used = {pairs.get(name, name) for name in run.set}
    befores = {name: other["gradients"].get(pairs.get(name, name)) for name in run.set}
    learned = {name for name, before in befores.items() if before is not None}
    distances = {name: _measure_distance(befores.get(name), after) for name, after in run.gradients.items()}
    return Alike(
        len(run.set),
        tuple(sorted(other["weights"].keys() - used)),
        tuple(sorted(run.weights.keys() - run.set)),
        tuple(_measure_distance(before, after) for before, after in zip_longest(other["outputs"], run.outputs)),
        {name: distance for name, distance in distances.items() if distance is not None},
        tuple(sorted(learned - run.gradients.keys())),
        tuple(sorted((run.gradients.keys() & run.set) - learned)),
    )


def _run(request: CaptureRequest, other: _Other) -> _Run:
    calls = _Calls(request.seed or 0, other)
    with ExitStack() as hooks:
        add_hooks(hooks, calls.enter, calls.leave)
        ran = run_recorded(request)
    tensors = [entry.tensor for entry in flatten(ran.outputs) if entry.role == "output"]
    owned = {id(each.tensor): each.names[0] for each in ran.recorder.modules(ran.model).owned if each.names}
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


def _replace_input(value: Any, others: Iterator[torch.Tensor]) -> Any:
    """Return the other program's next input instead of a tensor, if shape and dtype are the same."""
    if not isinstance(value, torch.Tensor):
        return value
    other = next(others, None)
    if other is None or other.shape != value.shape or other.dtype != value.dtype:
        return value
    return other.to(value.device).requires_grad_(value.requires_grad)


def _measure_distance(a: torch.Tensor | None, b: torch.Tensor | None) -> Distance | None:
    """Return the largest difference of two tensors, absolute and relative to the largest value of the first."""
    if a is None or b is None or a.shape != b.shape:
        return None
    if not a.numel():
        return Distance(0.0, 0.0)
    a, b = (each.to_dense().to(torch.complex128 if each.is_complex() else torch.float64) for each in (a, b))
    difference = (a - b).abs()
    # NaN, or the same infinity, in both counts as equal.
    difference[(a == b) | (a.isnan() & b.isnan())] = 0
    largest = float(difference.max())
    scale = float(a.abs().nan_to_num(posinf=0.0).max())
    return Distance(largest, largest / scale if scale and largest else largest)
