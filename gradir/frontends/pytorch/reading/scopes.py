"""The module tree as a table of scopes, and the parameters that gradient does not reach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from torch import nn
from torch.nn.parameter import is_lazy

from gradir.frontends.pytorch.reading.members import details_of, is_training
from gradir.frontends.pytorch.reading.metadata import MetadataReader
from gradir.frontends.pytorch.reading.tensors import Owned
from gradir.frontends.texts import plain_text
from gradir.ir import Cut, Scope
from gradir.ir.memo import Memo

__all__ = ["cuts", "is_trainable", "scope_table"]

_MAX_DETAIL = 1_000

_Counts: TypeAlias = defaultdict[str, int]


def scope_table(paths: Mapping[nn.Module, str], owned: Iterable[Owned], calls: Mapping[int, int]) -> tuple[Scope, ...]:
    """One `Scope` per module, in registration order; ``calls`` are by id() of the modules."""
    own, total, trainable = _parameter_counts(owned)
    class_names = Memo[type, str](lambda kind: plain_text(kind.__name__))
    details = Memo(_plain_detail)
    return tuple(
        [
            Scope(
                path,
                class_names[type(module)],
                details[detail] if (detail := details_of(module)) else "",
                calls.get(id(module), 0),
                own[path],
                total[path],
                trainable[path],
                is_training(module),
            )
            for module, path in paths.items()
        ]
    )


def _parameter_counts(owned: Iterable[Owned]) -> tuple[_Counts, _Counts, _Counts]:
    """By path: the elements of the module's own parameters, of those of its whole subtree, the trainable of these."""
    counts: defaultdict[tuple[str, ...], int] = defaultdict(int)
    asking: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for entry in owned:
        tensor, names, scope, _ = entry
        if type(tensor) is nn.Parameter or (entry.is_parameter and not is_lazy(tensor)):
            count = tensor.numel()
            if type(count) is not int:
                # It depends on a symbolic size.
                continue
            owners = (scope,) if len(names) == 1 else tuple(dict.fromkeys(name.rpartition(".")[0] for name in names))
            counts[owners] += count
            asking[owners] += count if tensor.requires_grad else 0
    own, total, trainable = (_Counts(int), _Counts(int), _Counts(int))
    for owners, count in counts.items():
        for path in owners:
            own[path] += count
        # What is tied counts once in a module above all its owners.
        for above in dict.fromkeys(ancestor for owner in owners for ancestor in _with_ancestors(owner)):
            total[above] += count
            trainable[above] += asking[owners]
    return own, total, trainable


def is_trainable(entry: Owned) -> bool:
    """Whether a module's tensor is a parameter that asks for a gradient."""
    return entry.is_parameter and entry.tensor.requires_grad


def cuts(
    unreached: Iterable[Owned], hidden: Collection[int], placements: Mapping[int, tuple[str, ...]]
) -> tuple[Cut, ...]:
    """The trainable parameters that are not in the graph, with their ``placements`` by id().

    Those in ``hidden``, by id(), may still receive gradient: a function in the graph may reach them by itself.
    """
    metadata = MetadataReader(placements=placements)
    return tuple(
        Cut("hidden" if id(tensor) in hidden else "unreached", names, scope, metadata.of_owned(tensor))
        for tensor, names, scope, _ in unreached
    )


def _with_ancestors(path: str) -> list[str]:
    paths = [path]
    while path:
        path = path.rpartition(".")[0]
        paths.append(path)
    return paths


def _plain_detail(text: str) -> str:
    return plain_text(" ".join(text.split()))[:_MAX_DETAIL]
