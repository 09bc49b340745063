"""Find the tensors to capture in the outputs of a program.

They may be in containers, records and objects, in any nesting. gradir reads only stored attributes: it runs no property
and no method of a mapping, and consumes no iterator.
"""

from __future__ import annotations

import gc
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import ReferenceType

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from gradir.errors import CaptureError, warn
from gradir.frontends.pytorch import private
from gradir.frontends.texts import text_of
from gradir.frontends.walks import follow

_DEEPEST: Final = 1_000
# An object that refers to the whole program would cost more than its capture.
_MOST_OBJECTS: Final = 100_000

# gradir does not look into these: the contents of a module or an optimizer are no outputs.
_WHOLE: Final = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, range, memoryview, type, Enum),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(BaseException, partial, ReferenceType),
    *(torch.Tensor, GradientEdge, nn.Module, torch.optim.Optimizer),
    *(torch.dtype, torch.device, torch.layout, torch.Size),
)

_Entries = Iterable[tuple[object, object]]


class Leaf(NamedTuple):
    """A tensor, or a value without one, with the steps that lead to it from the outside."""

    value: Any
    steps: _Steps | None

    @property
    def path(self) -> str:
        """The place in the outputs, empty for a single output."""
        keys = [text_of(step.key) for step in follow(self.steps, lambda step: step.above)]
        return ".".join(reversed(keys))


class _Steps(NamedTuple):
    key: object
    above: _Steps | None


class _Object:
    """An object that the search looked into: it counts as a leaf unless it contains a tensor."""

    __slots__ = ("holds_a_tensor", "outer")

    def __init__(self, outer: _Object | None) -> None:
        self.outer, self.holds_a_tensor = outer, False


class OfEdge(torch.Tensor):
    """Stands for the tensor of a gradient edge."""

    edge: GradientEdge
    requires_grad: Any = True
    is_leaf: Any = False
    grad_fn: Any = property(lambda self: self.edge.node)
    __torch_function__: Any = private.no_override


def _stand_in_for_edge(value: Any) -> Any:
    if not isinstance(value, GradientEdge):
        return value
    made = private.output_metadata(value.node)[value.output_nr]
    alone = torch.zeros((), dtype=made.dtype, device=made.device)
    tensor: Any = private.make_subclass(OfEdge, alone.expand(tuple(made.shape)))
    tensor.edge = value
    return tensor


def start_of(tensor: torch.Tensor) -> Any:
    """Return the start of a backward."""
    return tensor.edge if isinstance(tensor, OfEdge) else tensor


def tensors_of(outputs: object) -> list[torch.Tensor]:
    """Return every tensor in the outputs, in order."""
    values = (_stand_in_for_edge(leaf.value) for leaf in find_leaves(outputs))
    return [value for value in values if issubclass(type(value), torch.Tensor)]


def find_leaves(outputs: object) -> list[Leaf]:
    """Return every tensor and every other leaf in the outputs, in order; gradir enters a shared container once."""
    # The leaves, each with its record if it is an object, and the ids of tensors and of containers and objects.
    found, tensors, met, objects = list[tuple[Leaf, _Object | None]](), set[int](), set[int](), 0
    # The values to look at, each with the steps to it, the object around it, and its depth.
    waiting: list[tuple[object, _Steps | None, _Object | None, int]] = [(outputs, None, None, 0)]
    while waiting:
        value, steps, owner, depth = waiting.pop()
        if issubclass(type(value), torch.Tensor):
            if owner is None or id(value) not in tensors:
                found.append((Leaf(value, steps), None))
            tensors.add(id(value))
            while owner is not None and not owner.holds_a_tensor:
                owner.holds_a_tensor = True
                owner = owner.outer
        elif id(value) not in met:
            entries, is_object = _entries_of(value)
            is_too_deep = depth > _DEEPEST or (is_object and objects >= _MOST_OBJECTS)
            is_whole = entries is None or (is_too_deep and (is_object or owner is not None))
            if is_too_deep and not is_whole:
                raise CaptureError("the outputs are nested too deeply")
            inner = _Object(owner) if is_object and not is_whole else None
            if owner is None and (is_whole or inner is not None):
                found.append((Leaf(value, steps), inner))
            if entries is not None and not is_whole:
                met.add(id(value))
                objects += inner is not None
                below = [(each, _Steps(key, steps), inner or owner, depth + 1) for key, each in entries]
                waiting += reversed(below)
    return [leaf for leaf, thing in found if thing is None or not thing.holds_a_tensor]


def _entries_of(value: Any) -> tuple[_Entries | None, bool]:
    """Return the entries of a value by key, or ``None`` for a leaf, and whether it is an object and no record."""
    kind = type(value)
    if kind is types.MappingProxyType:
        return _entries_of(gc.get_referents(value)[0])
    if issubclass(kind, _WHOLE) or hasattr(kind, "__next__"):
        return None, False
    for base, entries_of in _CONTAINERS.items():
        if issubclass(kind, base):
            return entries_of(value), False
    if issubclass(kind, Mapping):
        dicts = [entry for _, entry in attributes_of(value) if issubclass(type(entry), dict)]
        if len(dicts) == 1:
            return dict.items(dicts[0]), False
    module = str(kind.__module__)
    if module.startswith("torch.") and not module.startswith("torch.distributions."):
        return None, False
    return list(attributes_of(value)) or None, not (is_dataclass(kind) or issubclass(kind, types.SimpleNamespace))


def attributes_of(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the stored attributes of an object, including those in slots."""
    yield from private.fields_of(value).items()
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if type(member) is types.MemberDescriptorType and name != "__dict__":
                try:
                    yield name, member.__get__(value)
                except AttributeError:
                    continue


def _tuple_entries(value: tuple[object, ...]) -> _Entries:
    kind, entries = type(value), tuple.__iter__(value)
    # A named tuple has these. The results of torch's operations have them too, but use numbers.
    names = () if kind.__module__ == "torch.return_types" else getattr(kind, "__match_args__", ())
    return zip(names, entries, strict=True) if len(names) == len(value) else enumerate(entries)


def _set_entries(value: set[object] | frozenset[object]) -> _Entries:
    def order_of(entry: object) -> int:
        fn = entry.grad_fn if isinstance(entry, torch.Tensor) else None
        return -1 if fn is None else private.sequence_number(fn)

    # A set orders tensors by address, which differs between runs.
    return enumerate(sorted(value, key=order_of))


# The methods of the base classes: a derived class may iterate differently.
_CONTAINERS: Final[dict[Any, Callable[[Any], _Entries]]] = {
    tuple: _tuple_entries,
    list: lambda value: enumerate(list.__iter__(value)),
    dict: dict.items,
    deque: lambda value: enumerate(deque.__iter__(value)),
    set: _set_entries,
    frozenset: _set_entries,
}


class Captured(NamedTuple):
    """A tensor to show: an output at a ``path`` in the outputs, or the base of a view among them.

    ``producer`` is the grad_fn and the number of its output, and ``base`` the place of the base among these.
    """

    role: str
    path: str
    tensor: torch.Tensor
    producer: tuple[Any, int] | None
    base: int | None = None


def flatten(outputs: object, *, warns: bool = True) -> list[Captured]:
    """Return the tensors with a graph in the outputs, and the bases of views; warn about all other leaves."""
    leaves = find_leaves(outputs)
    captured = _capture_leaves(leaves)
    rest = [leaf for leaf in leaves if not _has_graph(leaf)]
    if rest and warns:
        kinds = ("a tensor" if isinstance(leaf.value, torch.Tensor) else type(leaf.value).__name__ for leaf in rest)
        named = ", ".join(f"{_name_leaf(leaf)} ({kind})" for leaf, kind in zip(rest[:5], kinds, strict=False))
        more = f" and {len(rest) - 5} more" if len(rest) > 5 else ""
        warn(f"left out, since it has no graph: {named}{more}")
    return captured


def _capture_leaves(leaves: list[Leaf]) -> list[Captured]:
    outputs = [leaf for leaf in leaves if _has_graph(leaf)]
    if not outputs:
        raise _no_graph(leaves)
    # Reading the grad_fn of a view may make a new one, so read each once.
    captured = [Captured("output", leaf.path, *_read(_stand_in_for_edge(leaf.value))) for leaf in outputs]
    places = {id(leaf.value): index for index, leaf in enumerate(outputs)}
    for index, (_, path, tensor, _, _) in enumerate([*captured]):
        base = private.base_of(tensor)
        if base is None:
            continue
        place = places.setdefault(id(base), len(captured))
        if place == len(captured):
            captured.append(Captured("view_base", path, *_read(base)))
        captured[index] = captured[index]._replace(base=place)
    return captured


def _no_graph(leaves: list[Leaf]) -> CaptureError:
    # The user surely means the tensor, even if other values precede it.
    for leaf in leaves:
        if isinstance(leaf.value, torch.Tensor):
            return CaptureError(
                f"{_name_leaf(leaf)} has no graph: {_explain_no_graph(leaf.value)}; 'gradir explain' finds the line, "
                "and --graph forward captures the forward all the same"
            )
    if not leaves:
        return CaptureError("cannot capture: the outputs have no tensor")
    kind = type(leaves[0].value)
    advice = "the tensor that item() was called on" if issubclass(kind, float | int) else "a tensor such as the loss"
    return CaptureError(f"{_name_leaf(leaves[0])} is not a tensor but {kind.__name__}; give {advice}")


def _has_graph(leaf: Leaf) -> bool:
    value = leaf.value
    if isinstance(value, GradientEdge):
        # A program can construct one from any values.
        node: object = value.node
        return isinstance(node, Node) and value.output_nr in range(len(private.output_metadata(node)))
    return isinstance(value, torch.Tensor) and value.requires_grad


def _read(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[Any, int] | None]:
    if isinstance(tensor, OfEdge):
        return tensor, (tensor.edge.node, tensor.edge.output_nr)
    return tensor, (get_gradient_edge(tensor).node, private.output_nr_of(tensor)) if tensor.requires_grad else None


def _explain_no_graph(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if not (tensor.is_floating_point() or tensor.is_complex()):
        advice = "capture a floating-point tensor such as a log-probability instead"
        return f"its dtype {dtype} carries no gradient (samples, indices and comparisons never do); {advice}"
    if tensor.is_inference():
        return "it was made under torch.inference_mode()"
    if not torch.is_grad_enabled():
        return "gradients are disabled here (torch.no_grad or set_grad_enabled(False))"
    return "nothing it was computed from requires grad, or it was detached or made under torch.no_grad()"


def _name_leaf(leaf: Leaf) -> str:
    return f"output {leaf.path!r}" if leaf.steps else "the output"
