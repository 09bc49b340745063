"""What is to be explained, as a recorder gives it, and what its modules keep besides their parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import groupby, islice, product
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from gradir.errors import CaptureError
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.distributed import forms_of_sharded
from gradir.frontends.pytorch.reading.members import named_parameters_in
from gradir.frontends.pytorch.reading.reach import living
from gradir.frontends.pytorch.reading.tensors import Modules, held_by, named_tensors
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Value
from gradir.frontends.walks import below, chain, grouped
from gradir.protocols import Names

_OF_TORCH: Final = frozenset(vars(nn.Module()))
# How many operations a tensor may be from the parameter that it is made of.
_MOST_BACK: Final = 8


def tensors_aside(paths: Mapping[nn.Module, str]) -> dict[str, torch.Tensor]:
    """Return the leaves that modules keep in lists, dicts, plain attributes and as buffers, by where they are."""
    found: dict[str, torch.Tensor] = {}
    for module, path in paths.items():
        for name, value in (*private.fields_of(module).items(), *private.own_buffers(module).items()):
            if name not in _OF_TORCH:
                _collect(below(path, name), value, found)
    return found


def broken_ties(paths: Mapping[nn.Module, str]) -> list[tuple[str, str]]:
    """The weights of embeddings and linear modules that are two tensors of equal numbers, as loading may leave them."""
    embeddings, linears = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    for module, path in paths.items():
        weight = private.own_parameters(module).get("weight")
        if weight is None:
            continue
        where = below(path, "weight")
        if isinstance(module, nn.Embedding):
            embeddings[where] = weight
        elif isinstance(module, nn.Linear):
            linears[where] = weight
    pairs = product(embeddings.items(), linears.items())
    return [(one, other) for (one, embedding), (other, linear) in pairs if _are_copies(embedding, linear)]


def hooks_by_module(paths: Mapping[nn.Module, str]) -> dict[str, list[object]]:
    """Return the hooks on the backward of modules, by the path of the module."""
    kinds = (private.hooks_of_module, private.backward_pre_hooks_of)
    found = {path: [hook for kind in kinds for hook in kind(module).values()] for module, path in paths.items()}
    return {path: hooks for path, hooks in found.items() if hooks}


def find_left_over(
    trained: Sequence[torch.Tensor], parameters: Mapping[str, torch.Tensor], used: Set[int]
) -> list[torch.Tensor]:
    """The tensors of an optimizer that a model no longer has: not ``used``, by id(), and no living module has them."""
    own = {id(tensor) for tensor in parameters.values()}
    stale = {id(tensor): tensor for tensor in trained if id(tensor) not in own and id(tensor) not in used}
    # Only then, since it takes longer the more objects a program has.
    modules = living(nn.Module) if stale else ()
    held = (tensor for module in modules for tensor in private.own_parameters(module).values())
    return [] if any(id(tensor) in stale for tensor in held) else [*stale.values()]


def find_replaced(
    trained: Sequence[torch.Tensor], parameters: Mapping[str, torch.Tensor], stale: Sequence[torch.Tensor]
) -> list[str]:
    """Return the names of the parameters that took the places of the ``stale`` ones of an optimizer."""
    given = list(dict.fromkeys(map(id, trained)))
    new = {id(tensor): tensor for tensor in parameters.values() if tensor.requires_grad}
    new = {key: tensor for key, tensor in new.items() if key not in given}
    if not stale or not new or is_master(stale, new.values()):
        return []
    old, shapes = set(map(id, stale)), Counter(tensor.shape for tensor in new.values())
    has_shapes = not Counter(tensor.shape for tensor in stale) - shapes
    # A temperature beside the model is no weight of it.
    has_ranks = not Counter(len(tensor.shape) for tensor in new.values()) - Counter(len(t.shape) for t in stale)
    models = (parameters.values(), [tensor for tensor in parameters.values() if tensor.requires_grad])
    # All else in the optimizer is the whole model in order, and the stale ones are at the places of the new ones.
    is_model = len(old) < len(given) and any(
        (has_ranks and _is_in_places(given, old, keys, new))
        # Weights that are computed of several new ones, as by weight_norm, come after what is not computed.
        or (has_shapes and keys[0] not in new and _without(given, old) == _without(keys, new))
        for keys in (list(dict.fromkeys(map(id, tensors))) for tensors in models)
    )
    if not (is_model or (has_shapes and len(stale) == len(new))):
        return []
    return [name for name, tensor in parameters.items() if id(tensor) in new]


def _is_in_places(given: Sequence[int], stale: Collection[int], keys: Sequence[int], new: Collection[int]) -> bool:
    """Return whether a model has new keys where an optimizer has stale ones, and no more of them."""
    before, now = _runs(given, stale), _runs(keys, new)
    return len(before) == len(now) and all(
        old == this if isinstance(old, list) else isinstance(this, int) and old >= this
        for old, this in zip(before, now, strict=True)
    )


def _runs(keys: Iterable[int], others: Collection[int]) -> list[list[int] | int]:
    """Keys in rows, and how many others are between these."""
    rows = ((is_other, [*row]) for is_other, row in groupby(keys, others.__contains__))
    return [len(row) if is_other else row for is_other, row in rows]


def _without(keys: Iterable[int], others: Collection[int]) -> list[int]:
    return [key for key in keys if key not in others]


def is_master(trained: Collection[torch.Tensor], reached: Collection[torch.Tensor]) -> bool:
    """Whether an optimizer may have copies of another precision, to which something else brings the gradients."""
    return bool(reached) and {tensor.dtype for tensor in trained}.isdisjoint(tensor.dtype for tensor in reached)


def find_foreign(flow: Flow, aside: Mapping[str, torch.Tensor], leaves: Iterable[Value]) -> list[Value]:
    """Return unnamed leaves if all of them are parameters of models other than the recorded one."""
    own = {id(tensor) for tensor in aside.values()}
    # A view that was made under no_grad counts as a leaf.
    owners = [*dict.fromkeys(map(flow.owner_of, leaves))]
    given = [flow.outside[owner.number] for owner in owners if owner.maker == FROM_OUTSIDE]
    are_parameters = len(given) == len(owners) and all(outside.role == "parameter" for outside in given)
    # The model that had them may be gone.
    return owners if are_parameters and not any(id(flow.tensor_of(owner)) in own for owner in owners) else []


def _are_copies(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other or one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if not (one.requires_grad and other.requires_grad):
        # What does not learn stays equal.
        return False
    # To compare distributed tensors takes all processes; the parts that this one has tell enough.
    one, other = held_by(one.detach()), held_by(other.detach())
    if one.data_ptr() == other.data_ptr():
        # What is written to one is in the other.
        return False
    # Equal numbers throughout are an initialisation, and no copy.
    return bool(one.numel() > 1 and torch.equal(one, other) and one.min() != one.max())


def _collect(name: str, value: object, found: dict[str, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        leaf = value if value.is_leaf else _parameter_behind(value)
        if leaf is not None and leaf.requires_grad:
            found[name] = leaf
    elif isinstance(value, (list, tuple, dict)):
        for key, entry in _entries_of(value):
            shown = f"{name}[{key!r}]" if type(key) in (int, str) else f"{name}[{type(key).__name__}]"
            if isinstance(entry, torch.Tensor):
                _collect(shown, entry, found)
            elif isinstance(entry, nn.Module):
                for own, parameter in named_parameters_in(entry):
                    _collect(f"{shown}.{own}", parameter, found)


def _parameter_behind(value: torch.Tensor) -> torch.Tensor | None:
    # It alone makes the tensor, as in ``nn.Parameter(numbers).to(device)``.
    def only(fn: GradFn) -> GradFn | None:
        made_of = [each for each, _ in fn.next_functions if each is not None]
        return made_of[0] if len(made_of) == 1 else None

    first = value.grad_fn
    last = None if first is None else [*islice(chain(first, only), _MOST_BACK)][-1]
    leaf = getattr(last, "variable", None)
    return leaf if isinstance(leaf, nn.Parameter) else None


def _entries_of(container: list[object] | tuple[object, ...] | dict[object, object]) -> Iterable[tuple[object, object]]:
    """Return the entries of a container as it has them: a class that is made from these may iterate otherwise."""
    if isinstance(container, dict):
        return dict.items(container)
    return enumerate(list.__iter__(container) if isinstance(container, list) else tuple.__iter__(container))


class Subject(NamedTuple):
    """What is to be explained."""

    flow: Flow
    tensors: Mapping[str, torch.Tensor]
    # The names that a module gives.
    owned: frozenset[str]
    # What backward would start from, with the graph if there is one.
    captured: Sequence[torch.Tensor]
    live: LiveGraph | None
    # The tensors of the optimizer if there is one.
    trained: Sequence[torch.Tensor] | None
    # Names that a module computes of its parameters.
    parametrized: frozenset[str]
    # The tensors that modules keep otherwise than as parameters and buffers.
    aside: Mapping[str, torch.Tensor]
    # Pairs of parameters that were one tensor.
    untied: Sequence[tuple[str, str]]
    # Those on the backward of modules, by path.
    hooks: Mapping[str, Sequence[object]]
    # The names of parameters that a module has only while it runs.
    lent: frozenset[str]
    paths: Mapping[nn.Module, str]
    # The variables of modules that were called from outside any other, by id().
    variables: Mapping[int, str]

    def tied(self) -> tuple[tuple[str, ...], ...]:
        """Return the names that are of one tensor."""
        names = grouped((id(tensor), name) for name, tensor in self.tensors.items())
        return tuple(tuple(group) for group in names.values() if len(group) > 1)


def subject_of(
    flow: Flow,
    modules: Modules,
    captured: Sequence[torch.Tensor],
    live: LiveGraph | None,
    ran: Mapping[str, torch.Tensor],
    *,
    variables: Mapping[int, str],
    params: Names | None,
    optimizer: Any,
) -> Subject:
    """Return the subject of captured tensors; ``ran`` are the parameters that modules had only while they ran."""
    held = None if optimizer is None else _held_by(optimizer)
    # Backward gives a gradient to the form that the forward ran with, and the optimizer has the other.
    whole = {id(form): forms[0] for forms in forms_of_sharded(modules.paths) for form in forms}
    owned = [entry for entry in modules.owned if entry.is_parameter]
    # What has no data cannot have run: offloading puts a tensor with data in its place for the call.
    lent = {name: ran[name] for entry in owned if entry.tensor.is_meta for name in entry.names if name in ran}
    whole.update((id(entry.tensor), lent[name]) for entry in owned for name in entry.names if name in lent)
    named = {name: whole.get(id(entry.tensor), entry.tensor) for entry in owned for name in entry.names}
    extra = dict(named_tensors(params))
    return Subject(
        flow,
        {**named, **extra},
        frozenset(named),
        captured,
        live,
        None if held is None else [whole.get(id(tensor), tensor) for tensor in held],
        frozenset(name for name in extra if f"parametrizations.{name}.original" in named),
        tensors_aside(modules.paths),
        broken_ties(modules.paths),
        hooks_by_module(modules.paths),
        frozenset(lent),
        modules.paths,
        variables,
    )


def _held_by(optimizer: Any) -> list[torch.Tensor]:
    several = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not several:
        raise CaptureError("optimizer is an empty list: give the optimizers of the step, or leave it out")
    for each in several:
        if getattr(each, "param_groups", None) is None:
            raise CaptureError(f"optimizer is no optimizer of torch.optim but {type(each).__name__}")
    return [tensor for each in several for group in each.param_groups for tensor in group["params"]]
