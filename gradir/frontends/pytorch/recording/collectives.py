"""Find the operands of a collective in the graph, and imitate the result of a collective that is not sent."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain, zip_longest
from types import FrameType
from typing import Any, Final

import torch
from torch import distributed

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.distributed import forms_of_sharded, sharding_groups
from gradir.frontends.pytorch.reading.members import modules_in
from gradir.frontends.pytorch.reading.tensors import Modules, Owned, storage_of, unwrap_tensor
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.steps import INPLACE, name_arguments, signature_of
from gradir.frontends.pytorch.recording.timelines import Frame, calls_from
from gradir.frontends.walks import frames_from, frames_of

# A parameter, a reference to a tensor that may be a gradient, or the sequence number of the node that made a tensor.
Operand = torch.Tensor | weakref.ref[torch.Tensor] | int
# The most bytes of parameters that a dry forward gathers to run with their values.
_MOST_WHOLE: Final = 2**30
# Without this limit, gathering would wait forever for a process that has ended.
_PATIENCE: Final = timedelta(seconds=60)


class _Gradients:
    """The parameters whose gradients a storage contains, and the number of their elements."""

    def __init__(self) -> None:
        self.parameters: dict[int, torch.Tensor] = {}
        self.elements = 0

    def add(self, parameter: torch.Tensor) -> None:
        if id(parameter) not in self.parameters:
            self.parameters[id(parameter)] = parameter
            self.elements += parameter.numel()


class Operands:
    """Finds the operands of the collectives of one thread."""

    def __init__(self) -> None:
        self._written: defaultdict[int | None, _Gradients] = defaultdict(_Gradients)
        # Whether this contains the gradients that the last backward left.
        self._is_seeded = False

    def record_write(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record that an operation copies a gradient that the engine accumulates, for instance into a bucket."""
        self._is_seeded = False
        signature = signature_of(func)
        if INPLACE not in signature.kinds.values() or (parameter := _leaf_of(private.running_node())) is None:
            return
        tensors = [each for each in name_arguments(signature.names, args, kwargs) if isinstance(each[1], torch.Tensor)]
        same_size = [(name, value) for name, value in tensors if value.numel() == parameter.numel()]
        # A single tensor of this size is filled with zeros, in place of a gradient that is missing.
        for name, value in same_size if len(same_size) > 1 else ():
            if signature.kinds.get(name) == INPLACE:
                self._add(value, [parameter])

    def record_copy(self, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor], owned: Iterable[Owned]) -> None:
        """Record that an operation after the backward copies whole gradients, for instance into one flat tensor."""
        if not self._is_seeded:
            self._is_seeded = True
            for each in owned:
                if each.tensor.grad is not None:
                    self._add(each.tensor.grad, [each.tensor])
        storages = [*map(storage_of, given)]
        for tensor in made:
            own = storage_of(tensor)
            sources = (each for each, storage in zip(given, storages, strict=True) if storage != own)
            found = [*chain.from_iterable(map(self._find_whole, sources))]
            if own not in storages:
                # A storage that was freed may have had the same identity.
                self._written.pop(own, None)
            if sum(each.numel() for each in found) == tensor.numel():
                self._add(tensor, found)

    def _add(self, tensor: torch.Tensor, parameters: Iterable[torch.Tensor]) -> None:
        storage = storage_of(tensor)
        for each in parameters if storage is not None else ():
            self._written[storage].add(each)

    def _find_whole(self, tensor: torch.Tensor) -> Iterable[torch.Tensor]:
        found = self._written.get(storage_of(tensor))
        return found.parameters.values() if found is not None and found.elements == tensor.numel() else ()

    def find(self, inputs: Sequence[torch.Tensor], node: GradFn | None, frame: FrameType, phase: str) -> list[Operand]:
        """Return the operands of a collective with these input tensors."""
        if parameters := _find_sharded(frame):
            return [getattr(each, private.FSDP_FORMS[-1]) for each in parameters]
        if phase == "forward":
            is_inside = any(private.is_function_call(outer.f_code) for outer in frames_from(frame))

            def find_operands(tensor: torch.Tensor) -> Iterable[Operand]:
                if tensor.grad_fn is not None:
                    return [private.sequence_number(tensor.grad_fn)]
                if is_inside:
                    # A custom Function whose forward runs has the last number that was assigned.
                    return [private.next_sequence_number() - 1]
                return self._find_whole(tensor) or [weakref.ref(_whole(tensor))]

            return [*chain.from_iterable(map(find_operands, inputs))]
        found = [self._written.pop(each) for each in {*map(storage_of, inputs)} if each in self._written]
        # If a bucket lacks a gradient, its other gradients may differ between ranks.
        is_whole = sum(each.elements for each in found) == sum(tensor.numel() for tensor in inputs)
        if found or (parameter := _leaf_of(node)) is None:
            return [*chain.from_iterable(each.parameters.values() for each in found)] if is_whole else []
        is_own = parameter.grad is not None and {*map(storage_of, inputs)} == {storage_of(parameter.grad)}
        return [parameter] if is_own else []


class OperandNames:
    """The ids of operands in the captured graph."""

    def __init__(self, modules: Modules, ids: Mapping[GradFn, str]) -> None:
        made = ((fn, name) for fn, name in ids.items() if type(fn).__name__ != private.ACCUMULATOR)
        self._made = {private.sequence_number(fn): name for fn, name in made}
        self._owned = {id(each.tensor): each.names[0] for each in modules.owned}
        for forms in forms_of_sharded(modules.paths):
            name = next((self._owned[id(form)] for form in forms if id(form) in self._owned), "")
            self._owned.update((id(form), name) for form in forms)
        self._modules = modules
        self._by_gradient: dict[int, torch.Tensor] = {}
        # Parameters that are operands themselves, as when averaged: they may differ between ranks until then.
        self.exchanged: set[str] = set()

    def find_gradients(self) -> None:
        """Read which parameters have a gradient now."""
        owned = (each.tensor for each in self._modules.owned)
        self._by_gradient = {id(unwrap_tensor(each.grad)): each for each in owned if each.grad is not None}

    def __call__(self, operand: Operand) -> str:
        """Return the id of an operand, or an empty string if it is unknown."""
        if isinstance(operand, int):
            return self._made.get(operand, "")
        tensor = operand() if isinstance(operand, weakref.ref) else operand
        if tensor is not None and isinstance(operand, weakref.ref):
            if id(tensor) not in self._by_gradient:
                self.exchanged.add(self._owned.get(id(tensor), ""))
            tensor = self._by_gradient.get(id(tensor), tensor)
        return self._owned.get(id(tensor), "")


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the base of a tensor that is a full view, such as the result of `to_local`, or the tensor itself."""
    base = private.base_of(tensor)
    return base if base is not None and base.numel() == tensor.numel() else tensor


def _leaf_of(node: GradFn | None) -> torch.Tensor | None:
    return getattr(node, "variable", None) if type(node).__name__ == private.ACCUMULATOR else None


def imitate_collective(func: Any, arguments: Mapping[str, Any], group: Any) -> Any:
    """Return the result of a collective that is not sent, as if each process sent the tensors of this one."""
    schema = private.schema_of(func)
    namespace, _, name = schema.name.partition("::")
    if namespace == "c10d":
        return _make_work(name, len(schema.returns), arguments)
    inputs = next(arguments[key] for key in ("input", "inputs", "tensor", "tensors") if key in arguments)
    if "out" in arguments:
        return _fill(arguments["out"], inputs)
    if name.endswith("_") or not isinstance(inputs, (torch.Tensor, list)):
        return inputs
    if isinstance(inputs, list):
        return [_make_result(name, tensor, arguments, group.size()) for tensor in inputs]
    return _make_result(name, inputs, arguments, group.size())


def _make_result(name: str, tensor: torch.Tensor, arguments: Mapping[str, Any], size: int) -> torch.Tensor:
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


def _make_work(name: str, returns: int, arguments: Mapping[str, Any]) -> Any:
    """Fill the outputs of an operation of torch.distributed, and return these and a finished work, as it does."""
    if not returns:
        return None
    first = next(iter(arguments.values()))
    sent = next((arguments[key] for key in ("input_tensor", "input", "input_tensors") if key in arguments), None)
    if sent is not None or name.startswith("recv"):
        with torch.no_grad():
            for output, source in _pairs(first, sent):
                _fill(output, source)
    done: Any = torch.futures.Future()
    done.set_result(first if isinstance(first, list) else [first])
    work = private.make_finished_work(done).boxed()
    return (first, work) if returns == 2 else work


def _pairs(outputs: Any, sent: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
    if isinstance(outputs, torch.Tensor):
        yield outputs, sent
        return
    for several, sources in zip_longest(outputs, sent or ()):
        source = next(iter(sources), None) if isinstance(sources, list) else sources
        for output in several if isinstance(several, list) else (several,):
            if isinstance(output, torch.Tensor):
                yield output, source


def _fill(output: torch.Tensor, source: torch.Tensor | None) -> torch.Tensor:
    """Fill an output with values that this process sends, so that a program reads no random memory."""
    if source is None or not source.numel():
        return output.zero_()
    times = -(-output.numel() // source.numel())
    return output.copy_(source.reshape(-1).repeat(times)[: output.numel()].view(output.shape))


class Parts:
    """The gathered parameters under `fully_shard`, so that a dry forward runs with true weights."""

    def __init__(self) -> None:
        self._whole: dict[int, torch.Tensor] = {}
        self._asked: set[int] = set()

    def fill(self, arguments: Mapping[str, Any], frame: FrameType, call: Frame | None) -> None:
        """Fill the output of an unsent gathering of parameters; the first one really gathers all of a model."""
        parameters = _find_sharded(frame)
        output, sent = arguments.get("output_tensor"), arguments.get("input_tensor")
        if not parameters or output is None or sent is None or output.numel() <= sent.numel():
            return
        model = next(reversed([*calls_from(call)])).module if call is not None else None
        if model is not None and id(model) not in self._asked:
            self._asked.add(id(model))
            groups = [*sharding_groups(modules_in(model))]
            # torch 2.5 has other names, and a process that has ended sends nothing.
            with suppress(AttributeError, RuntimeError), torch.no_grad():
                self._gather(groups, [getattr(each, private.FSDP_PARAMETERS) for each in groups])
        whole = self._whole.get(id(parameters[0]))
        if whole is not None and whole.numel() == output.numel() and output.is_floating_point():
            output.copy_(whole)

    def _gather(self, groups: Sequence[Any], every: Sequence[Any]) -> None:
        parts = [[getattr(each, private.FSDP_PART) for each in parameters] for parameters in every]
        size = sum(part.nbytes for several in parts for part in several) * distributed.get_world_size()
        for one, parameters, several in zip(groups, every, parts, strict=True) if size <= _MOST_WHOLE else ():
            group, flat = getattr(one, private.FSDP_GATHERING), torch.cat(several)
            whole = flat.new_empty(flat.numel() * group.size())
            distributed.all_gather([*whole.chunk(group.size())], flat, group=group, async_op=True).wait(_PATIENCE)
            self._whole[id(parameters[0])] = whole


def _find_sharded(frame: FrameType) -> Sequence[Any]:
    parameters = (each.f_locals.get(private.FSDP_PARAMETERS) for each in frames_of(frame, private.FSDP))
    return next(filter(None, parameters), ())
