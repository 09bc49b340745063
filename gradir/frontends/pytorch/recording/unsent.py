"""Collectives that send nothing: each returns at once what has the right shape, so that no process waits for another.

What is computed of it means nothing, as if all others had sent what this process sends. It tells all the same which
collectives follow, and of which sizes, unless a program looks at the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from gradir.frontends.pytorch import private

__all__ = ["unsent"]

_PAIR: Final = 2


def unsent(func: Any, arguments: Mapping[str, Any], group: Any) -> Any:
    """What a collective returns that was not sent; the tensors that it was to fill are there to be read."""
    schema = private.schema_of(func)
    namespace, _, name = schema.name.partition("::")
    if namespace == "c10d":
        return _finished(len(schema.returns), arguments)
    if "out" in arguments:
        return arguments["out"]
    given = next(arguments[key] for key in ("input", "inputs", "tensor", "tensors") if key in arguments)
    if name.endswith("_") or not isinstance(given, (torch.Tensor, list)):
        return given
    size = group.size()
    if isinstance(given, list):
        return [_shaped(name, tensor, arguments, size) for tensor in given]
    return _shaped(name, given, arguments, size)


def _shaped(name: str, tensor: torch.Tensor, arguments: Mapping[str, Any], size: int) -> torch.Tensor:
    """What a functional collective makes of a tensor."""
    first, *rest = tensor.shape or (1,)
    if name.startswith("all_gather"):
        return tensor.new_zeros((first * size, *rest))
    if name.startswith("reduce_scatter"):
        return tensor.new_zeros((first // size, *rest))
    if name == "all_to_all_single":
        received: Sequence[int] = arguments["output_split_sizes"]
        return tensor.new_zeros((sum(received), *rest))
    if name == "shard_dim_alltoall":
        shape = list(tensor.shape)
        shape[arguments["gather_dim"]] *= size
        shape[arguments["shard_dim"]] //= size
        return tensor.new_zeros(shape)
    return tensor.clone()


def _finished(returns: int, arguments: Mapping[str, Any]) -> Any:
    """What an operation of torch.distributed returns: a work that is done, behind the tensors that it filled."""
    if not returns:
        return None
    first = next(iter(arguments.values()))
    with torch.no_grad():
        _repeat(first, arguments)
    done: Any = torch.futures.Future()
    done.set_result(first if isinstance(first, list) else [first])
    work = private.finished_work(done).boxed()
    return (first, work) if returns == _PAIR else work


def _repeat(filled: Any, arguments: Mapping[str, Any]) -> None:
    """Gather from this process alone, so that what is read of it are values and no chance."""
    sent = arguments.get("input_tensor")
    if isinstance(filled, torch.Tensor) and isinstance(sent, torch.Tensor) and sent.numel():
        times, rest = divmod(filled.numel(), sent.numel())
        if not rest and filled.is_contiguous():
            filled.view(times, -1).copy_(sent.reshape(1, -1).expand(times, -1))
        return
    inputs = arguments.get("input_tensors")
    if isinstance(filled, list) and isinstance(inputs, list):
        for outputs, tensor in zip(filled, inputs, strict=False):
            for output in outputs if isinstance(outputs, list) and isinstance(tensor, torch.Tensor) else ():
                if output.shape == tensor.shape:
                    output.copy_(tensor)
