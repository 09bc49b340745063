"""Framework-neutral names of operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from gradir.frontends.pytorch.private import GENERATED

__all__ = ["native_name", "neutral_name", "registered_name"]

_SUFFIX = re.compile(r"Backwards?\d*$")
_GENERATED = re.compile(rf"{GENERATED}(.+)Backward\d*")
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

    torch wraps a function of the user's in a node of one class, which says nothing of it.

    >>> native_name("torch::autograd::CppNode<my::Op<float>>"), native_name("struct torch::autograd::AccumulateGrad")
    ('Op', 'AccumulateGrad')
    """
    wrapper, _, wrapped = qualified.partition("<")
    stem = wrapped.partition("<")[0].rstrip(">") if _own_name(wrapper) == "CppNode" else wrapper
    return _own_name(stem) or qualified


def _own_name(qualified: str) -> str:
    return qualified.removeprefix("struct ").removeprefix("class ").rpartition("::")[2]


def registered_name(native: str, operators: Callable[[], Iterable[str]]) -> str:
    """The operation that a grad_fn differentiates which torch generated for a registered operator; else ``native``.

    Its name joins the operator's namespace, name and overload by what may also be in each; ``operators`` gives the
    names of all there are.

    >>> registered_name("GeneratedBackwardFor_my_lib_scale_defaultBackward", lambda: ["aten::scale", "my_lib::scale"])
    'scale'
    """
    generated = _GENERATED.fullmatch(native)
    if generated is None:
        return native
    found = []
    for operator in operators():
        namespace, _, rest = operator.partition("::")
        name, _, overload = rest.partition(".")
        if f"{namespace}_{name}_{overload or 'default'}" == generated[1]:
            found.append(name)
    return min(found, default=native)
