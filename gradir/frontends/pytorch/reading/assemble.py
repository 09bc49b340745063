"""From captured tensors to a Graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradir.errors import CaptureError
from gradir.frontends.pytorch.private import FakeTensor, without_overrides
from gradir.frontends.pytorch.reading.distributed import Groups, placements_of
from gradir.frontends.pytorch.reading.nodes import Assembly, NotedSources
from gradir.frontends.pytorch.reading.outputs import Captured, flatten
from gradir.frontends.pytorch.reading.reach import hidden_among
from gradir.frontends.pytorch.reading.scopes import FlatParameters, cuts, scope_table
from gradir.frontends.pytorch.reading.tensors import (
    Modules,
    NamedTensors,
    Owned,
    TensorNodes,
    modules_below,
    modules_of,
)
from gradir.frontends.pytorch.reading.walk import GradFn, Walk, walk
from gradir.gcpause import paused_gc
from gradir.ir import Cut, Graph, Producer
from gradir.ir.model import MOST
from gradir.ir.records import sound
from gradir.ir.validate import vouch
from gradir.protocols import Names, Verification
from gradir.version import __version__

_total_of: Final = attrgetter("total")


def capture(outputs: object, *, model: object = None, params: Names | None = None) -> LiveGraph:
    """Capture the graph behind tensors; see `gradir.capture`."""
    with paused_gc():
        return assemble(flatten(outputs), modules_below(modules_of(model)), params=params)


class LiveGraph(NamedTuple):
    """A graph together with the live objects it was made of.

    ``grad_fns`` maps each grad_fn to its node's id, ``leaves`` the id of each leaf's node to its tensor. ``unreached``
    are the parameters that the graph's cuts name, in their order; an empty one stands for what is not initialised.
    ``roots`` are the modules by their paths' first names. ``forward`` is the graph of the forward that made it, where
    both were asked for, or why there is none.
    """

    graph: Graph
    captured: list[Captured]
    grad_fns: dict[GradFn, str]
    leaves: dict[str, torch.Tensor]
    unreached: list[torch.Tensor]
    roots: Mapping[str, nn.Module]
    forward: Graph | str = ""

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
    sources: NotedSources | None = None,
    groups: Groups | None = None,
) -> LiveGraph:
    """Make the graph of the captured tensors, which may have been ``walked`` already.

    The other arguments come from a recording: ``scope_of`` gives the module path of each grad_fn, or ``None`` if it is
    ambiguous, ``calls`` counts the calls of modules, ``inside`` are modules that a custom Function ran, and
    ``temporary`` the parameters that modules had only while they ran.
    """
    if torch.compiler.is_compiling():
        raise CaptureError("capture inside torch.compile sees no grad_fn: capture outside the compiled function")
    # What is dropped before the collector runs again need not be looked at by it, and no class or mode of the user's
    # need be told of what is read.
    with paused_gc(), without_overrides():
        walked = walk(captured) if walked is None else walked
        owned = modules.owned
        temporary = _with_every_name(temporary, owned)
        known = [*owned, *temporary]
        placements = placements_of(modules.paths, [entry.tensor for entry in owned])
        named = NamedTensors(known, params)
        assembly = Assembly(
            captured, walked, named, TensorNodes(known), scope_of, sources=sources, placements=placements, groups=groups
        )
        nodes = assembly.nodes()
        grad_fns, leaves = assembly.grad_fns(), assembly.leaves()
        reached = set(map(id, leaves.values()))
        asking = (entry for entry in owned if entry.is_parameter and entry.tensor.requires_grad)
        unreached = [entry for entry in asking if id(entry.tensor) not in reached]
        if unreached:
            # Not those in whose place the model had others while it ran, nor parts of a flat leaf that no module has.
            replaced = {name for entry in temporary if id(entry.tensor) in reached for name in entry.names}
            known_ids = {id(entry.tensor) for entry in known}
            flat = FlatParameters([leaf for leaf in leaves.values() if id(leaf) not in known_ids])
            unreached = [
                entry for entry in unreached if replaced.isdisjoint(entry.names) and not flat.contain(entry.tensor)
            ]
        hidden = hidden_among(
            [entry.tensor for entry in unreached], walked.edges, inside, is_recorded=scope_of is not None
        )
        graph = Graph.of(
            nodes,
            scope_table(modules.paths, owned, calls or {}),
            cuts(unreached, hidden, placements),
            Producer(
                __version__,
                "torch",
                str(torch.__version__),
                {
                    "scopes": scope_of is not None,
                    "sources": sources is not None,
                    # Only where it is so: what has data need not say it.
                    **({"callers": True} if getattr(scope_of, "tells_callers", False) else {}),
                    **({"fake": True} if any(isinstance(entry.tensor, FakeTensor) for entry in captured) else {}),
                },
            ),
        )
        # Every text of the user's in a node is made plain, every kind of tensor described once, and the walk gave the
        # order: a look at each node again would cost more than to write it. The same is true of the scopes, but for
        # sums that are too large. The few other records are looked at.
        if max(map(_total_of, graph.scopes.values()), default=0) <= MOST and sound(graph.cuts, Cut):
            vouch(graph)
        tensors = [entry.tensor for entry in unreached]
        # A lazy module's parameter refuses every use before the module ran.
        usable = [torch.empty(0, requires_grad=True) if is_lazy(tensor) else tensor for tensor in tensors]
        return LiveGraph(graph, captured, grad_fns, leaves, usable, modules.roots)


def _with_every_name(temporary: Sequence[Owned], owned: Sequence[Owned]) -> Sequence[Owned]:
    """The temporary parameters with all names of those in whose place they were; not what a module has anyway."""
    if not temporary:
        return temporary
    own = {id(entry.tensor) for entry in owned}
    entries = {name: entry for entry in owned for name in entry.names}
    return [
        entries.get(entry.names[0], entry)._replace(tensor=entry.tensor, is_registered=False)
        for entry in temporary
        if id(entry.tensor) not in own
    ]
