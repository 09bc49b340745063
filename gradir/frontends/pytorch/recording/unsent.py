"""What a process receives from collectives that are not sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import zip_longest
from traceback import walk_stack
from types import FrameType
from typing import Any, Final

import torch
from torch import distributed

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.distributed import sharding_groups
from gradir.frontends.pytorch.reading.members import modules_in
from gradir.frontends.pytorch.recording.timelines import Frame, calls_from

_MOST_WHOLE: Final = 2**30
"""So many bytes of parameters are gathered at most, so that a dry forward has their values."""

_PATIENCE: Final = timedelta(seconds=60)


def unsent(func: Any, arguments: Mapping[str, Any], group: Any) -> Any:
    """What a collective returns that was not sent, as if each process had sent what this one sends."""
    schema = private.schema_of(func)
    namespace, _, name = schema.name.partition("::")
    if namespace == "c10d":
        return _finished(name, len(schema.returns), arguments)
    given = next(arguments[key] for key in ("input", "inputs", "tensor", "tensors") if key in arguments)
    if "out" in arguments:
        return _fill(arguments["out"], given)
    if name.endswith("_") or not isinstance(given, (torch.Tensor, list)):
        return given
    size = group.size()
    if isinstance(given, list):
        return [_shaped(name, tensor, arguments, size) for tensor in given]
    return _shaped(name, given, arguments, size)


def _shaped(name: str, tensor: torch.Tensor, arguments: Mapping[str, Any], size: int) -> torch.Tensor:
    shape = list(tensor.shape or (1,))
    if name.startswith("all_gather"):
        shape[0] *= size
    elif name.startswith("reduce_scatter"):
        shape[0] //= size
    elif name == "all_to_all_single":
        shape[0] = sum(arguments["output_split_sizes"])
    elif name == "shard_dim_alltoall":
        shape[arguments["gather_dim"]] *= size
        shape[arguments["shard_dim"]] //= size
    else:
        return tensor.clone()
    return _fill(tensor.new_empty(shape), tensor)


def _finished(name: str, returns: int, arguments: Mapping[str, Any]) -> Any:
    """What an operation of torch.distributed returns: a work that is done, behind the tensors that it filled."""
    if not returns:
        return None
    first = next(iter(arguments.values()))
    sent = next((arguments[key] for key in ("input_tensor", "input", "input_tensors") if key in arguments), None)
    if sent is not None or name.startswith("recv"):
        with torch.no_grad():
            for filled, source in _pairs(first, sent):
                _fill(filled, source)
    done: Any = torch.futures.Future()
    done.set_result(first if isinstance(first, list) else [first])
    work = private.finished_work(done).boxed()
    return (first, work) if returns == 2 else work


def _pairs(filled: Any, sent: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
    if isinstance(filled, torch.Tensor):
        yield filled, sent
        return
    for outputs, source in zip_longest(filled, sent or ()):
        one = next(iter(source), None) if isinstance(source, list) else source
        for output in outputs if isinstance(outputs, list) else (outputs,):
            if isinstance(output, torch.Tensor):
                yield output, one


def _fill(output: torch.Tensor, source: torch.Tensor | None) -> torch.Tensor:
    """Fill with what this process sends, so that what is read of it are values and no chance."""
    if source is None or not source.numel():
        return output.zero_()
    times = -(-output.numel() // source.numel())
    return output.copy_(source.reshape(-1).repeat(times)[: output.numel()].view(output.shape))


class Parts:
    """The parts of parameters under `fully_shard` of all processes, so that a dry forward runs with true weights."""

    def __init__(self) -> None:
        self._whole: dict[int, torch.Tensor] = {}
        self._asked: set[int] = set()

    def fill(self, arguments: Mapping[str, Any], frame: FrameType, call: Frame | None) -> None:
        """Fill what a gathering of parameters that was not sent is to fill; the first one really gathers all."""
        parameters = sharded_around(frame)
        output, sent = arguments.get("output_tensor"), arguments.get("input_tensor")
        if not parameters or output is None or sent is None or output.numel() <= sent.numel():
            return
        model = next(reversed([*calls_from(call)])).module if call is not None else None
        if model is not None and id(model) not in self._asked:
            self._asked.add(id(model))
            self._gather([*sharding_groups(modules_in(model))])
        whole = self._whole.get(id(parameters[0]))
        if whole is not None and whole.numel() == output.numel() and output.is_floating_point():
            output.copy_(whole)

    def _gather(self, groups: Sequence[Any]) -> None:
        # torch 2.5 has other names, and a process that is gone sends nothing.
        with suppress(AttributeError, RuntimeError), torch.no_grad():
            every = [getattr(each, private.FSDP_PARAMETERS) for each in groups]
            parts = [[getattr(each, private.FSDP_PART) for each in parameters] for parameters in every]
            size = sum(part.nbytes for several in parts for part in several) * distributed.get_world_size()
            if size > _MOST_WHOLE:
                return
            for one, parameters, several in zip(groups, every, parts, strict=True):
                group, flat = getattr(one, private.FSDP_GATHERING), torch.cat(several)
                whole = flat.new_empty(flat.numel() * group.size())
                distributed.all_gather([*whole.chunk(group.size())], flat, group=group, async_op=True).wait(_PATIENCE)
                self._whole[id(parameters[0])] = whole


def sharded_around(frame: FrameType) -> Sequence[Any]:
    """What `fully_shard` has for each parameter that is gathered or reduced by what runs a frame."""
    inside = (each for each, _ in walk_stack(frame) if str(each.f_globals.get("__name__")).startswith(private.FSDP))
    return next(filter(None, (each.f_locals.get(private.FSDP_PARAMETERS) for each in inside)), ())
