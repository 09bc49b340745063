"""Run what a PROGRAM named, recorded, and capture what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from gradir.abilities import StoppedError
from gradir.errors import CaptureError, SpecError
from gradir.explanations.model import Explanation
from gradir.frontends.inputs import described
from gradir.frontends.paths import ShownPaths
from gradir.frontends.pytorch.alone import is_standing_in
from gradir.frontends.pytorch.fake import without_data
from gradir.frontends.pytorch.private import LOOKED_AT
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.outputs import flatten, flatten_quietly
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.sources import is_internal
from gradir.ir import Graph
from gradir.protocols import Names
from gradir.spec import called, own_error

__all__ = [
    "capture_exchange_target",
    "capture_fake_target",
    "capture_module",
    "capture_target",
    "explain_target",
    "forward_of_target",
    "parse_input",
]

T = TypeVar("T")


class _Ran(NamedTuple):
    """What running a target gave, which may return more than what has a graph."""

    recorder: Recorder
    outputs: object
    model: nn.Module | None = None

    def captured(self, params: Names | None = None) -> LiveGraph:
        return self.recorder.assemble(flatten(self.outputs), model=self.model, params=params)


def capture_target(target: object, inputs: Sequence[str], seed: int, sources: bool, *, flow: bool = False) -> LiveGraph:
    """The graph of a tensor, a callable or a module; what comes out beside it without a graph is told of.

    A callable returns a tensor, containers or objects with tensors, or ``(model, outputs)``. A class or factory of
    modules is called without arguments first. A module runs on ``inputs``, each ``dtype[shape]`` or
    ``name=dtype[shape]``.

    Raises:
        SpecError: the target raises, or cannot be run on what was given.
        CaptureError: what comes out has no graph.
    """
    ran = _ran(target, inputs, seed, partial(Recorder, sources=sources, flow=flow))
    _expect_some(ran.outputs)
    return ran.captured()


def _expect_some(outputs: object) -> None:
    """Refuse what a training function without a result returns; of its forward alone there is a graph.

    Raises:
        SpecError: it is None.
    """
    if outputs is None:
        raise SpecError("it returned None; return the loss from it, or run the whole script with 'gradir run'")


def capture_exchange_target(
    target: object, inputs: Sequence[str], seed: int, sources: bool, *, flow: bool, fake: bool, step: int
) -> LiveGraph:
    """The same with what this process exchanges with others; the backward for that runs here, and sends nothing.

    It is the call number ``step`` of the target, or of the module that it makes; those before run with their backward,
    since what wraps a model may change what it exchanges after some.

    Raises:
        SpecError: as for `capture_target`.
        CaptureError: also when there is no process group.
    """
    with _fake(target) if fake else nullcontext():
        recorder_of = partial(Recorder, sources=sources, flow=flow, collectives=True)
        ran = _ran(target, inputs, seed, recorder_of, before=step - 1)
        live = ran.recorder.with_dry_backward(ran.captured())
    if live.graph.rank is None:
        raise CaptureError(
            "--collectives notes what processes exchange, and there is no process group: the program has to call "
            "torch.distributed.init_process_group, and torchrun to start it"
        )
    return live


def forward_of_target(target: object, inputs: Sequence[str], seed: int, *, fake: bool) -> Graph:
    """The graph of the forward of a tensor's callable or of a module, which need have no gradient.

    Raises:
        StoppedError: the target raises, and has run an operation before.
        SpecError: it cannot be run on what was given, raises at once, or is a tensor, whose forward has run.
    """
    if isinstance(target, torch.Tensor):
        raise SpecError("the forward of a tensor has run already: PROGRAM must name what computes it")
    recorders: list[Recorder] = []

    def recorder(model: nn.Module | None = None) -> Recorder:
        recorders.append(Recorder(model, flow=True))
        return recorders[-1]

    try:
        with _fake(target) if fake else nullcontext():
            ran = _ran(target, inputs, seed, recorder)
            return ran.recorder.forward(model=ran.model)
    except SpecError as error:
        cause = error.__cause__
        if cause is None:
            raise
        graph = recorders[-1].forward()
        # One is what says where the program raised, if no operation did.
        functions = [node.op for node in graph.nodes.values() if node.role == "function"]
        if functions in ([], ["raise"]):
            raise
        text, place = str(error), _place(cause)
        raise StoppedError(text if place in text else text + place, graph) from cause


def _ran(
    target: object, inputs: Sequence[str], seed: int, recorder_of: Callable[..., Recorder], *, before: int = 0
) -> _Ran:
    """Run a target, noted by what ``recorder_of`` makes, of a module or of what runs first.

    So many calls of it, with their backward, run ``before``.
    """
    torch.manual_seed(seed)
    recorder = recorder_of()
    result = _made_by(target, recorder)
    for _ in range(0 if isinstance(result, nn.Module) else before):
        _step(result)
        recorder = recorder_of()
        result = _made_by(target, recorder)
    if isinstance(result, nn.Module):
        positional, named = _described(result, inputs)
        for _ in range(before):
            _step(_run(partial(result, *positional, **named), name=type(result).__name__))
        recorder = recorder_of(result)
        return _run(partial(_called, result, positional, named, recorder), name=type(result).__name__)
    model, outputs, _ = _parts(result, inputs)
    return _Ran(recorder, outputs, model)


def _step(outputs: object) -> None:
    """Run the backward of what came out of a call."""
    tensors = [entry.tensor for entry in flatten_quietly(outputs) if entry.role == "output"]
    torch.autograd.backward(tensors, [torch.ones_like(tensor) for tensor in tensors])


def explain_target(
    target: object, inputs: Sequence[str], seed: int, values: bool | None, graph: str = "autograd"
) -> Explanation:
    """Why gradient arrives, or does not, at the parameters behind what `capture_target` captures.

    Raises:
        SpecError: the target cannot be run on what was given, or something else than an operation raises.
        CaptureError: no tensor comes out.
    """
    torch.manual_seed(seed)
    recorder = Recorder(flow=True)
    model: nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None
    try:
        result = _made_by(target, recorder)
        if isinstance(result, nn.Module):
            positional, named = _described(result, inputs)
            model = result
            with recorder:
                result = _run(partial(model, *positional, **named), name=type(model).__name__)
        else:
            model, result, optimizer = _parts(result, inputs)
    except SpecError as error:
        if not isinstance(error.__cause__, RuntimeError) or not recorder.has_failed:
            raise
        found = recorder.explain(error.__cause__, model=model)
    else:
        _expect_some(result)
        found = recorder.explain(result, model=model, optimizer=optimizer, values=values)
    return found.located_in(recorder.forward(model=model)) if graph == "forward" else found


def _made_by(target: object, recorder: Recorder) -> object:
    """The target, or what a callable returns that is no module."""
    if not callable(target) or isinstance(target, nn.Module):
        return target

    def recorded() -> object:
        with recorder:
            return target()

    return _run(recorded, getattr(target, "__qualname__", type(target).__name__))


def _parts(result: object, inputs: Sequence[str]) -> tuple[nn.Module | None, object, torch.optim.Optimizer | None]:
    """The model, the outputs and the optimizer of what a PROGRAM names or returns, which has to have the outputs."""
    if inputs:
        raise SpecError("--input is for a module; PROGRAM names a tensor or a callable that returns tensors")
    if isinstance(result, (tuple, list)) and isinstance(next(iter(result), None), nn.Module):
        if len(result) == 2:
            return result[0], result[1], None
        if len(result) == 3 and isinstance(result[2], torch.optim.Optimizer):
            return result[0], result[1], result[2]
    return None, result, None


def capture_fake_target(
    target: object, inputs: Sequence[str], seed: int, sources: bool, *, flow: bool = False
) -> LiveGraph:
    """The same on tensors that have a shape and no data, whatever the size of the model.

    Raises:
        SpecError: also when the target exists already, with data: a tensor, or an instance of a module.
    """
    with _fake(target):
        return capture_target(target, inputs, seed, sources, flow=flow)


@contextmanager
def _fake(target: object) -> Iterator[None]:
    if isinstance(target, (torch.Tensor, nn.Module)) or not callable(target):
        raise SpecError("--fake runs what has no data yet: PROGRAM must name a callable, or a class of modules")
    with without_data():
        try:
            yield
        except SpecError as error:
            cause = error.__cause__
            if not isinstance(cause, RuntimeError) or isinstance(cause, LOOKED_AT):
                raise
            other = "under torchrun" if is_standing_in() else "without --fake"
            raise SpecError(f"{error} (torch cannot do everything without data: try it {other})") from cause


def capture_module(
    module: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    model: object = None,
    params: Names | None = None,
) -> LiveGraph:
    """Run a module, recorded, and capture the differentiable tensors that it returns.

    Raises:
        CaptureError: it returns none.
    """
    return _called(module, args, kwargs, Recorder(module if model is None else model)).captured(params)


def _called(module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object], recorder: Recorder) -> _Ran:
    with recorder:
        return _Ran(recorder, module(*args, **kwargs))


def parse_input(text: str) -> tuple[str | None, torch.Tensor]:
    """A tensor made from ``dtype[shape]``, with its keyword when given as ``name=dtype[shape]``.

    Floating-point and complex values are drawn from a normal distribution, all others are zero, which any embedding
    accepts.

    >>> name, tensor = parse_input("ids=int64[1,8]")
    >>> name, tensor.dtype, tuple(tensor.shape)
    ('ids', torch.int64, (1, 8))

    Raises:
        CaptureError: the text has no such form, or names no dtype of torch.
    """
    name, dtype_name, shape = described(text)
    dtype = getattr(torch, dtype_name, None)
    if not isinstance(dtype, torch.dtype):
        raise CaptureError(f"--input {text!r}: torch has no dtype {dtype_name!r}")
    try:
        return name, _make(shape, dtype)
    except (RuntimeError, MemoryError) as error:
        raise CaptureError(f"--input {text!r}: {own_error(error)}") from error


def _make(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32)
        return drawn.to(dtype)
    return torch.zeros(shape, dtype=dtype)


def _described(module: nn.Module, inputs: Sequence[str]) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    if not inputs:
        raise SpecError(f"{type(module).__name__} is a module: say what to run it on, such as --input 'float32[1,3]'")
    made = [parse_input(text) for text in inputs]
    named = {name: tensor for name, tensor in made if name is not None}
    return [tensor for name, tensor in made if name is None], named


def _run(call: Callable[[], T], name: str) -> T:
    try:
        return called(call, name)
    except SpecError as error:
        cause = error.__cause__
        if not isinstance(cause, LOOKED_AT):
            raise
        looked = SpecError(
            f"{name} looks at the values of a tensor{_place(cause)}, and with --fake only small ones made of numbers "
            "have any: work it out of Python's numbers there, or capture without --fake"
        )
        looked.has_place = True
        raise looked from cause


def _place(error: BaseException) -> str:
    """Where in the user's program an error was raised, to be put behind what it was."""
    found, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_internal(code):
            found = f" ({ShownPaths()(code.co_filename)} line {trace.tb_lineno})"
        trace = trace.tb_next
    return found
