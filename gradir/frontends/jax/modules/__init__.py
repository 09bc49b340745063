"""Which module runs what while a function is traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

__all__ = ["ModuleWatch", "Prepared", "prepared"]


class ModuleWatch(ExitStack):
    """Entered around a trace, it notes which modules run."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, str] = {}
        self.calls: dict[str, int] = {}
        self.arrays_only = False

    def module_path(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The components of a module's path, from the scopes around an equation."""
        return parts


class Prepared(NamedTuple):
    """A function of pytrees of arrays, its arguments, what notes its modules, and the names of its arguments."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    watch: ModuleWatch
    argument_names: tuple[str, ...] = ()


def prepared(fn: Callable[..., Any], args: Sequence[Any], argnums: Sequence[int]) -> Prepared:
    """What is to be traced in place of a function and its arguments, whose modules are no pytrees."""
    return Prepared(fn, tuple(args), ModuleWatch())
