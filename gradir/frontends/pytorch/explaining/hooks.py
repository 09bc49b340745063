"""The hooks that change a gradient on its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import torch
from torch import nn

from gradir.frontends.pytorch.private import (
    AFTER_FORWARD,
    backward_pre_hooks_of,
    hooks_of,
    hooks_of_module,
    sequence_number,
)
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Written, written

__all__ = ["Hooks", "hooked_modules"]


def hooked_modules(paths: Mapping[nn.Module, str]) -> dict[str, list[object]]:
    """The hooks on the backward of modules, by the path of the module."""
    return {
        path: hooks
        for module, path in paths.items()
        if (hooks := [*hooks_of_module(module).values(), *backward_pre_hooks_of(module).values()])
    }


class Hooks:
    """Finds what a hook is called that changed a gradient, and where it is written.

    Of what changes the gradient of a tensor that is no leaf, the recording knows what was registered while it ran.
    """

    def __init__(
        self, flow: Flow, live: LiveGraph, made: Mapping[int, int], of_modules: Mapping[str, Sequence[object]]
    ) -> None:
        """``made`` has the place of the step that made each grad_fn, by sequence number."""
        self._flow = flow
        self._live = live
        self._made = made
        self._of_modules = of_modules

    def at(self, fn: GradFn | None, leaf: torch.Tensor, changed: Set[GradFn]) -> Written | None:
        """The hook at a function, or on a leaf; ``changed`` are the functions to which a hook on a tensor belongs."""
        if fn is None:
            return next(map(written, (hooks_of(leaf) or {}).values()), None)
        node, made = self._live.graph.nodes[self._live.grad_fns[fn]], self._made.get(sequence_number(fn))
        place = None if made is None else self._flow.steps[made].place
        if type(fn).__name__ == AFTER_FORWARD:
            return next(map(written, self._of_modules.get(node.scope, ())), Written(node.op, place))
        if fn not in changed:
            return None
        return next((hook for value, hook in self._flow.hooks if value.maker == made), Written(node.op, place))
