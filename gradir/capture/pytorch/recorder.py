"""Record which module runs which operation."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from gradir.capture.pytorch.assemble import LiveGraph, assemble
from gradir.capture.pytorch.outputs import Captured, flatten
from gradir.capture.pytorch.scopes import module_paths
from gradir.capture.pytorch.sources import SourceLog, SourceMode
from gradir.capture.pytorch.tensors import modules_of
from gradir.capture.pytorch.walk import GradFn
from gradir.errors import CaptureError
from gradir.ir import Graph
from gradir.protocols import Verification

__all__ = ["Recorder"]


class _Frame(NamedTuple):
    """A running call of a module; ``caller`` is the frame that called it."""

    module: nn.Module
    caller: _Frame | None


class _Timeline:
    """What one thread ran: the frame from each sequence number on."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.frames: list[_Frame | None] = []
        self.current: _Frame | None = None

    def switch(self, frame: _Frame | None) -> None:
        """Note that the nodes made from now on belong to a frame."""
        self.current = frame
        self.numbers.append(torch._C._autograd._get_sequence_nr())
        self.frames.append(frame)


class Recorder:
    """Notes, while it is entered, between which autograd sequence numbers each module runs.

    torch numbers the nodes that a thread makes, so the numbers tell afterwards which module made a node. See
    `gradir.record`.
    """

    def __init__(self, model: object = None, *, sources: bool = False) -> None:
        """``model`` is a module, a dict of modules by name, or None: the modules called from outside any other.

        ``sources`` also notes the source line of each node and the variable its result was assigned to.
        """
        self._model = model
        self._timelines: dict[int, _Timeline] = {}
        self._outermost: dict[nn.Module, None] = {}
        self._calls: defaultdict[nn.Module, int] = defaultdict(int)
        self._handles: list[Any] = []
        self._sources = SourceLog() if sources else None
        self._mode: SourceMode | None = None

    def __enter__(self) -> Recorder:
        if self._handles:
            raise CaptureError("this recorder is already recording")
        modules_of(self._model)
        self._timeline().switch(None)
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._enter_module),
            module_hooks.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        if self._sources is not None:
            self._mode = SourceMode(self._sources, self._module_call)
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mode is not None:
            self._mode.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
            self._mode = None
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._timeline().switch(None)

    def capture(self, outputs: object, *, model: object = None, params: Mapping[str, Any] | None = None) -> Graph:
        """Capture what was made inside the recorder, with scopes; ``model`` overrides the recorder's.

        Raises:
            CaptureError: an output is not a tensor, or has no graph.
        """
        return self.live_capture(outputs, model=model, params=params).graph

    def verify(self, outputs: object, *, model: object = None, params: Mapping[str, Any] | None = None) -> Verification:
        """Capture, run a real backward, and compare; see `gradir.verify`."""
        return self.live_capture(outputs, model=model, params=params).verify()

    def live_capture(
        self, outputs: object, *, model: object = None, params: Mapping[str, Any] | None = None
    ) -> LiveGraph:
        """Capture, and keep the live objects beside the graph."""
        return self.assemble(flatten(outputs), model=model, params=params)

    def assemble(
        self, captured: list[Captured], *, model: object = None, params: Mapping[str, Any] | None = None
    ) -> LiveGraph:
        """Capture tensors that are flattened already."""
        roots = self._roots(modules_of(self._model if model is None else model))
        scopes = _ScopeLookup(list(self._timelines.values()), module_paths(roots))
        return assemble(captured, roots, params=params, scope_of=scopes, calls=self._calls, sources=self._sources)

    def _roots(self, roots: dict[str, nn.Module]) -> dict[str, nn.Module]:
        known = module_paths(roots)
        strays = [module for module in self._outermost if module not in known]
        if not roots:
            # Beside a lone model there may be modules without parameters, such as its criterion.
            models = [module for module in strays if next(module.parameters(), None) is not None] or strays
            if len(models) == 1:
                roots[""] = models[0]
                strays.remove(models[0])
                known = module_paths(roots)
        taken = set(known.values())
        for module in strays:
            name = wanted = type(module).__name__
            count = 1
            while name in taken:
                count += 1
                name = f"{wanted}_{count}"
            taken.add(name)
            roots[name] = module
        return roots

    def _timeline(self) -> _Timeline:
        return self._timelines.setdefault(threading.get_ident(), _Timeline())

    def _module_call(self, above: int) -> object:
        """The running call of a module that stands ``above`` the innermost one."""
        frame = self._timeline().current
        for _ in range(above):
            frame = None if frame is None else frame.caller
        return frame

    def _enter_module(self, module: nn.Module, inputs: object) -> None:  # noqa: ARG002 (torch's signature)
        timeline = self._timeline()
        if timeline.current is None:
            self._outermost[module] = None
        self._calls[module] += 1
        timeline.switch(_Frame(module, timeline.current))

    def _leave_module(self, module: nn.Module, inputs: object, result: object) -> None:  # noqa: ARG002
        timeline = self._timeline()
        frame = timeline.current
        # A call whose own end was never seen ends with its caller.
        while frame is not None and frame.module is not module:
            frame = frame.caller
        if frame is not None:
            timeline.switch(frame.caller)


class _ScopeLookup:
    """The module path in which a grad_fn was made; empty when no module ran, or when threads leave it open."""

    def __init__(self, timelines: list[_Timeline], paths: Mapping[nn.Module, str]) -> None:
        self._paths = paths
        self._tracks = [(timeline.numbers, self._resolve(timeline.frames)) for timeline in timelines]

    def __call__(self, fn: GradFn) -> str:
        number = fn._sequence_nr()
        candidates = {
            scopes[bisect_right(numbers, number) - 1]
            for numbers, scopes in self._tracks
            if numbers[0] <= number < numbers[-1]
        }
        return candidates.pop() if len(candidates) == 1 else ""

    def _resolve(self, frames: list[_Frame | None]) -> list[str]:
        known: dict[int, str] = {}
        scopes = []
        for frame in frames:
            path = known.get(id(frame))
            if path is None:
                path = known[id(frame)] = self._path(frame)
            scopes.append(path)
        return scopes

    def _path(self, frame: _Frame | None) -> str:
        while frame is not None and frame.module not in self._paths:
            frame = frame.caller
        return "" if frame is None else self._paths[frame.module]
