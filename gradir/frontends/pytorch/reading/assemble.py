"""Make a Graph of captured tensors, with the table of its modules and the parameters that it does not reach."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import nn
from torch.nn.parameter import is_lazy

from gradir.errors import CaptureError
from gradir.frontends.pytorch.private import FakeTensor, without_overrides
from gradir.frontends.pytorch.reading.attributes import MetadataReader
from gradir.frontends.pytorch.reading.distributed import Groups, placements_of
from gradir.frontends.pytorch.reading.members import details_of, is_training
from gradir.frontends.pytorch.reading.nodes import Assembly, RecordedSources
from gradir.frontends.pytorch.reading.outputs import Captured, start_of
from gradir.frontends.pytorch.reading.reach import find_hidden
from gradir.frontends.pytorch.reading.tensors import FlatParameters, Modules, NamedTensors, Owned, TensorNodes, ones_for
from gradir.frontends.pytorch.reading.walk import GradFn, Walk, walk
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import element_sums
from gradir.gcpause import pause_gc
from gradir.ir import AttrValue, Cut, Graph, Producer, Scope
from gradir.ir.memo import Memo
from gradir.ir.model import INT64_MAX
from gradir.ir.validate import are_valid, mark_valid
from gradir.protocols import Names, Verification
from gradir.version import __version__

# The extra_repr of a user's class may have any length.
_MAX_DETAIL = 1_000


def scope_table(paths: Mapping[nn.Module, str], owned: Iterable[Owned], calls: Mapping[int, int]) -> tuple[Scope, ...]:
    """Return one `Scope` for each module, in registration order; ``calls`` are by id() of the modules."""
    own, total, trainable = element_sums(_count_elements(owned))
    class_names = Memo[type, str](lambda kind: plain_text(kind.__name__))
    details = Memo[str, str](lambda text: plain_text(" ".join(text.split()))[:_MAX_DETAIL])
    scopes = []
    for module, path in paths.items():
        counts, detail = (calls.get(id(module), 0), own[path], total[path], trainable[path]), details_of(module)
        shown = details[detail] if detail else ""
        scopes.append(Scope(path, class_names[type(module)], shown, *counts, is_training(module)))
    return tuple(scopes)


def _count_elements(owned: Iterable[Owned]) -> Iterator[tuple[tuple[str, ...], int, bool]]:
    for entry in owned:
        tensor = entry.tensor
        if type(tensor) is nn.Parameter or (entry.is_parameter and not is_lazy(tensor)):
            count = tensor.numel()
            # A count that depends on a symbolic size is no int.
            if type(count) is int:
                yield tuple(dict.fromkeys(name.rpartition(".")[0] for name in entry.names)), count, tensor.requires_grad


class LiveGraph(NamedTuple):
    """A graph together with the live objects it was made of.

    ``unreached`` are the parameters that its cuts name, in the same order, with an empty tensor for a lazy parameter.
    ``forward`` is the forward graph if the request asks for both graphs, or the reason why there is none.
    """

    graph: Graph
    captured: list[Captured]
    grad_fns: dict[GradFn, str]
    leaves: dict[str, torch.Tensor]
    unreached: list[torch.Tensor]
    roots: Mapping[str, nn.Module]
    forward: Graph | str = ""

    def with_options(self, options: Mapping[str, AttrValue]) -> LiveGraph:
        """Return the capture with further options of the graph's producer."""
        producer = replace(self.graph.producer, options={**self.graph.producer.options, **options})
        return self._replace(graph=replace(self.graph, producer=producer))

    def starts_and_seeds(self) -> tuple[list[Any], list[torch.Tensor]]:
        """Return the outputs from which a backward pass starts, and a gradient for each."""
        outputs = [entry.tensor for entry in self.captured if entry.role == "output"]
        return [*map(start_of, outputs)], [*map(ones_for, outputs)]

    def verify(self, *, keep_graph: bool = True) -> Verification:
        """Run a real backward and compare it with the graph; see `gradir.verify`."""
        from gradir.frontends.pytorch.verifying.verify import verify

        return verify(self, keep_graph=keep_graph)


def assemble(
    captured: list[Captured],
    modules: Modules,
    *,
    params: Names | None = None,
    walked: Walk | None = None,
    scope_of: Callable[[Sequence[GradFn]], Sequence[str | None]] | None = None,
    calls: Mapping[int, int] | None = None,
    inside: Collection[nn.Module] = (),
    temporary: Sequence[Owned] = (),
    sources: RecordedSources | None = None,
    groups: Groups | None = None,
) -> LiveGraph:
    """Make the graph of the captured tensors, perhaps ``walked`` already.

    A recording passes ``scope_of``, which returns the module path of each grad_fn, or ``None`` if it is ambiguous. It
    passes the ``calls`` of modules, and those ``inside`` a custom Function. ``temporary`` are the parameters that
    modules had only while they ran.
    """
    if torch.compiler.is_compiling():
        raise CaptureError("capture inside torch.compile sees no grad_fn: capture outside the compiled function")
    # Most of these objects die before the collector would scan them. Overrides of the user must not see the reads.
    with pause_gc(), without_overrides():
        walked = walk(captured) if walked is None else walked
        owned = modules.owned
        temporary = _add_names(temporary, owned)
        known = [*owned, *temporary]
        placements = placements_of(modules.paths, [entry.tensor for entry in owned])
        named = NamedTensors(known, params)
        assembly = Assembly(
            captured, walked, named, TensorNodes(known), scope_of, sources=sources, placements=placements, groups=groups
        )
        nodes = assembly.nodes()
        leaves = assembly.leaves()
        reached = set(map(id, leaves.values()))
        asking = (entry for entry in owned if entry.is_parameter and entry.tensor.requires_grad)
        unreached = [entry for entry in asking if id(entry.tensor) not in reached]
        if unreached:
            # Leave out parameters that were replaced while the model ran, and parts of a flat leaf that no module has.
            replaced = {name for entry in temporary if id(entry.tensor) in reached for name in entry.names}
            known_ids = {id(entry.tensor) for entry in known}
            flat = FlatParameters([leaf for leaf in leaves.values() if id(leaf) not in known_ids])
            others = (entry for entry in unreached if replaced.isdisjoint(entry.names))
            unreached = [entry for entry in others if not flat.contain(entry.tensor)]
        tensors = [entry.tensor for entry in unreached]
        # A custom Function may still reach these.
        hidden = find_hidden(tensors, walked.edges, inside, is_recorded=scope_of is not None)
        metadata = MetadataReader(placements=placements)
        options: dict[str, AttrValue] = {"scopes": scope_of is not None, "sources": sources is not None}
        # Options that are false are left out.
        options |= {"callers": True} if getattr(scope_of, "tells_callers", False) else {}
        options |= {"fake": True} if any(isinstance(entry.tensor, FakeTensor) for entry in captured) else {}
        graph = Graph.of(
            nodes,
            scope_table(modules.paths, owned, calls or {}),
            tuple(
                Cut("hidden" if id(tensor) in hidden else "unreached", names, scope, metadata.read_owned(tensor))
                for tensor, names, scope, _ in unreached
            ),
            Producer(__version__, "torch", str(torch.__version__), options),
        )
        # Nodes and scopes are valid by construction, except for counts that are too large, and validating each would
        # cost more than writing it. The few cuts are validated.
        if max((scope.total for scope in graph.scopes.values()), default=0) <= INT64_MAX and are_valid(graph.cuts, Cut):
            mark_valid(graph)
        # The parameter of a lazy module cannot be used before the module ran.
        usable = [torch.empty(0, requires_grad=True) if is_lazy(tensor) else tensor for tensor in tensors]
        return LiveGraph(graph, captured, assembly.ids, leaves, usable, modules.roots)


def _add_names(temporary: Sequence[Owned], owned: Sequence[Owned]) -> Sequence[Owned]:
    """Return the temporary parameters that no module has now, with all names of the parameters that they replaced."""
    if not temporary:
        return temporary
    own = {id(entry.tensor) for entry in owned}
    entries = {name: entry for entry in owned for name in entry.names}
    others = (entry for entry in temporary if id(entry.tensor) not in own)
    return [entries.get(each.names[0], each)._replace(tensor=each.tensor, is_registered=False) for each in others]
