"""The subject of an explanation, and the leaves that modules have besides their parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import groupby, islice, product
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradir.errors import CaptureError
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.distributed import forms_of_sharded
from gradir.frontends.pytorch.reading.members import iter_named_parameters
from gradir.frontends.pytorch.reading.reach import find_instances
from gradir.frontends.pytorch.reading.tensors import Modules, parse_params, unwrap_tensor
from gradir.frontends.pytorch.reading.walk import find_only_input
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Value
from gradir.frontends.walks import follow, join_paths
from gradir.ir.memo import group_by_key
from gradir.protocols import Names

Named: TypeAlias = "Mapping[str, torch.Tensor]"
_OF_TORCH: Final = frozenset(vars(nn.Module()))
# At most this many operations may be between a tensor and its parameter.
_MOST_BACK: Final = 8


def find_unregistered_tensors(paths: Mapping[nn.Module, str]) -> dict[str, torch.Tensor]:
    """Return the leaves in lists, dicts, plain attributes and buffers of modules, by path."""
    found: dict[str, torch.Tensor] = {}
    for module, path in paths.items():
        for name, value in (*private.fields_of(module).items(), *private.own_buffers(module).items()):
            if name not in _OF_TORCH:
                _collect_leaves(join_paths(path, name), value, found)
    return found


def find_broken_ties(paths: Mapping[nn.Module, str]) -> list[tuple[str, str]]:
    """Return pairs of embedding and linear weights that are copies, as loading may leave tied weights."""
    embeddings, linears = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    for module, path in paths.items():
        weight = private.own_parameters(module).get("weight")
        if weight is None or is_lazy(weight):
            continue
        if isinstance(module, nn.Embedding):
            embeddings[join_paths(path, "weight")] = weight
        elif isinstance(module, nn.Linear):
            linears[join_paths(path, "weight")] = weight
    pairs = product(embeddings.items(), linears.items())
    return [(one, other) for (one, embedding), (other, linear) in pairs if _are_copies(embedding, linear)]


def find_left_over(trained: Sequence[torch.Tensor], parameters: Named, used: Set[int]) -> list[torch.Tensor]:
    """Return the tensors of an optimizer that are not ``used``, by id(), and in no living module."""
    known = {*used, *map(id, parameters.values())}
    stale = {id(tensor): tensor for tensor in trained if id(tensor) not in known and not is_lazy(tensor)}
    # This search takes longer the more objects a program has.
    modules = find_instances(nn.Module) if stale else ()
    tensors = (tensor for module in modules for tensor in private.own_parameters(module).values())
    return [] if any(id(tensor) in stale for tensor in tensors) else [*stale.values()]


def find_replaced(trained: Sequence[torch.Tensor], parameters: Named, stale: Sequence[torch.Tensor]) -> list[str]:
    """Return the names of the parameters that replaced the ``stale`` ones of an optimizer."""
    given = dict.fromkeys(map(id, trained))
    shown = [tensor for tensor in parameters.values() if tensor.requires_grad and not is_lazy(tensor)]
    new = {id(tensor): tensor for tensor in shown if id(tensor) not in given}
    if not stale or not new or is_master_copy(stale, new.values()):
        return []
    old, shapes = set(map(id, stale)), Counter(tensor.shape for tensor in new.values())
    has_shapes = not Counter(tensor.shape for tensor in stale) - shapes
    # A temperature beside the model is not a weight of it.
    has_ranks = not Counter(len(tensor.shape) for tensor in new.values()) - Counter(len(t.shape) for t in stale)
    models = (parameters.values(), [tensor for tensor in parameters.values() if tensor.requires_grad])
    # The optimizer has the whole model in order, with stale tensors in place of the new ones.
    is_model = len(old) < len(given) and any(
        (has_ranks and _is_in_places(given, old, keys, new))
        # Parameters of computed weights, as by weight_norm, come after all others.
        or (has_shapes and keys[0] not in new and _without(given, old) == _without(keys, new))
        for keys in (list(dict.fromkeys(map(id, tensors))) for tensors in models)
    )
    if not (is_model or ((has_shapes or has_ranks) and len(stale) == len(new))):
        return []
    return [name for name, tensor in parameters.items() if id(tensor) in new]


def _is_in_places(given: Iterable[int], stale: Collection[int], keys: Iterable[int], new: Collection[int]) -> bool:
    """Return whether a model has its new keys at the places of an optimizer's stale ones."""
    old_runs, new_runs = _split_into_runs(given, stale), _split_into_runs(keys, new)
    return len(old_runs) == len(new_runs) and all(
        before == after if isinstance(before, list) else isinstance(after, int) and before >= after
        for before, after in zip(old_runs, new_runs, strict=True)
    )


def _split_into_runs(keys: Iterable[int], others: Collection[int]) -> list[list[int] | int]:
    """Return the runs of keys, and the number of others between them."""
    runs = ((is_other, [*run]) for is_other, run in groupby(keys, others.__contains__))
    return [len(run) if is_other else run for is_other, run in runs]


def _without(keys: Iterable[int], others: Collection[int]) -> list[int]:
    return [key for key in keys if key not in others]


def is_master_copy(trained: Collection[torch.Tensor], reached: Collection[torch.Tensor]) -> bool:
    """Return whether an optimizer may have master copies in another precision, which get their gradients elsewhere."""
    return bool(reached) and {tensor.dtype for tensor in trained}.isdisjoint(tensor.dtype for tensor in reached)


def find_foreign(flow: Flow, aside: Named, leaves: Iterable[Value]) -> list[Value]:
    """Return unnamed leaves if all of them are parameters of models other than the recorded one."""
    own = {id(tensor) for tensor in aside.values()}
    # A view created under no_grad counts as a leaf.
    owners = [*dict.fromkeys(map(flow.owner_of, leaves))]
    given = [flow.outside[owner.number] for owner in owners if owner.maker == FROM_OUTSIDE]
    are_parameters = len(given) == len(owners) and all(outside.role == "parameter" for outside in given)
    # Their model may no longer exist.
    return owners if are_parameters and not any(id(flow.tensor_of(owner)) in own for owner in owners) else []


def _are_copies(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other or one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    # Without training they stay equal.
    if not (one.requires_grad and other.requires_grad):
        return False
    # Comparing whole distributed tensors would need all processes; the local parts are enough.
    one, other = unwrap_tensor(one.detach()), unwrap_tensor(other.detach())
    # Tensors with one storage are tied; a constant is an initialization, not a copy.
    is_apart = one.data_ptr() != other.data_ptr()
    return bool(is_apart and one.numel() > 1 and torch.equal(one, other) and one.min() != one.max())


def _collect_leaves(name: str, value: object, found: dict[str, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        leaf = value if value.is_leaf else _find_only_parameter(value)
        if leaf is not None and leaf.requires_grad:
            found[name] = leaf
    elif isinstance(value, (list, tuple, dict)):
        for key, entry in _entries_of(value):
            path = f"{name}[{key!r}]" if type(key) in (int, str) else f"{name}[{type(key).__name__}]"
            if isinstance(entry, torch.Tensor):
                _collect_leaves(path, entry, found)
            elif isinstance(entry, nn.Module):
                for own, parameter in iter_named_parameters(entry):
                    _collect_leaves(f"{path}.{own}", parameter, found)


def _find_only_parameter(value: torch.Tensor) -> torch.Tensor | None:
    # For example, the parameter in ``nn.Parameter(values).to(device)``.
    last = next(reversed([*islice(follow(value.grad_fn, find_only_input), _MOST_BACK)]), None)
    leaf = getattr(last, "variable", None)
    return leaf if isinstance(leaf, nn.Parameter) else None


def _entries_of(container: list[object] | tuple[object, ...] | dict[object, object]) -> Iterable[tuple[object, object]]:
    """Return the stored entries of a container, since a subclass may iterate otherwise."""
    if isinstance(container, dict):
        return dict.items(container)
    return enumerate(list.__iter__(container) if isinstance(container, list) else tuple.__iter__(container))


class Subject(NamedTuple):
    """The recording, the modules and the optimizer that an explanation is about."""

    flow: Flow
    tensors: Named
    # The names of parameters of modules.
    owned: frozenset[str]
    # The tensors from which backward() would start, with their graph if there is one.
    captured: Sequence[torch.Tensor]
    live: LiveGraph | None
    # The tensors of the optimizer, if one was given.
    trained: Sequence[torch.Tensor] | None
    # Names of tensors that a module computes from its parameters.
    parametrized: frozenset[str]
    # The leaves of modules that are not registered as parameters.
    aside: Named
    # Pairs of parameters that should be one tensor.
    untied: Sequence[tuple[str, str]]
    # The backward hooks of modules, by path.
    hooks: Mapping[str, Sequence[object]]
    # The names of parameters that a module has only while it runs.
    lent: frozenset[str]
    paths: Mapping[nn.Module, str]
    # The variables of top-level modules, by id().
    variables: Mapping[int, str]

    def find_tied_names(self) -> tuple[tuple[str, ...], ...]:
        """Return the groups of names of the same tensor."""
        names = group_by_key((id(tensor), name) for name, tensor in self.tensors.items())
        return tuple(tuple(group) for group in names.values() if len(group) > 1)


def make_subject(
    flow: Flow,
    modules: Modules,
    captured: Sequence[torch.Tensor],
    live: LiveGraph | None,
    ran: Named,
    *,
    variables: Mapping[int, str],
    params: Names | None,
    optimizer: Any,
) -> Subject:
    """Return the subject of captured tensors; ``ran`` has the parameters that modules have only while they run."""
    trained = None if optimizer is None else _read_optimizer_tensors(optimizer)
    # The forward pass runs with one form of a sharded parameter, and the optimizer has another.
    whole = {id(form): forms[0] for forms in forms_of_sharded(modules.paths) for form in forms}
    owned = [entry for entry in modules.owned if entry.is_parameter]
    # Offloading replaces a parameter without data during the call.
    lent = {name: ran[name] for entry in owned if entry.tensor.is_meta for name in entry.names if name in ran}
    whole.update((id(entry.tensor), lent[name]) for entry in owned for name in entry.names if name in lent)
    named = {name: whole.get(id(entry.tensor), entry.tensor) for entry in owned for name in entry.names}
    hooks = {
        path: [*private.hooks_of_module(module).values(), *private.backward_pre_hooks_of(module).values()]
        for module, path in modules.paths.items()
    }
    extra = dict(parse_params(params))
    return Subject(
        flow,
        {**named, **extra},
        frozenset(named),
        captured,
        live,
        None if trained is None else [whole.get(id(tensor), tensor) for tensor in trained],
        frozenset(name for name in extra if f"parametrizations.{name}.original" in named),
        find_unregistered_tensors(modules.paths),
        find_broken_ties(modules.paths),
        {path: found for path, found in hooks.items() if found},
        frozenset(lent),
        modules.paths,
        variables,
    )


def _read_optimizer_tensors(optimizer: Any) -> list[torch.Tensor]:
    optimizers = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not optimizers:
        raise CaptureError("optimizer is an empty list: give the optimizers of the step, or leave it out")
    for each in optimizers:
        if getattr(each, "param_groups", None) is None:
            raise CaptureError(f"optimizer is not an optimizer of torch.optim but {type(each).__name__}")
    return [tensor for each in optimizers for group in each.param_groups for tensor in group["params"]]
