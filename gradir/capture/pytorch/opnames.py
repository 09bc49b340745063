"""Framework-neutral names of operations."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["native_name", "neutral_name"]

_SUFFIX = re.compile(r"Backwards?\d*$")
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[A-Z][a-z])")


@lru_cache(maxsize=4096)
def neutral_name(native: str) -> str:
    """The snake_case name of the operation that a grad_fn differentiates.

    >>> [neutral_name(n) for n in ("AddmmBackward0", "MaxPool2DWithIndicesBackward0", "TanhBackwardBackward0")]
    ['addmm', 'max_pool2d_with_indices', 'tanh_backward']
    """
    stem = _SUFFIX.sub("", native) or native
    return _WORDS.sub("_", stem).lower()


def native_name(qualified: str) -> str:
    """A C++ node's own name without its namespaces and template arguments.

    >>> native_name("torch::autograd::CppNode<my::Op>"), native_name("struct torch::autograd::AccumulateGrad")
    ('CppNode', 'AccumulateGrad')
    """
    return qualified.partition("<")[0].removeprefix("struct ").rpartition("::")[2] or qualified
