"""Run what a SPEC named, recorded, and capture what comes out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from gradir.capture.pytorch.outputs import flatten_differentiable
from gradir.capture.pytorch.recorder import Recorder
from gradir.errors import CaptureError, GradirError, SpecError
from gradir.ir import Graph
from gradir.spec import own_error

__all__ = ["capture_target", "parse_input"]

_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>[a-z]\w*)\[(?P<shape>[\d,\s]*)\]")


def capture_target(target: object, inputs: Sequence[str], seed: int) -> Graph:
    """The graph of a tensor, a callable or a module.

    A callable returns a tensor, any nesting of tensors, or ``(model, outputs)``. A class or factory of modules is
    called without arguments first. A module runs on ``inputs``, each ``dtype[shape]`` or ``name=dtype[shape]``.

    Raises:
        SpecError: the target raises, or cannot be run on what was given.
        CaptureError: what comes out has no graph.
    """
    torch.manual_seed(seed)
    recorder = Recorder()
    result = target
    if callable(target) and not isinstance(target, nn.Module):
        with recorder:
            result = _run(target)
    if isinstance(result, nn.Module):
        return _capture_module(result, inputs)
    if inputs:
        raise SpecError("--input is for a module; the SPEC names a tensor or a callable that returns tensors")
    return _capture_values(recorder, result)


def parse_input(text: str) -> tuple[str | None, torch.Tensor]:
    """A tensor made from ``dtype[shape]``, with its keyword when given as ``name=dtype[shape]``.

    Floating-point and complex values are drawn from a normal distribution, all others are zero, which any embedding
    accepts.

    >>> name, tensor = parse_input("ids=int64[1,8]")
    >>> name, tensor.dtype, tuple(tensor.shape)
    ('ids', torch.int64, (1, 8))

    Raises:
        CaptureError: the text has no such form, or names no dtype of torch.
    """
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise CaptureError(
            f"--input {text!r}: expected dtype[sizes] or name=dtype[sizes], such as float32[1,3,224,224]"
        )
    dtype = getattr(torch, match["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise CaptureError(f"--input {text!r}: torch has no dtype {match['dtype']!r}")
    try:
        shape = [int(size) for size in match["shape"].split(",")] if match["shape"].strip() else []
    except ValueError as error:
        raise CaptureError(f"--input {text!r}: the sizes must be integers separated by commas") from error
    try:
        return match["name"], _make(shape, dtype)
    except (RuntimeError, MemoryError) as error:
        raise CaptureError(f"--input {text!r}: {own_error(error)}") from error


def _make(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32)
        return drawn.to(dtype)
    return torch.zeros(shape, dtype=dtype)


def _capture_values(recorder: Recorder, values: object) -> Graph:
    if isinstance(values, (tuple, list)) and len(values) == 2 and isinstance(values[0], nn.Module):
        model, outputs = values
        return recorder.capture(outputs, model=model)
    return recorder.capture(values)


def _capture_module(module: nn.Module, inputs: Sequence[str]) -> Graph:
    if not inputs:
        raise SpecError(f"{type(module).__name__} is a module: say what to run it on, such as --input 'float32[1,3]'")
    positional: list[torch.Tensor] = []
    named: dict[str, torch.Tensor] = {}
    for text in inputs:
        name, tensor = parse_input(text)
        if name is None:
            positional.append(tensor)
        else:
            named[name] = tensor
    with Recorder(module) as recorder:
        result = _run(module, *positional, **named)
    return recorder.assemble(flatten_differentiable(result)).graph


def _run(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    except GradirError:
        raise
    except (Exception, SystemExit) as error:
        name = getattr(call, "__qualname__", None) or type(call).__name__
        raise SpecError(f"{name} raised {own_error(error)}") from error
