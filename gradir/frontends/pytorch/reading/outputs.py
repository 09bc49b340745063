"""What the user asked to capture: tensors in any nesting."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge

from gradir.errors import CaptureError
from gradir.frontends.pytorch.private import base_of, flattened_with_paths, output_nr_of
from gradir.frontends.texts import text_of

__all__ = ["Captured", "flatten", "flatten_differentiable", "why_no_graph", "without_graph"]

_ADVICE: Final = "'gradir explain' finds the line, and --graph forward captures the forward all the same"


class Captured(NamedTuple):
    """A tensor to show: an output, or the base that an output is a view of.

    ``path`` is the output's place in what was captured, empty for a lone tensor. ``producer`` is the grad_fn and the
    number of its output, and ``base`` the place of the view's base in the list of captured tensors.
    """

    role: str
    path: str
    tensor: torch.Tensor
    producer: tuple[Any, int] | None
    base: int | None = None


def flatten(outputs: object) -> list[Captured]:
    """Every tensor of a nesting, in order, and the bases of those that are views.

    Raises:
        CaptureError: there is no tensor, something else is among them, or a tensor has no graph.
    """
    found = []
    for path, leaf in _leaves(outputs):
        if not _has_graph(leaf):
            raise _no_graph(path, leaf)
        found.append((path, leaf))
    if not found:
        raise _nothing()
    return _with_bases(found)


def flatten_differentiable(outputs: object) -> list[Captured]:
    """The tensors of a nesting that have a graph, whatever else is beside them.

    Raises:
        CaptureError: no tensor has a graph.
    """
    leaves = _leaves(outputs)
    found = [(path, leaf) for path, leaf in leaves if _has_graph(leaf)]
    if not found:
        # A tensor is what was meant, whatever stands before it.
        tensors = [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
        raise _no_graph(*(tensors or leaves)[0]) if leaves else _nothing()
    return _with_bases(found)


def without_graph(outputs: object) -> list[str]:
    """What `flatten_differentiable` leaves out, in words."""
    return [
        f"{_called(path)} ({'a tensor' if isinstance(leaf, torch.Tensor) else type(leaf).__name__})"
        for path, leaf in _leaves(outputs)
        if not _has_graph(leaf)
    ]


def _nothing() -> CaptureError:
    return CaptureError("there is nothing to capture: no tensor among the outputs")


def _no_graph(path: str, leaf: object) -> CaptureError:
    if not isinstance(leaf, torch.Tensor):
        return CaptureError(f"{_called(path)} is not a tensor but {type(leaf).__name__}")
    return CaptureError(f"{_called(path)} has no graph: {why_no_graph(leaf)}; {_ADVICE}")


def _has_graph(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _with_bases(tensors: list[tuple[str, torch.Tensor]]) -> list[Captured]:
    # A view's grad_fn may be made again when it is read, so each tensor's is read once.
    captured = [Captured("output", path, tensor, _producer(tensor)) for path, tensor in tensors]
    places = {id(tensor): index for index, (_, tensor) in enumerate(tensors)}
    for index, (path, tensor) in enumerate(tensors):
        base = base_of(tensor)
        if base is None:
            continue
        place = places.setdefault(id(base), len(captured))
        if place == len(captured):
            captured.append(Captured("view_base", path, base, _producer(base)))
        captured[index] = captured[index]._replace(base=place)
    return captured


def _producer(tensor: torch.Tensor) -> tuple[Any, int] | None:
    if not tensor.requires_grad:
        return None
    return get_gradient_edge(tensor).node, output_nr_of(tensor)


def why_no_graph(tensor: torch.Tensor) -> str:
    """The reason why backward cannot start at a tensor."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return (
            f"its dtype {dtype} carries no gradient (samples, indices and comparisons never do); "
            "capture a floating-point tensor such as a log-probability instead"
        )
    if tensor.is_inference():
        return "it was made under torch.inference_mode()"
    if not torch.is_grad_enabled():
        return "gradients are disabled here (torch.no_grad or set_grad_enabled(False))"
    return "nothing it was computed from requires grad, or it was detached or made under torch.no_grad()"


def _leaves(outputs: object) -> list[tuple[str, Any]]:
    try:
        leaves, _ = flattened_with_paths(outputs)
    except RecursionError as error:
        raise CaptureError("the outputs are nested too deeply") from error
    return [(".".join(_step(key) for key in path), leaf) for path, leaf in leaves]


def _step(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return text_of(getattr(key, attribute))
    return text_of(key)


def _called(path: str) -> str:
    return f"output {path!r}" if path else "the output"
