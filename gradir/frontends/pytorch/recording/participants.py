"""Which of the modules, threads and processes that ran beside a given model took part in what is captured."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gradir.errors import CaptureError
from gradir.frontends.paths import is_installed
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.private import ACCUMULATOR, own_parameters, sequence_number
from gradir.frontends.pytorch.reading.attributes import device_name, shape_of
from gradir.frontends.pytorch.reading.distributed import Groups, forms_of_sharded, mesh_of_tensor, sharding_groups
from gradir.frontends.pytorch.reading.members import ModuleMap, has_parameters, modules_in
from gradir.frontends.pytorch.reading.tensors import Modules, held_by, modules_below, ones_for
from gradir.frontends.pytorch.reading.walk import Walk
from gradir.frontends.pytorch.recording.exchange import Exchange, ExchangeMode
from gradir.frontends.pytorch.recording.operands import OperandNames
from gradir.frontends.pytorch.recording.sources import is_commands, is_internal
from gradir.frontends.pytorch.recording.timelines import Frame, ScopeLookup, Timeline, path_of
from gradir.frontends.texts import plain_text
from gradir.ir import Graph, Producer, Rank
from gradir.spec import own_error
from gradir.version import __version__

if TYPE_CHECKING:
    from gradir.frontends.pytorch.reading.assemble import LiveGraph
    from gradir.frontends.pytorch.reading.walk import GradFn
    from gradir.frontends.pytorch.recording.stepping import UntilStep


class Ran(NamedTuple):
    """What ran while a recorder was entered.

    ``strays`` are the modules that no other module called, and that have nothing to do with the given model. The
    threads in ``recording`` entered the recorder, and are among the ``timelines`` of all that ran modules.
    """

    strays: Sequence[nn.Module]
    timelines: Sequence[Timeline]
    recording: Collection[Timeline]


def strays_among(outermost: Iterable[nn.Module], known: Mapping[nn.Module, str]) -> list[nn.Module]:
    """The modules that have nothing to do with the known ones.

    What wraps a known model, such as its compiled or its distributed form, gives nothing a second name.
    """
    return [module for module in outermost if known.keys().isdisjoint(modules_in(module))]


def variable_of(module: nn.Module, frame: FrameType | None) -> str:
    """Return the module-level variable that has a module, in the outermost file of the user's on the way from a frame.

    Local variables are not looked at: that would keep what they have alive as long as their function runs.
    """
    found = ""
    for outer, _ in walk_stack(frame) if frame is not None else ():
        code = outer.f_code
        if not (is_internal(code) or is_commands(code) or is_installed(code.co_filename)):
            names = (name for name, value in [*outer.f_globals.items()] if value is module)
            found = next((name for name in names if name.isidentifier() and not name.startswith("_")), found)
    return found


def with_strays(modules: Modules, strays: Sequence[nn.Module], variables: Mapping[int, str]) -> Modules:
    """With every stray as a root under the name of its variable or class; a lone stray model is the root itself.

    ``variables`` has the names by id() of the module.
    """
    if strays and not modules.roots:
        # Beside a lone model there may be modules without parameters, such as its criterion.
        models = [module for module in strays if has_parameters(module)] or strays
        if len(models) == 1:
            modules = modules_below({"": models[0]})
            strays = [module for module in strays if module is not models[0]]
    if not strays:
        return modules
    named = dict(modules.roots)
    taken = {*modules.paths.values(), *(path.partition(".")[0] for path in modules.paths.values())}
    counts: dict[str, int] = {}
    for module in strays:
        wanted = plain_text(variables.get(id(module)) or type(module).__name__)
        count = counts.get(wanted, 0) + 1
        while (name := wanted if count == 1 else f"{wanted}_{count}") in taken:
            count += 1
        counts[wanted] = count
        taken.add(name)
        named[name] = module
    return modules_below(named)


def taking_part(ran: Ran, known: Mapping[nn.Module, str], walked: Walk, with_temporary: Mapping[int, nn.Module]) -> Ran:
    """Leave out the strays that made no captured node and have no captured leaf, and the threads that ran only such.

    ``known`` are the given model's modules, and ``with_temporary`` those that had a parameter only while they ran, by
    its id(). Sequence numbers alone do not tell a thread that ran a criterion of this model from one that runs another
    model, so a thread of strays counts for nothing unless one of them has a captured leaf.
    """
    leaves = {id(fn.variable) for fn in walked.edges if type(fn).__name__ == ACCUMULATOR}
    holding = {id(with_temporary[leaf]) for leaf in leaves & with_temporary.keys()}
    place_of = ModuleMap[str]()
    idle, owning = set[int](), set[int]()
    for place, stray in enumerate(ran.strays):
        members = list(modules_in(stray))
        own = {id(tensor) for member in members for tensor in own_parameters(member).values()}
        owns = not leaves.isdisjoint(own) or not holding.isdisjoint(map(id, members))
        (owning if owns else idle).update(map(id, members))
        for member in members:
            place_of.setdefault(member, str(place))
    ignored = idle - owning
    ran_only = {
        line
        for line in ran.timelines
        if all(frame is None or id(frame.module) in ignored for frame in line.snapshot()[1])
    }
    timelines = [line for line in ran.timelines if line in ran.recording or line not in ran_only]
    for module in known:
        place_of.setdefault(module, "")
    lookup = ScopeLookup(timelines, place_of)
    used = set(lookup(list(walked.edges)))
    strays = [stray for place, stray in enumerate(ran.strays) if id(stray) in owning or str(place) in used]
    return Ran(strays, timelines, ran.recording)


def calls_behind(timelines: Iterable[Timeline], walked: Walk) -> Counter[int]:
    """How often each module, by id(), was called on the way to the captured nodes.

    Of the calls from outside any module those count that made such a node, with all the calls inside.
    """
    numbers = sorted(sequence_number(fn) for fn in walked.edges if type(fn).__name__ != ACCUMULATOR)
    calls: Counter[int] = Counter()
    for starts, frames in map(Timeline.snapshot, timelines):
        # Whoever calls a frame stands before it.
        outermost: dict[int, Frame] = {}
        modules: dict[int, int] = {}
        made: set[int] = set()
        places = [bisect_left(numbers, start) for start in starts]
        for frame, begin, end in zip(frames, places, [*places[1:], len(numbers)], strict=True):
            if frame is None or frame.checks:
                continue
            modules[id(frame)] = id(frame.module)
            first = outermost.setdefault(id(frame), outermost.get(id(frame.caller), frame))
            if begin < end:
                made.add(id(first))
        calls.update(module for key, module in modules.items() if id(outermost[key]) in made)
    return calls


class Exchanged:
    """What the threads of a recording exchanged with other processes, and what its nodes and modules are called."""

    def __init__(self, *, is_dry: bool = False) -> None:
        self._is_dry = is_dry
        self._exchanges: dict[Timeline, Exchange] = {}
        self._ids: dict[GradFn, str] = {}
        self._modules: Modules = modules_below({})
        self._device = "cpu"
        self._names = OperandNames()
        self._synced: dict[int, bool] = {}
        self._until: UntilStep | None = None
        self.groups = Groups()
        """Labels the groups of the graph that was captured last."""

    def noting(self, timeline: Timeline) -> ExchangeMode:
        """A context in which this thread's messages are noted."""
        return ExchangeMode(self._exchanges.setdefault(timeline, Exchange(timeline, is_dry=self._is_dry)))

    def note_call(self, module: nn.Module) -> None:
        """Note whether a module is going to reduce the gradients of its call, if it is one that does."""
        if self._until is not None and has_parameters(module):
            self._until.end()
        if isinstance(module, DistributedDataParallel):
            self._synced[id(module)] = getattr(module, private.DDP_SYNCS, True)

    def begin(self, *, is_dry: bool) -> None:
        """Begin another step, and forget what was exchanged so far."""
        self._is_dry = is_dry
        for exchange in self._exchanges.values():
            exchange.begin(is_dry=is_dry)

    def stop_sending(self, until: UntilStep | None) -> None:
        """Send no more, until a step comes."""
        self._until = until
        for exchange in self._exchanges.values():
            exchange.stop_sending(until)

    @property
    def modules(self) -> Modules:
        """The modules of the graph that was captured last."""
        return self._modules

    def number_groups(self) -> None:
        """Label anew."""
        self.groups = Groups()
        if distributed.is_available() and distributed.is_initialized():
            self.groups.number()

    def located(self, live: LiveGraph, modules: Modules) -> LiveGraph:
        """A capture with what was exchanged so far; what comes later is told in its words, see `with_collectives`."""
        self._modules = modules
        self._device = next((device_name(entry.tensor.device) for entry in live.captured), "cpu")
        self._ids.update(live.grad_fns)
        if self._is_dry:
            producer = live.graph.producer
            noted = replace(producer, options={**producer.options, "dry": True})
            live = live._replace(graph=replace(live.graph, producer=noted))
        self._names = OperandNames(modules, live.grad_fns)
        return live._replace(graph=self.with_collectives(live.graph))

    def with_collectives(self, graph: Graph) -> Graph:
        """A graph with this process's rank, and with all that was exchanged."""
        module_of = partial(path_of, paths=self._modules.paths)
        found = [
            collective
            for exchange in self._exchanges.values()
            for collective in exchange.collectives(self.groups, self._ids, module_of, self._names)
        ]
        rank = rank_of(self.groups, self._modules, self._device)
        pipeline = next(filter(None, (exchange.pipeline for exchange in self._exchanges.values())), None)
        if rank is not None:
            rank = replace(rank, wrappers=dict(self._wrappers(graph)))
        if rank is not None and pipeline is not None:
            stage, stages, microbatches = pipeline
            rank = replace(rank, stage=stage, stages=stages, microbatches=microbatches)
        if found and rank is None:
            raise CaptureError("the process group is gone: capture before destroy_process_group")
        return replace(graph, rank=rank, collectives=tuple(found))

    def _wrappers(self, graph: Graph) -> Iterator[tuple[str, tuple[str, ...]]]:
        made = {id(module): known for each in self._exchanges.values() for module, known in each.wrappers.items()}
        by_path = {path: made.get(id(module)) for module, path in self._modules.paths.items()}
        is_alone = all(number == 1 for number, _ in made.values())
        for path, words in wrappers_among(self._modules, self._synced, graph):
            number, group = by_path.get(path) or (0, None)
            yield path, words if is_alone or not number else (*words, f"made:{number}:{self.groups.label(group)}")

    @property
    def waiting(self) -> int | None:
        """How many operations ran, where a thread waits for other processes."""
        every = self._exchanges.values()
        return sum(each.operations for each in every) if any(each.waits for each in every) else None

    def stopped(self, why: str, modules: Modules) -> Graph | None:
        """Return a graph without nodes, with what was exchanged in a step that did not come to its backward."""
        self.number_groups()
        for each in self._exchanges.values():
            each.note_new_group()
        self._modules, self._names = modules, OperandNames(modules)
        empty = Graph({}, producer=Producer(__version__, "torch", str(torch.__version__)))
        graph = self.with_collectives(empty) if distributed.is_initialized() else empty
        if graph.rank is None:
            return None
        if why == "waits" and not any(any(line.frames) for line in self._exchanges):
            why = "starts"
        why = "joins" if any(each.has_joined for each in self._exchanges.values()) else why
        return replace(graph, rank=replace(graph.rank, wrappers={}, stopped=why))

    def with_dry_backward(self, live: LiveGraph) -> LiveGraph:
        """A capture with what its backward would exchange, which runs, uses the graph up, and sends nothing.

        Where a backward ran in the recording, that was noted, and none runs here.

        Raises:
            CaptureError: the backward fails.
        """
        if any(exchange.has_backward for exchange in self._exchanges.values()):
            return live
        exchange = next(iter(self._exchanges.values()))
        with ExchangeMode(exchange, sends=False), torch.autograd.set_multithreading_enabled(False):
            tensors = [entry.tensor for entry in live.captured if entry.role == "output"]
            try:
                torch.autograd.backward(tensors, list(map(ones_for, tensors)))
            except Exception as error:
                raise CaptureError(
                    f"the collectives of backward are found by one in which nothing is sent, which failed: "
                    f"{own_error(error)}"
                ) from error
        return live._replace(graph=self.with_collectives(live.graph))


def rank_of(groups: Groups, modules: Modules, device: str) -> Rank | None:
    """Which process it is that trains these modules on a kind of device; ``None`` where there are no others.

    ``groups`` are those that were met in a graph and in what was exchanged.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    rank = distributed.get_rank()
    members = {label: tuple(distributed.get_process_group_ranks(group)) for label, group in groups.met.items()}
    parts = dict(_parts(modules))
    coordinates = {label: members[label].index(rank) for label in groups.dimensions()}
    for mesh in map(mesh_of_tensor, parts.values()):
        # Where this process is in the dimensions of a mesh that have names.
        coordinates.update(zip(mesh.mesh_dim_names or (), map(int, mesh.get_coordinate() or ()), strict=False))
    shapes = {name: shape_of(held_by(tensor)) for name, tensor in parts.items()}
    return Rank(
        rank,
        distributed.get_world_size(),
        device,
        plain_text(distributed.get_backend()),
        coordinates,
        members,
        {name: shape for name, shape in shapes.items() if shape is not None},
    )


def wrappers_among(modules: Modules, synced: Mapping[int, bool], graph: Graph) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The state of each module that reduces gradients of a graph.

    ``synced`` has, by id(), whether it was to reduce those of its last call.
    """
    trained = {id(each.tensor) for each in modules.owned if each.names[0] in graph.nodes}
    for module, path in modules.paths.items():
        if isinstance(module, DistributedDataParallel):
            hooks = getattr(module, private.DDP_HOOKS, ())
            words = {
                "no_sync": not synced.get(id(module), True),
                "uncalled": id(module) not in synced
                and any(id(parameter) in trained for parameter in module.parameters()),
                "unfinished": not _has_finished(module.reducer),
                "unused": module.find_unused_parameters,
                "static": module.static_graph,
            }
            names = [plain_text(getattr(hook, "__name__", type(hook).__name__)) for hook, _ in hooks]
            yield path, (*(word for word, holds in words.items() if holds), *(f"hook:{name}" for name in names))
        for group in sharding_groups([module]):
            yield path, () if getattr(group, private.FSDP_REDUCES, True) else ("no_sync",)


def _has_finished(reducer: Any) -> bool:
    """Whether no bucket waits for a gradient, in the words of torch, which would refuse another forward."""
    try:
        getattr(reducer, private.DDP_FINISHED, bool)()
    except RuntimeError:
        return False
    return True


def _parts(modules: Modules) -> Iterator[tuple[str, torch.Tensor]]:
    kept = {id(form): forms[-1] for forms in forms_of_sharded(modules.paths) for form in forms}
    for tensor, names, _, _ in modules.owned:
        part = kept.get(id(tensor), tensor)
        if mesh_of_tensor(part) is not None:
            yield names[0], part
