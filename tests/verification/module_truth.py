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

    When a module is called, whatever is behind its inputs and has no maker yet was made by its caller; when it returns,
    whatever is behind its outputs and has none was made by itself. ``calls`` counts the calls that ended, and
    ``returned`` has the dtype and shape of each tensor that a module returned, by grad_fn and number of the output.
    """

    def __init__(self, model: nn.Module) -> None:
        self.made_by: dict[Any, str] = {}
        self.calls: Counter[str] = Counter()
        self.returned: dict[tuple[Any, int], tuple[torch.dtype, tuple[int, ...]]] = {}
        self._model = model
        self._makers: dict[Any, nn.Module | None] = {}
        self._called: Counter[nn.Module] = Counter()
        self._running: list[nn.Module] = []
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
        self._claim(_find_made((args, kwargs)), self._running[-1] if self._running else None)
        self._running.append(module)

    def _leave(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        # Those that it called and that raised never returned.
        while self._running.pop() is not module:
            pass
        self._called[module] += 1
        made = _find_made(result)
        self._claim(made, module)
        for tensor in made:
            self.returned[tensor.grad_fn, tensor.output_nr] = tensor.dtype, tuple(tensor.shape)

    def _claim(self, tensors: list[torch.Tensor], maker: nn.Module | None) -> None:
        pending = [tensor.grad_fn for tensor in tensors]
        while pending:
            fn = pending.pop()
            if fn is not None and fn not in self._makers and not hasattr(fn, "variable"):
                self._makers[fn] = maker
                pending += [child for child, _ in fn.next_functions]


def _find_made(nesting: Any) -> list[torch.Tensor]:
    tensors = [leaf for leaf in pytree.tree_leaves(nesting) if isinstance(leaf, torch.Tensor)]
    return [tensor for tensor in tensors if tensor.grad_fn is not None]
