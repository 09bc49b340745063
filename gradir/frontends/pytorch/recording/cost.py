"""Measure the cost of operations: FLOPs by torch's formulas, and the time of forward and backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn
from torch.utils.flop_counter import flop_registry

from gradir.frontends.pytorch.private import ACCUMULATOR, PACKET, disable_modes, next_sequence_number, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.steps import tensors_in
from gradir.frontends.pytorch.recording.timelines import Frame, Timeline, path_of
from gradir.ir import AttrValue
from gradir.ir.marks import FLOPS, MILLISECONDS


class Costs:
    """The costs of one thread's operations by sequence number, or FLOPs by module for operations without grad_fn."""

    def __init__(self, timeline: Timeline, *, are_timed: bool) -> None:
        self.are_timed = are_timed
        self.is_paused = False
        self._timeline = timeline
        self._flops: defaultdict[int, int] = defaultdict(int)
        self._milliseconds: defaultdict[int, float] = defaultdict(float)
        # By id(), since a frame with its callers is slow to hash; the timeline keeps it alive.
        self._other_flops: dict[int, tuple[Frame | None, int]] = {}

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation and record its cost."""
        # autograd makes the grad_fn before it runs the operation.
        number = next_sequence_number() - 1
        inputs = tensors_in([args, kwargs])
        makes_node = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        begin = self._now(inputs)
        result = func(*args, **kwargs)
        if self.are_timed and makes_node:
            self._milliseconds[number] += (self._now(tensors_in(result)) - begin) * 1000
        formula = flop_registry.get(getattr(func, PACKET, None))
        if formula is not None:
            flops = int(formula(*args, **kwargs, out_val=result))
            if makes_node:
                self._flops[number] += flops
            else:
                frame = self._timeline.current
                self._other_flops[id(frame)] = frame, self._other_flops.get(id(frame), (None, 0))[1] + flops
        return result

    def add_costs(self, live: LiveGraph, paths: Mapping[nn.Module, str]) -> LiveGraph:
        """Return the capture with the costs of its nodes in ``ext``, and the FLOPs of other operations by module."""
        backward = self._backward(live) if self.are_timed else {}
        found: dict[str, dict[str, AttrValue]] = {}
        for fn, key in live.grad_fns.items():
            if type(fn).__name__ == ACCUMULATOR:
                continue
            number, cost = sequence_number(fn), found.setdefault(key, {})
            if number in self._flops:
                cost[FLOPS] = self._flops[number]
            if self.are_timed:
                cost[MILLISECONDS] = (self._milliseconds.get(number, 0.0), backward.get(key, 0.0))
        other_flops: defaultdict[str, int] = defaultdict(int)
        for frame, flops in self._other_flops.values():
            other_flops[path_of(frame, paths)] += flops
        nodes = {key: replace(node, ext={**node.ext, **found.get(key, {})}) for key, node in live.graph.nodes.items()}
        live = live._replace(graph=replace(live.graph, nodes=nodes))
        return live.with_options({FLOPS: tuple(sorted(other_flops.items()))})

    def _backward(self, live: LiveGraph) -> dict[str, float]:
        """Return the milliseconds of each node in a backward that accumulates no gradient and frees nothing."""
        starts, durations = dict[str, float](), dict[str, float]()

        def begin(key: str, gradients: Any) -> None:
            starts[key] = self._now(tensors_in(gradients))

        def end(key: str, gradients: Any, _: Any) -> None:
            durations[key] = (self._now(tensors_in(gradients)) - starts[key]) * 1000

        outputs = [entry.tensor for entry in live.captured if entry.role == "output" and entry.tensor.requires_grad]
        leaves = [tensor for tensor in live.leaves.values() if tensor.requires_grad]
        with ExitStack() as hooks, disable_modes():
            for fn, key in live.grad_fns.items():
                if type(fn).__name__ != ACCUMULATOR:
                    hooks.enter_context(fn.register_prehook(partial(begin, key)))
                    hooks.enter_context(fn.register_hook(partial(end, key)))
            gradients = [torch.ones_like(tensor) for tensor in outputs]
            torch.autograd.grad(outputs, leaves, gradients, retain_graph=True, allow_unused=True)
        return durations

    def _now(self, tensors: Sequence[torch.Tensor]) -> float:
        """Return the time after the devices of some tensors have finished."""
        if self.are_timed and any(tensor.is_cuda for tensor in tensors):
            torch.cuda.synchronize()
        return perf_counter()
