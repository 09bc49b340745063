"""Record the messages between this process and others, in the dispatcher, whichever function sends them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from linecache import getline
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from msgspec.structs import replace
from torch import distributed, nn

from gradir.errors import CaptureError
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.attributes import MetadataReader
from gradir.frontends.pytorch.reading.distributed import find_group, reduction
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.collectives import Operand, Operands, Parts, imitate_collective
from gradir.frontends.pytorch.recording.places import Place, Places
from gradir.frontends.pytorch.recording.removable_modes import DispatchMode
from gradir.frontends.pytorch.recording.sources import ShownLines, is_command_code
from gradir.frontends.pytorch.recording.steps import name_arguments, signature_of, tensors_in
from gradir.frontends.pytorch.recording.timelines import Frame, Timeline, path_of
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import frames_from, frames_of
from gradir.ir import Collective, TensorMeta

if TYPE_CHECKING:
    from gradir.frontends.pytorch.recording.rank import Exchanged, UntilStep

# The names of torch's variants of an operation contain one of these, with or without underscores.
_OPS: Final = ("all_gather", "all_reduce", "all_to_all", "barrier", "recv", "reduce_scatter", "send")
# The first of these arguments that exists has the inputs of the operation, in all releases.
_INPUTS: Final = ("input_tensors", "input_list", "input_tensor", "inputs", "input", "tensors", "tensor")
_NEW_GROUP: Final = "new_group"
# Operations that give each process values of the others.
_GATHERING: Final = frozenset({"all_gather", "all_reduce", "all_to_all", "gather"})
# Operations whose order may differ between the ranks of a group.
_POINT_TO_POINT: Final = frozenset({"recv", "send"})


def _normalize_op(name: str) -> str:
    bare = name.replace("_", "")
    return next((op for op in _OPS if op.replace("_", "") in bare), plain_text(name))


@lru_cache(maxsize=4096)
def _communicates_as(func: Any) -> str:
    if not isinstance(func, private.Operator):
        return ""
    namespace, _, name = private.schema_of(func).name.partition("::")
    return plain_text(name) if namespace in private.COMMUNICATING and name not in private.SILENT else ""


class _Message(NamedTuple):
    collective: Collective
    group: Any
    node: GradFn | None
    frame: Frame | None
    place: Place | None
    operands: Sequence[Operand]
    is_shadow: bool


class Exchange:
    """The messages of one thread, in order."""

    def __init__(self, timeline: Timeline, *, is_dry: bool = False) -> None:
        self.timeline = timeline
        self._dry_from = 0 if is_dry else None
        self.parts = Parts()
        # Whether any message belongs to a backward.
        self.has_backward = False
        # Whether a step that sends nothing gathered integers of other ranks, which may be sizes.
        self._is_guessing = False
        # The first stage of this process in the pipeline, the number of stages, and the number of microbatches.
        self.pipeline: tuple[int, int, int] | None = None
        self.operands = Operands()
        self.until: UntilStep | None = None
        # By id(), since a user's class may be unhashable.
        self.wrappers: dict[int, weakref.ref[nn.Module]] = {}
        # The number of operations that this thread began, which grows unless it waits.
        self.operations = 0
        self.thread = threading.get_ident()
        self._messages: list[_Message] = []
        # The number of collectives in the earlier steps, by the name of the group.
        self.offsets: Counter[str] = Counter()
        self._metadata = MetadataReader()
        self._places = Places()

    @property
    def sends(self) -> bool:
        """Whether messages are sent; a dry step sends nothing from its first call of a module on."""
        is_dry = self._dry_from is not None and any(self.timeline.frames[self._dry_from :])
        # The stages of a pipeline must exchange the shapes of their messages.
        return not is_dry or self.pipeline is not None

    def begin(self, *, is_dry: bool) -> None:
        """Begin another step, and forget the messages so far."""
        entered = (each.group for each in self._messages if each.collective.op not in _POINT_TO_POINT)
        self.offsets.update(group.group_name for group in entered)
        self._messages.clear()
        self.has_backward = self._is_guessing = False
        self._dry_from = len(self.timeline.frames) if is_dry else None

    def stop_sending(self, until: UntilStep | None) -> None:
        """Send no more messages, and report writes to ``until``."""
        self._dry_from, self.until = 0, until

    @property
    def waits(self) -> bool:
        """Whether the thread runs code that waits for other processes."""
        for frame in frames_from(sys._current_frames().get(self.thread)) if self._messages else ():
            module = str(frame.f_globals.get("__name__"))
            if not module.startswith("gradir."):
                is_library = module.startswith(private.WAITING)
                # A program waits for a work in its own line.
                return is_library or ".wait(" in getline(frame.f_code.co_filename, frame.f_lineno or 0)
        return False

    @property
    def sends_by_hand(self) -> bool:
        """Whether the program itself sends or receives messages of single ranks."""
        return any(message.collective.op in _POINT_TO_POINT for message in self._messages)

    @property
    def has_joined(self) -> bool:
        """Whether the process has no more data, and only shadows the collectives of the others."""
        return any(message.is_shadow for message in self._messages)

    def record(self, name: str, arguments: Mapping[str, Any], group: Any, frame: FrameType) -> None:
        """Record an operation that communicates in a group, called from a frame."""
        if private.current_backward() != -1:
            self.has_backward = True
            phase, node, module, place = "backward", private.running_node(), None, None
        else:
            phase, node, module, found = "forward", None, self.timeline.current, self._places(frame)
            # The user's instruction that led to the frame, or else a library's.
            places = () if found is None else (found.caller, found)
            place = next((each for each in places if each is not None and not is_command_code(each.code)), None)
        if phase == "forward" and (wrapper := _wrapper_made_in(frame)) is not None:
            self.wrappers[id(wrapper)] = weakref.ref(wrapper)
        microbatches, stages = find_stages(frame) or (0, ())
        if stages and self.pipeline is None:
            self.pipeline = min(stage.stage_index for stage in stages), stages[0].num_stages, microbatches
        operands = self.operands.find(_find_inputs(name.removesuffix("_"), arguments), node, frame, phase)
        # A process that leaves ``Join`` before the others shadows their collectives.
        is_shadow = any(each.f_code.co_name == "__exit__" for each in frames_of(frame, private.JOIN))
        is_guess = self._is_guessing and not any(isinstance(each, torch.Tensor) for each in operands)
        for each in self._describe(name, arguments, frame, stages):
            collective = replace(each, phase=phase)
            if is_guess:
                collective = replace(collective, tensors=_without_shapes(each.tensors), splits=())
            is_count = any(tensor.dtype in ("int32", "int64") for tensor in each.tensors)
            self._is_guessing |= is_count and phase == "forward" and each.op in _GATHERING and not self.sends
            self._messages.append(_Message(collective, group, node, module, place, operands, is_shadow))

    def note_new_group(self) -> None:
        """Record a ``new_group`` in which the thread waits now, since all ranks have to call it."""
        frame = sys._current_frames().get(self.thread)
        makes = [each for each in frames_of(frame, private.COLLECTIVES) if each.f_code.co_name == _NEW_GROUP]
        is_noted = bool(self._messages) and self._messages[-1].collective.op == _NEW_GROUP
        if makes and not is_noted:
            found = self._places(makes[-1])
            place = found.caller or found if found is not None else None
            made = Collective("forward", _NEW_GROUP, "")
            self._messages.append(_Message(made, distributed.group.WORLD, None, None, place, (), is_shadow=False))

    def collectives(self, exchanged: Exchanged) -> Iterator[Collective]:
        """Yield all messages, with ids and paths of the graph that was captured last."""
        lines = ShownLines()
        exchanged.names.find_gradients()
        for collective, group, node, frame, place, operands, _ in self._messages:
            yield replace(
                collective,
                group=exchanged.groups.label(group),
                node="" if node is None else exchanged.ids.get(node, ""),
                scope=path_of(frame, exchanged.modules.paths),
                source=None if place is None else lines(place.code, place.instruction),
                operands=tuple(filter(None, dict.fromkeys(map(exchanged.names, operands)))),
            )

    def _describe(
        self, name: str, arguments: Mapping[str, Any], frame: FrameType, stages: Sequence[Any]
    ) -> Iterator[Collective]:
        if name == "batch_p2p_ops":
            columns = (arguments[column] for column in ("op_list", "peer_list", "tensors"))
            for way, peer, tensor in zip(*columns, strict=True):
                number, meta = _microbatch_of(tensor, stages), self._metadata.read_tensor(tensor)
                yield Collective("", _normalize_op(way), "", int(peer), tensors=(meta,), microbatch=number)
            return
        bare = name.removesuffix("_")
        inputs = _find_inputs(bare, arguments)
        peer = next((int(arguments[key]) for key in ("root_rank", "dst", "src") if key in arguments), None)
        sizes = [arguments.get(key) for key in ("input_split_sizes", "output_split_sizes")]
        splits = tuple([tuple(map(int, each)) for each in sizes if each is not None]) if any(sizes) else ()
        metas, reduced = tuple(map(self._metadata.read_tensor, inputs)), _reduction_of(arguments, frame)
        # Each rank pads a pickled object to the largest size of all, which a dry step does not know.
        is_pickled = any(tensor.dtype == torch.uint8 for tensor in inputs) and any(
            "object" in outer.f_code.co_name for outer in frames_of(frame, private.COLLECTIVES)
        )
        if is_pickled:
            metas = _without_shapes(metas)
        number = _microbatch_of(inputs[0], stages) if len(inputs) == 1 else None
        yield Collective("", _normalize_op(bare), "", peer, reduced, metas, splits, microbatch=number)


def _without_shapes(metas: Iterable[TensorMeta]) -> tuple[TensorMeta, ...]:
    return tuple([replace(meta, shape=None) for meta in metas])


class ExchangeMode(DispatchMode):
    """Records the messages of this thread, also in backward, and sends them if wanted; keeps no exchange alive."""

    def __init__(self, exchange: Exchange, *, sends: bool = True) -> None:
        super().__init__()
        self._exchange = weakref.ref(exchange)
        self._sends = sends

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        spread = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ())
        if any(issubclass(kind, spread) for kind in types):
            # Let the DTensor run first: its local operations and collectives come here again.
            return NotImplemented
        name, exchange = _communicates_as(func), self._exchange()
        if exchange is None:
            return func(*args, **(kwargs or {}))
        exchange.operations += 1
        if not name:
            is_backward = private.current_backward() != -1
            if exchange.until is not None:
                exchange.until.record_write(func, args, kwargs or {})
            if is_backward:
                exchange.operands.record_write(func, args, kwargs or {})
            result = func(*args, **(kwargs or {}))
            if exchange.until is not None and not is_backward:
                given, owned = tensors_in([*args, kwargs or {}]), exchange.until.owned
                exchange.operands.record_copy(given, tensors_in(result), owned)
            return result
        arguments = dict(name_arguments(signature_of(func).names, args, kwargs or {}))
        if exchange.until is not None:
            exchange.until.written.update(map(storage_of, tensors_in(args)))
        group, frame = _group_of(name, arguments), sys._getframe(1)
        exchange.record(name, arguments, group, frame)
        if self._sends and exchange.sends:
            return func(*args, **(kwargs or {}))
        result = imitate_collective(func, arguments, group)
        exchange.parts.fill(arguments, frame, exchange.timeline.current)
        return result


def _group_of(name: str, arguments: Mapping[str, Any]) -> Any:
    argument = next((arguments[name] for name in ("process_group", "group_name") if name in arguments), None)
    group = find_group(argument) if isinstance(argument, str) else argument
    if group is not None and not isinstance(group, distributed.ProcessGroup):
        group = private.process_group_of(group)
    if group is None:
        raise CaptureError(
            f"{name}: its process group {argument!r} is not one of this process, so gradir cannot record it"
        )
    return group


def _find_inputs(name: str, arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    # The tensor of a barrier is a dummy.
    if name in {"barrier", "monitored_barrier"}:
        return ()
    found = next((arguments[argument] for argument in _INPUTS if argument in arguments), ())
    return tensors_in(found) or tensors_in(arguments.get("output_tensors", ()))


def _wrapper_made_in(frame: FrameType | None) -> nn.Module | None:
    inside = (outer for outer in frames_of(frame, private.DDP) if outer.f_code.co_name == "__init__")
    return next((outer.f_locals.get("self") for outer in inside), None)


def find_stages(frame: FrameType | None) -> tuple[int, Sequence[Any]] | None:
    """Return the number of microbatches and this process's stages of the pipeline schedule that runs a frame."""
    for inner in frames_of(frame, private.PIPELINES):
        schedule = inner.f_locals.get("self")
        microbatches = getattr(schedule, private.MICROBATCHES, None)
        several, lone = private.STAGES
        stages = getattr(schedule, several, None) or [getattr(schedule, lone, None)]
        if type(microbatches) is int and all(hasattr(stage, "stage_index") for stage in stages):
            return microbatches, stages
    return None


def other_outputs(frame: FrameType | None) -> Iterator[torch.Tensor]:
    """Yield the outputs of the first microbatch of this process's stages, except the one whose backward runs."""
    _, stages = find_stages(frame) or (0, ())
    running = [each.f_locals.get("self") for each in frames_from(frame)]
    for stage in stages:
        sent = _find_outputs(stage)
        if sent and not any(stage is each for each in running):
            yield from (each for each in sent[min(sent)] if isinstance(each, torch.Tensor) and each.requires_grad)


def _find_outputs(stage: object) -> dict[int, Sequence[object]]:
    found = {number: each for name in private.SENT for number, each in getattr(stage, name, {}).items()}
    field = private.SENT_OUTPUTS
    return {number: getattr(each, field) if hasattr(each, field) else each[0] for number, each in found.items()}


def _microbatch_of(tensor: torch.Tensor, stages: Iterable[Any]) -> int | None:
    known: list[tuple[int, object]] = []
    for stage in stages:
        for name in private.RECEIVED:
            for number, infos in getattr(stage, name, {}).items():
                known += [(number, getattr(info, "buffer", None)) for info in infos]
        known += [(number, each) for number, outputs in _find_outputs(stage).items() for each in outputs]
    storage = storage_of(tensor)
    found = (number for number, each in known if isinstance(each, torch.Tensor) and storage_of(each) == storage)
    return next(found, None) if storage is not None else None


def _reduction_of(arguments: Mapping[str, Any], frame: FrameType) -> str:
    name = arguments.get("reduce_op")
    if name is None or isinstance(name, str):
        return plain_text((name or "").lower())
    # The dispatcher hides the kind of reduction, but torch's Python function has it as an argument.
    called = frames_of(frame, private.COLLECTIVES)
    return next((reduction(outer.f_locals.get("op")) or "" for outer in called), "")
