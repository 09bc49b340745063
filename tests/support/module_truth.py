"""Which module made each grad_fn, found without sequence numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

__all__ = ["ModuleTruth"]


class ModuleTruth:
    """Which module made each grad_fn.

    When a module returns, whatever lies between its outputs and what was there when it was called was made inside it,
    and not by a module that it called if no such module has claimed it before. ``calls`` counts the calls that ended,
    and ``returned`` has the dtype and shape of each tensor that a module returned, by grad_fn and number of the output.
    """

    def __init__(self, model: nn.Module) -> None:
        self.made_by: dict[Any, str] = {}
        self.calls: Counter[str] = Counter()
        self.returned: dict[tuple[Any, int], tuple[torch.dtype, tuple[int, ...]]] = {}
        self._model = model
        self._makers: dict[Any, nn.Module] = {}
        self._called: Counter[nn.Module] = Counter()
        self._there: list[set[Any]] = []
        self._hooks: list[Any] = []
        self._watched: set[nn.Module] = set()
        self._watch(model)

    def stop(self) -> None:
        """Look no longer. Modules have the paths that they have now."""
        for hook in self._hooks:
            hook.remove()
        paths = {module: path for path, module in self._model.named_modules()}
        self.made_by = {fn: paths[module] for fn, module in self._makers.items() if module in paths}
        self.calls = Counter({paths[module]: count for module, count in self._called.items() if module in paths})

    def _watch(self, module: nn.Module) -> None:
        for part in module.modules():
            if part not in self._watched:
                self._watched.add(part)
                self._hooks.append(part.register_forward_pre_hook(self._enter, with_kwargs=True))
                self._hooks.append(part.register_forward_hook(self._leave, with_kwargs=True))

    @classmethod
    @contextmanager
    def of(cls, model: nn.Module) -> Iterator[ModuleTruth]:
        """Watch a model for a while."""
        truth = cls(model)
        try:
            yield truth
        finally:
            truth.stop()

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        # Some models exchange a part of theirs while they run.
        self._watch(module)
        self._there.append(set(grad_fns_of((args, kwargs))))

    def _leave(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        self._called[module] += 1
        seen = set().union(*self._there)
        self._there.pop()
        pending = []
        for tensor in _made(result):
            pending.append(tensor.grad_fn)
            self.returned[tensor.grad_fn, tensor.output_nr] = tensor.dtype, tuple(tensor.shape)
        while pending:
            fn = pending.pop()
            if fn not in seen and not hasattr(fn, "variable"):
                seen.add(fn)
                self._makers.setdefault(fn, module)
                pending += [child for child, _ in fn.next_functions if child is not None]


def grad_fns_of(nesting: Any) -> list[Any]:
    return [tensor.grad_fn for tensor in _made(nesting)]


def _made(nesting: Any) -> list[torch.Tensor]:
    tensors = [leaf for leaf in pytree.tree_leaves(nesting) if isinstance(leaf, torch.Tensor)]
    return [tensor for tensor in tensors if tensor.grad_fn is not None]
