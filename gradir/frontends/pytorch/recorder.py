"""Record the modules, lines, operations, costs and messages of a program."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from operator import is_, itemgetter
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import torch
from msgspec.structs import replace
from torch import fx, nn

from gradir.errors import CaptureError, warn
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.explaining.graph_cuts import cuts_of
from gradir.frontends.pytorch.explaining.subject import make_subject
from gradir.frontends.pytorch.private import DYNAMO, disable_modes, own_modules, own_parameters
from gradir.frontends.pytorch.reading.assemble import LiveGraph, assemble, scope_table
from gradir.frontends.pytorch.reading.outputs import Captured, flatten, tensors_of
from gradir.frontends.pytorch.reading.tensors import Modules, NamedTensors, Owned, is_own, modules_below, modules_of
from gradir.frontends.pytorch.reading.walk import Walk, walk
from gradir.frontends.pytorch.recording import participants
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.forward import forward_nodes
from gradir.frontends.pytorch.recording.modes import CallsMode, CompiledParts
from gradir.frontends.pytorch.recording.participants import Participants
from gradir.frontends.pytorch.recording.places import warnings_at_callers
from gradir.frontends.pytorch.recording.rank import Exchanged
from gradir.frontends.pytorch.recording.removable_modes import RecordingMode, add_hooks, leave_when_dropped, remove_left
from gradir.frontends.pytorch.recording.sources import SourceLog, SourceLookup, SourceMode
from gradir.frontends.pytorch.recording.steps import Step, Value
from gradir.frontends.pytorch.recording.timelines import Frame, ScopeLookup, Timeline, calls_from, path_of, surroundings
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import join_paths
from gradir.gcpause import pause_gc
from gradir.ir import Cut, Graph, Producer
from gradir.ir.cuts import FLOW
from gradir.protocols import Names, Verification
from gradir.request import CaptureRequest
from gradir.version import __version__

if TYPE_CHECKING:
    from gradir.frontends.pytorch.recording.cost import Costs


# A parameter, the module that had it for a while, and its name there.
_Temporary: TypeAlias = tuple[torch.Tensor, nn.Module, str]


class Recorder:
    """Records, while it is entered, the autograd sequence numbers at which each module runs; see `gradir.record`."""

    def __init__(self, request: CaptureRequest) -> None:
        """The model is a module, a dict of modules by name, or None for the outermost modules that are called."""
        self._request = request
        self._timelines: list[Timeline] = []
        self._local = threading.local()
        self._temporary: dict[int, _Temporary] = {}
        # By id() of the modules, which the timelines keep alive.
        self._outermost: dict[int, nn.Module] = {}
        self._new: dict[int, nn.Module] = {}
        self._variables: dict[int, str] = {}
        self._calls: defaultdict[int, int] = defaultdict(int)
        self._inside: dict[int, nn.Module] = {}
        self._hooks: ExitStack | None = None
        self.is_paused = False
        self._entered_by = 0
        self._logs: dict[Timeline, SourceLog] = {}
        self._records_flow = request.flow or request.graph == "both"
        self._flows: dict[Timeline, Flow] = {}
        self._exchanged = Exchanged(is_dry=request.dry and request.step == 1) if request.collectives else None
        self._costs: dict[Timeline, Costs] = {}

    def __enter__(self) -> Recorder:
        if self._hooks is not None:
            raise CaptureError("this recorder is already recording")
        modules_of(self._request.model)
        remove_left()
        timeline = self._timeline()
        timeline.switch(None)
        log = self._logs.setdefault(timeline, SourceLog(timeline))
        with ExitStack() as hooks:
            add_hooks(hooks, self._enter_module, self._leave_module)
            hooks.enter_context(warnings_at_callers)
            hooks.enter_context(CompiledParts(self))
            if self._request.sources:
                hooks.enter_context(CompiledParts(hooks.enter_context(SourceMode(log))))
            if self._exchanged is not None:
                hooks.enter_context(self._exchanged.record_thread(timeline))
                if self._request.dry:
                    # The modes only see operations of this thread.
                    hooks.enter_context(torch.autograd.set_multithreading_enabled(False))
            if self._request.cost is not None:
                # torch's formulas are slow to load.
                from gradir.frontends.pytorch.recording.cost import Costs

                costs = self._costs.setdefault(timeline, Costs(timeline, are_timed=self._request.cost == "time"))
                hooks.enter_context(CompiledParts(costs))
                hooks.enter_context(RecordingMode(costs))
            if self._records_flow:
                flow = self._flows.setdefault(timeline, Flow(timeline))
                flow.finite.checks_all = bool(self._request.values)
                for mode in (CompiledParts(flow), CallsMode(flow), RecordingMode(flow)):
                    hooks.enter_context(mode)
            self._hooks, self._entered_by = hooks.pop_all(), threading.get_ident()
        self._when_dropped = leave_when_dropped(self, self._hooks, sys._getframe(1))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.leave(error)
        if self._entered_by != threading.get_ident():
            warn("a recorder was left in another thread and stopped recording; enter and leave it in one thread")

    def leave(self, error: BaseException | None = None) -> None:
        """Stop recording, from any thread; ``error`` is the exception that ended the recording, if any."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            self._when_dropped.detach()
            hooks.close()
        if self._entered_by != threading.get_ident():
            # Only the other thread can read its sequence numbers.
            return
        timeline = self._timeline()
        timeline.switch(None)
        if timeline in self._flows and not isinstance(error, (GeneratorExit, type(None))):
            self._flows[timeline].record_end(error)

    def __reduce__(self) -> NoReturn:
        raise CaptureError("a recorder cannot be copied or pickled: it belongs to the threads that it records")

    def capture(self, outputs: object, *, model: object = None, params: Names | None = None) -> Graph:
        """Capture tensors that were computed inside; see `gradir.protocols.Recorder`."""
        return self.live_capture(outputs, model=model, params=params).graph

    def forward(self, *, model: object = None, params: Names | None = None, returned: object = None) -> Graph:
        """Return the graph of every operation that ran inside; see `gradir.protocols.Recorder`.

        Its outputs are the tensors that the program ``returned``, and each that no operation used.
        """
        if not self._records_flow:
            raise CaptureError("the forward was not recorded; use flow=True")
        modules = self._with_strays(self._find_modules(model))
        paths = modules.paths
        named = NamedTensors(modules.owned, params, self._temporary_in(paths))
        return Graph.of(
            forward_nodes(self._flows.values(), named, lambda frame: path_of(frame, paths), tensors_of(returned)),
            scope_table(paths, modules.owned, self._calls),
            producer=Producer(__version__, "torch", str(torch.__version__), {"graph": "forward"}),
        )

    @property
    def has_failed(self) -> bool:
        """Whether a recorded operation raised."""
        return any(flow.failure is not None for flow in self._flows.values())

    def explain(
        self,
        subject: object,
        *,
        model: object = None,
        params: Names | None = None,
        optimizer: Any = None,
        values: bool | None = None,
    ) -> Explanation:
        """Explain which parameters get a gradient from a loss, and why not; see `gradir.protocols.Recorder`."""
        from gradir.frontends.pytorch.explaining.explain import Search

        if not self._records_flow:
            raise CaptureError("the forward was not recorded; use gradir.record(model, flow=True)")
        if not self._flows:
            raise CaptureError("the recorder is empty: run the forward inside `with recorder:`")
        modules = self.modules(model)
        captured = tensors_of(subject)
        if not captured and not isinstance(subject, BaseException):
            raise CaptureError(
                f"cannot explain {type(subject).__name__}: it has no tensor; pass "
                "the loss, or the error that the forward raised"
            )
        with_graph = [tensor for tensor in captured if tensor.requires_grad]
        with pause_gc():
            live = self._read(flatten(with_graph), model, params)[0] if with_graph else None
        known = [Flowing(flow, captured) for flow in self._flows.values()]
        flowing = next((each for each in known if each.is_whole), known[0])
        temporary = (entry for entry in self._temporary_in(modules.paths) if not entry.tensor.is_meta)
        ran = {name: entry.tensor for entry in temporary for name in entry.names}
        options = {"variables": self._variables, "params": params, "optimizer": optimizer}
        search = Search(make_subject(flowing.flow, modules, captured, live, ran, **options), flowing)
        if isinstance(subject, BaseException):
            return search.explanation_of_failure(subject)
        # Without modes, since the recording may continue and must not see these operations.
        with disable_modes():
            return search.explanation(values=values)

    def verify(
        self, outputs: object, *, model: object = None, params: Names | None = None, keep_graph: bool = True
    ) -> Verification:
        """Capture, run a real backward, and compare; see `gradir.verify`."""
        return self.live_capture(outputs, model=model, params=params).verify(keep_graph=keep_graph)

    def with_collectives(self, graph: Graph) -> Graph:
        """Return a graph of this recording with its rank and all collectives until now."""
        return self.exchanged.with_collectives(graph)

    @property
    def exchanged(self) -> Exchanged:
        """The messages between this process and others."""
        if self._exchanged is None:
            raise CaptureError("collectives were not recorded; use gradir.record(model, collectives=True)")
        return self._exchanged

    def modules(self, model: object = None) -> Modules:
        """Return the modules of the model, or else the outermost modules that were called."""
        modules = self._find_modules(model)
        return modules if modules.roots else self._with_strays(modules)

    def _with_strays(self, modules: Modules) -> Modules:
        strays = participants.find_strays(self.called, modules.paths)
        return participants.add_strays(modules, strays, self._variables)

    def _find_modules(self, model: object) -> Modules:
        return modules_below(modules_of(self._request.model if model is None else model))

    @property
    def operations(self) -> list[Step]:
        """The recorded operations, one thread after the other."""
        return [step for flow in self._flows.values() for step in flow.steps]

    @property
    def called(self) -> list[nn.Module]:
        """The outermost modules that were called."""
        return [*self._outermost.values()]

    def take_new_modules(self) -> list[nn.Module]:
        """Return the outermost modules that were called since the last call of this method."""
        new, self._new = self._new, {}
        return [*new.values()]

    def forget_others(self, outputs: object, but: Iterable[nn.Module] = ()) -> list[nn.Module]:
        """Forget the calls of modules that did not contribute to the outputs, except ``but``; return the others."""
        walked = walk(flatten(outputs))
        ran = self._select_participants(Participants(self.called, list(self._timelines), self._logs), {}, walked)
        self._outermost = {id(module): module for module in (*ran.strays, *but)}
        self._calls = defaultdict(int, participants.count_calls(self._timelines, walked))
        return self.called

    def live_capture(self, outputs: object, *, model: object = None, params: Names | None = None) -> LiveGraph:
        """Capture, and return the live objects with the graph."""
        captured = flatten(outputs)
        # Without garbage collection, since the objects of the walk live until the end.
        with pause_gc():
            live, modules, temporary = self._read(captured, model, params)
            if self._exchanged is not None:
                live = self._exchanged.attach_collectives(live, modules)
            for costs in self._costs.values():
                live = costs.add_costs(live, modules.paths)
            entries = [*modules.owned, *temporary]
            return self._with_cuts(live, modules, entries, params) if self._request.flow else live

    def _read(
        self, captured: list[Captured], model: object, params: Names | None
    ) -> tuple[LiveGraph, Modules, list[Owned]]:
        """Return a capture, its modules, and the parameters that these had only while they ran."""
        modules = self._find_modules(model)
        strays = participants.find_strays(self.called, modules.paths)
        ran, walked = Participants(strays, list(self._timelines), self._logs), walk(captured)
        if modules.roots and ran.strays:
            ran = self._select_participants(ran, modules.paths, walked)
        modules = participants.add_strays(modules, ran.strays, self._variables)
        temporary, exchanged = self._temporary_in(modules.paths), self._exchanged
        if exchanged is not None:
            exchanged.number_groups()
        live = assemble(
            captured,
            modules,
            params=params,
            walked=walked,
            scope_of=ScopeLookup(ran.timelines, modules.paths),
            calls=self._calls,
            inside=self._inside.values(),
            temporary=temporary,
            sources=SourceLookup(self._logs, ran.timelines) if self._request.sources else None,
            groups=None if exchanged is None else exchanged.groups,
        )
        return live, modules, temporary

    def _with_cuts(self, live: LiveGraph, modules: Modules, entries: list[Owned], params: Names | None) -> LiveGraph:
        """Return the capture with the cuts at which the flow continues without gradient."""
        named, found = NamedTensors(entries, params), list[Cut]()
        captured = [entry.tensor for entry in live.captured if entry.role == "output"]
        unreached = {name for cut in live.graph.cuts if cut.kind == "unreached" for name in cut.names}
        known = [Flowing(flow, captured) for flow in self._flows.values()]
        for flowing in known:
            flow = flowing.flow
            # By root values, since a parameter that was made inside the recording is no tensor from outside.
            owned = {flowing.root(flow.value_of(entry.tensor)): entry.names for entry in entries}

            def names_of(
                leaf: Value, flow: Flow = flow, owned: Mapping[Value, tuple[str, ...]] = owned
            ) -> tuple[str, ...]:
                tensor = flow.tensor_of(leaf)
                return owned.get(leaf) or (() if tensor is None else named.of(tensor).names)

            found.extend(cuts_of(flowing, names_of, live, modules.paths))
            inside = (names[0] for leaf, names in owned.items() if flowing.may_be_inside(leaf) and names)
            opaque = tuple(name for name in inside if name in unreached)
            found.extend([Cut("opaque", opaque)] if opaque else [])
        live = live._replace(graph=replace(live.graph, cuts=(*live.graph.cuts, *found)))
        return live.with_options({FLOW: any(flowing.is_whole for flowing in known)})

    def _select_participants(self, ran: Participants, paths: Mapping[nn.Module, str], walked: Walk) -> Participants:
        temporary = {key: module for key, (_, module, _) in self._all_temporary().items()}
        return participants.select_participants(ran, paths, walked, temporary)

    def _all_temporary(self) -> dict[int, _Temporary]:
        """Return the parameters that modules had only while they ran, by id()."""
        found = dict(self._temporary)
        for outside in (outside for flow in self._flows.values() for outside in flow.outside if outside.owner):
            tensor = outside.tensor()
            if outside.owner is not None and tensor is not None and is_own(tensor):
                found[id(tensor)] = tensor, *outside.owner
        # Each frame once: a timeline has an entry for each call inside it.
        frames = {id(frame): frame for line in self._timelines for frame in line.snapshot()[1]}
        for frame in frames.values():
            if frame is not None and frame.parameters:
                now = own_parameters(frame.module)
                for name, tensor in frame.parameters:
                    if tensor is not None and now.get(name) is not tensor and is_own(tensor):
                        found.setdefault(id(tensor), (tensor, frame.module, name))
        return found

    def _temporary_in(self, paths: Mapping[nn.Module, str]) -> list[Owned]:
        found = ((each, paths[each[1]]) for each in self._all_temporary().values() if each[1] in paths)
        return [Owned(tensor, (join_paths(path, plain_text(name)),), path) for (tensor, _, name), path in found]

    def _timeline(self) -> Timeline:
        timeline: Timeline | None = getattr(self._local, "timeline", None)
        if timeline is None:
            timeline = self._local.timeline = Timeline()
            self._timelines.append(timeline)
        return timeline

    def _enter_module(self, module: nn.Module, inputs: object) -> None:  # noqa: ARG002 (torch's signature)
        timeline = self._timeline()
        if type(module).__module__ == DYNAMO:
            # Compiled code runs no hooks of the module inside this wrapper.
            self.record_outermost(module, sys._getframe(1))
            return
        caller = timeline.current
        inside, checks = (True, caller.checks) if caller is not None and caller.inside else surroundings()
        checks |= caller is not None and caller.checks
        if not checks:
            # torch calls its own modules to run compiled code.
            if not (self.is_paused and isinstance(module, fx.GraphModule)):
                self.record_outermost(module, sys._getframe(1))
            self._calls[id(module)] += 1
        if inside:
            self._inside[id(module)] = module
        if self._exchanged is not None:
            self._exchanged.record_call(module)
        timeline.switch(Frame(module, caller, tuple(own_parameters(module).items()), inside, checks))

    def record_outermost(self, module: nn.Module, frame: FrameType) -> None:
        """Record a module, or the one inside a compiled wrapper, unless another module runs."""
        called = own_modules(module).values() if type(module).__module__ == DYNAMO else (module,)
        for each in called if self._timeline().current is None else ():
            if id(each) not in self._outermost:
                self._variables[id(each)] = participants.variable_of(each, frame)
            self._outermost[id(each)] = self._new[id(each)] = each

    def _leave_module(self, module: nn.Module, inputs: object, result: object) -> None:  # noqa: ARG002
        timeline = self._timeline()
        # A call without an observed end ends with its caller.
        frame = next((call for call in calls_from(timeline.current) if call.module is module), None)
        if frame is None:
            return
        timeline.switch(frame.caller)
        if all(map(is_, own_parameters(module).values(), map(itemgetter(1), frame.parameters))):
            return
        usual = dict(frame.parameters)
        for name, tensor in own_parameters(module).items():
            if tensor is not None and usual.get(name) is not tensor and is_own(tensor):
                # The module has this one only while it runs, as with parameters that are sharded.
                self._temporary[id(tensor)] = tensor, module, name
