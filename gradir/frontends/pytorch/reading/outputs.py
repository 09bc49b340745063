"""What the user asked to capture: the tensors with a graph in any outputs."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge

from gradir.errors import CaptureError, warn
from gradir.frontends.pytorch.private import base_of, output_nr_of
from gradir.frontends.pytorch.reading.leaves import Leaf, leaves_of

__all__ = ["Captured", "flatten", "flatten_quietly", "why_no_graph"]

_NAMED: Final = 5
"""So many outputs without a graph are named."""

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
    """Return the tensors with a graph in some outputs, in order, and the bases of those that are views.

    A warning names what is beside them.

    Raises:
        CaptureError: no tensor has a graph, or the outputs are nested too deeply.
    """
    leaves = leaves_of(outputs)
    captured = _captured(leaves)
    rest = [leaf for leaf in leaves if not _has_graph(leaf)]
    if rest:
        more = f" and {len(rest) - _NAMED} more" if len(rest) > _NAMED else ""
        warn(f"left out, since there is no graph behind it: {', '.join(map(_described, rest[:_NAMED]))}{more}")
    return captured


def flatten_quietly(outputs: object) -> list[Captured]:
    """Return what `flatten` returns, without a warning.

    Raises:
        CaptureError: as for `flatten`.
    """
    return _captured(leaves_of(outputs))


def _captured(leaves: list[Leaf]) -> list[Captured]:
    found = [(leaf.path, leaf.value) for leaf in leaves if _has_graph(leaf)]
    if not found:
        raise _no_graph(leaves)
    return _with_bases(found)


def _no_graph(leaves: list[Leaf]) -> CaptureError:
    # A tensor is what was meant, whatever stands before it.
    for leaf in leaves:
        if isinstance(leaf.value, torch.Tensor):
            return CaptureError(f"{_called(leaf)} has no graph: {why_no_graph(leaf.value)}; {_ADVICE}")
    if not leaves:
        return CaptureError("there is nothing to capture: no tensor among the outputs")
    return CaptureError(f"{_called(leaves[0])} is not a tensor but {type(leaves[0].value).__name__}")


def _described(leaf: Leaf) -> str:
    return f"{_called(leaf)} ({'a tensor' if isinstance(leaf.value, torch.Tensor) else type(leaf.value).__name__})"


def _has_graph(leaf: Leaf) -> bool:
    return isinstance(leaf.value, torch.Tensor) and leaf.value.requires_grad


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


def _called(leaf: Leaf) -> str:
    return f"output {leaf.path!r}" if leaf.steps else "the output"
