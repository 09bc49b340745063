"""What torch itself says of a graph, and where a captured graph says something else.

Nothing here asks gradir. The live graph is walked by `next_functions` from the loss; which captured node stands for
which live object is found by walking both in step (`torchviz_oracle.Correspondence`), which compares names, slots,
numbers of outputs and bases of views on the way. Which module made a node comes from what modules return, what a
function keeps from its unpacked tensors, and which parameters learn from the ``.grad`` that a plain backward leaves on
a second model, which nothing recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from module_truth import ModuleTruth
from torch import Tensor, nn
from torchviz_oracle import Correspondence

from gradir.ir import Graph, Node

__all__ = ["Engine", "Walk", "disagreements", "engine", "walk"]


class Walk(NamedTuple):
    """Every grad_fn behind a tensor, and how many edges there are between them."""

    functions: list[Any]
    edges: int

    @property
    def kinds(self) -> Counter[str]:
        """How many there are of each name."""
        return Counter(fn.name() for fn in self.functions)


def walk(tensor: Tensor) -> Walk:
    """Follow `next_functions`, without recursion."""
    found = {tensor.grad_fn: None}
    pending = [tensor.grad_fn]
    edges = 0
    while pending:
        for fn, _ in pending.pop().next_functions:
            if fn is None:
                continue
            edges += 1
            if fn not in found:
                found[fn] = None
                pending.append(fn)
    return Walk(list(found), edges)


class Engine(NamedTuple):
    """What a plain backward did: the names of each trainable parameter that has a gradient then, and of the others.

    ``steady`` tells whether another run makes the same loss: some models draw numbers that no seed rules.
    """

    kinds: Counter[str]
    loss: Tensor
    steady: Callable[[], bool]
    learns: set[frozenset[str]]
    rests: set[frozenset[str]]


def engine(model: nn.Module, loss: Tensor, again: Callable[[], Tensor]) -> Engine:
    """Run the backward of a model that nothing recorded; ``again`` builds it once more and gives its loss."""
    kinds = walk(loss).kinds
    # torch.cond and the like look at the walked nodes no more than a plain run does: they are gone by now.
    loss.backward()
    names: dict[Tensor, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names.setdefault(parameter, []).append(name)
    learns = {frozenset(own) for parameter, own in names.items() if parameter.grad is not None}
    rests = {frozenset(own) for own in names.values()} - learns
    return Engine(kinds, loss.detach(), lambda: _same(loss, again()), learns, rests)


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.detach().nan_to_num(), other.detach().nan_to_num())


def disagreements(graph: Graph, loss: Tensor, model: nn.Module, truth: ModuleTruth, ran: Engine) -> Iterator[str]:
    """Where a captured graph says something else than torch; one short sentence each."""
    walked = walk(loss)
    functions = [node for node in graph.nodes.values() if node.role == "function"]
    edges = sum(1 for node in functions if node.op != "accumulate_grad" for ref in node.inputs if ref is not None)
    if len(functions) != len(walked.functions):
        yield f"{len(functions)} nodes were captured of {len(walked.functions)}"
    if edges != walked.edges:
        yield f"{edges} edges were captured of {walked.edges}"
    if walked.kinds != ran.kinds:
        yield f"recorded, the model makes other nodes: {_change(ran.kinds, walked.kinds)}"
    if not _same(loss, ran.loss) and ran.steady():
        yield "recorded, the model makes another loss"
    yield from _wrong_parameters(graph, ran)
    yield from _wrong_modules(graph, model, truth)
    try:
        names = Correspondence(graph, [loss])
    except AssertionError as error:
        yield f"wiring: {error}"
        return
    live = {node.id: names.live[node.id] for node in functions}
    yield from _wrong_outputs(functions, live, truth)
    yield from _wrong_scopes(functions, live, truth)
    yield from _wrong_saved(functions, live)


def _change(before: Counter[str], after: Counter[str]) -> str:
    return f"{dict(after - before)} instead of {dict(before - after)}"


def _wrong_parameters(graph: Graph, ran: Engine) -> Iterator[str]:
    reached = {frozenset(node.names) for node in graph.nodes.values() if node.role == "parameter"}
    cut = {frozenset(cut.names): cut.kind for cut in graph.cuts}
    for names in sorted(map(min, reached - ran.learns)):
        yield f"{names}: said to be reached, and has no gradient"
    # A custom Function runs what it likes: what it may reach is said to be hidden, and may have a gradient or none.
    hidden = {names for names, kind in cut.items() if kind == "hidden"}
    for names in sorted(map(min, ran.learns - reached - hidden)):
        yield f"{names}: has a gradient, and is not said to be reached"
    for names in sorted(map(min, ran.rests - set(cut))):
        yield f"{names}: has no gradient, and is not said to be cut"


def _wrong_modules(graph: Graph, model: nn.Module, truth: ModuleTruth) -> Iterator[str]:
    modules = dict(model.named_modules())
    for path in modules.keys() ^ {scope.path for scope in graph.scopes.values()}:
        yield f"{path or 'the model'}: a module that only one side knows"
    for path, module in modules.items():
        scope = graph.scopes.get(path)
        if scope is None:
            continue
        if scope.calls != truth.calls[path]:
            yield f"{path or 'the model'}: {scope.calls} calls were recorded of {truth.calls[path]}"
        total = sum(parameter.numel() for parameter in module.parameters())
        if scope.total != total or scope.class_name != type(module).__name__:
            yield f"{path or 'the model'}: a {scope.class_name} of {scope.total} parameters, not {total}"


def _wrong_outputs(functions: list[Node], live: dict[str, Any], truth: ModuleTruth) -> Iterator[str]:
    for node in functions:
        fn = live[node.id]
        said = [(output.dtype, output.shape) for output in node.outputs]
        kept = [(_dtype(meta.dtype), tuple(meta.shape)) for meta in fn._input_metadata]
        if said != kept:
            yield f"{node.id}: outputs {said}, torch has {kept}"
        for number, (dtype, shape) in enumerate(said):
            returned = truth.returned.get((fn, number))
            if returned is not None and (dtype, shape) != (_dtype(returned[0]), returned[1]):
                yield f"{node.id}: output {number} is {dtype} {shape}, and was returned as {returned}"


def _wrong_scopes(functions: list[Node], live: dict[str, Any], truth: ModuleTruth) -> Iterator[str]:
    for node in functions:
        made_by = truth.made_by.get(live[node.id], "")
        if node.scope != made_by and node.op != "accumulate_grad":
            yield f"{node.id}: made by {made_by or 'the model'}"


def _wrong_saved(functions: list[Node], live: dict[str, Any]) -> Iterator[str]:
    storages: dict[int, int] = {}
    captured: dict[str, int] = {}
    for node in functions:
        kept: dict[str, Tensor | None] = dict(_kept_by(live[node.id]))
        if set(kept) != {saved.slot for saved in node.saved}:
            yield f"{node.id}: keeps {sorted(kept)}, said to keep {[saved.slot for saved in node.saved]}"
            continue
        for saved in node.saved:
            tensor = kept[saved.slot]
            if tensor is None or saved.state != "held":
                if tensor is not None or saved.state == "held":
                    yield f"{node.id}: {saved.slot} is said to be {saved.state}"
                continue
            size = _storage(tensor, storages)
            if (saved.dtype, saved.shape, saved.bytes) != (_dtype(tensor.dtype), tuple(tensor.shape), size):
                yield f"{node.id}: {saved.slot} is a {tensor.dtype} {tuple(tensor.shape)} of {size} bytes"
            captured[saved.storage or f"{node.id}.{saved.slot}"] = saved.bytes or 0
    if sum(storages.values()) != sum(captured.values()):
        yield f"{sum(captured.values())} bytes are said to be kept, and {sum(storages.values())} are"


def _kept_by(fn: Any) -> Iterator[tuple[str, Tensor | None]]:
    """The unpacked tensor in each slot that holds one; None for one that cannot be unpacked any more."""
    for attribute in dir(fn):
        if not attribute.startswith("_raw_saved_"):
            continue
        slot = attribute.removeprefix("_raw_saved_")
        try:
            value = getattr(fn, "saved_tensors" if slot == "tensors" else f"_saved_{slot}")
        except RuntimeError:
            yield slot, None
            continue
        if isinstance(value, tuple | list):
            yield from ((f"{slot}[{number}]", entry) for number, entry in enumerate(value) if entry is not None)
        elif value is not None:
            yield slot, value


def _storage(tensor: Tensor, storages: dict[int, int]) -> int | None:
    """The bytes of the storage behind a tensor, which is noted; None where there is none."""
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
    storages[storage._cdata] = storage.nbytes()
    return storage.nbytes()


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
