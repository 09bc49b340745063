"""Run the target of a request inside a recorder, and capture or explain the result."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import chain
from traceback import walk_tb
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import fx, nn

from gradir.errors import CaptureError, SpecError, did_you_mean
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch.fake import is_standing_in, without_data
from gradir.frontends.pytorch.private import COMPILES_BODIES, DYNAMO_UTILS, LOOKED_AT, own_buffers
from gradir.frontends.pytorch.reading.assemble import LiveGraph, assemble
from gradir.frontends.pytorch.reading.outputs import flatten
from gradir.frontends.pytorch.reading.tensors import Modules, modules_below, modules_of, ones_for
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.sources import is_internal
from gradir.frontends.texts import ShownPaths
from gradir.frontends.walks import replace_attribute
from gradir.gcpause import pause_gc
from gradir.ir import Graph
from gradir.protocols import OtherFrontendError, StoppedError
from gradir.request import CaptureRequest
from gradir.spec import called, describe_error, parse_described


class _Forward(NamedTuple):
    """The graph of a forward, without live objects."""

    graph: Graph


class Traced(NamedTuple):
    """A call to compile, the modules, outermost called modules and graph of an eager run before, and how it ran."""

    call: Callable[[], object]
    modules: Modules
    called: Sequence[nn.Module]
    eager: Graph
    compiles: bool
    is_fake: bool


class _RunResult(NamedTuple):
    """The result of running a target."""

    recorder: Recorder
    outputs: object
    model: nn.Module | None = None
    call: Callable[[], object] | None = None


def capture_target(request: CaptureRequest) -> LiveGraph | _Forward:
    """Capture tensors, or what a module or a program returns, such as a module or ``(model, outputs)``."""
    if request.graph in {"joint", "compiled"}:
        raise OtherFrontendError(_trace(request))
    if not request.is_program and not isinstance(request.target, nn.Module):
        return _capture_tensors(request)
    if request.graph == "forward":
        return _Forward(_forward(request))
    with _without_data(request):
        ran = run_recorded(request)
        if request.is_program:
            _expect_some(ran.outputs)
        live = ran.recorder.live_capture(ran.outputs, model=ran.model, params=request.params)
        if request.graph == "both":
            forward = ran.recorder.forward(model=ran.model, returned=ran.outputs)
            live = live._replace(forward=forward if forward.nodes else "no operation ran while it was recorded")
            if forward.nodes:
                # torch chooses other operations during a recording: a reshape runs as a view instead of an alias.
                live = live.with_options({"graph": "both"})
        if request.collectives:
            live = ran.recorder.exchanged.with_dry_backward(live)
            if live.graph.rank is None:
                raise CaptureError(
                    "--collectives needs a process group; the program must call torch.distributed.init_process_group, "
                    "started by torchrun"
                )
        return live


def _capture_tensors(request: CaptureRequest) -> LiveGraph:
    target = request.target
    if request.inputs or request.kwargs:
        raise CaptureError(f"inputs are for a torch.nn.Module to run on, not for {type(target).__name__}")
    if request.graph == "forward" or request.flow or request.sources or request.cost or request.seed is not None:
        asked = f"cost={request.cost!r}" if request.cost else "sources=True"
        asked, then = ("flow=True", "rec.forward()") if request.graph == "forward" else (asked, "rec.capture(loss)")
        raise CaptureError(
            "these tensors were computed before; pass the module and its inputs, or record their forward, as in "
            f"`with gradir.record(model, {asked}) as rec: loss = ...`, then `{then}`"
        )
    with pause_gc():
        live = assemble(flatten(target), modules_below(modules_of(request.model)), params=request.params)
    return live._replace(forward="its tensors were computed before") if request.graph == "both" else live


def _expect_some(outputs: object) -> None:
    """Refuse a training function without a result, which only has a forward graph."""
    if outputs is None:
        raise SpecError("it returned None; return the loss from it, or run the whole script with 'gradir run'")


def _forward(request: CaptureRequest) -> Graph:
    """Capture the forward of a callable or a module, which needs no gradient."""
    if isinstance(request.target, torch.Tensor):
        raise SpecError("the forward of a tensor has already run; PROGRAM must name the function that computes it")
    recorders: list[Recorder] = []
    try:
        with _without_data(request):
            ran = run_recorded(replace(request, flow=True, sources=False), recorders)
            graph = ran.recorder.forward(model=ran.model, returned=ran.outputs)
        if not graph.nodes:
            raise CaptureError("no operation ran, so there is no forward to capture")
        return graph
    except SpecError as error:
        cause = error.__cause__
        if cause is None:
            raise
        graph = recorders[-1].forward()
        # The single node `raise` shows the place of an error if no operation failed.
        functions = [node.op for node in graph.nodes.values() if node.role == "function"]
        if functions in ([], ["raise"]):
            raise
        text, place = str(error), _place(cause)
        raise StoppedError(text if place in text else text + place, graph) from cause


def run_recorded(request: CaptureRequest, recorders: list[Recorder] | None = None) -> _RunResult:
    """Run a target in a recorder, after ``step - 1`` steps with a backward; add each recorder to ``recorders``."""
    recorders = [] if recorders is None else recorders

    def make_recorder(model: nn.Module | None, left: int) -> Recorder:
        recorders.append(Recorder(replace(request, model=model if request.model is None else request.model, step=left)))
        return recorders[-1]

    _set_seed(request)
    recorder = make_recorder(None, request.step)
    result = _run_target(request.target, recorder)
    # Both are graphs already.
    if request.is_program and not request.inputs and (_is_exported(result) or isinstance(result, fx.GraphModule)):
        raise OtherFrontendError(result)
    before = request.step - 1
    for left in range(0 if isinstance(result, nn.Module) else before, 0, -1):
        _step(result)
        recorder = make_recorder(None, left)
        result = _run_target(request.target, recorder)
    if isinstance(result, nn.Module):
        call = _bind_inputs(result, request)
        for _ in range(before):
            _step(_run_module(call, request, result))
        recorder = make_recorder(result, 1)
        return _RunResult(recorder, _run_module(partial(_record_call, recorder, call), request, result), call=call)
    model, outputs, _ = _split_result(result, request.inputs)
    return _RunResult(recorder, outputs, model)


def _is_exported(result: object) -> bool:
    # A program with such a value has imported the module.
    return isinstance(result, getattr(sys.modules.get("torch.export"), "ExportedProgram", ()))


def expect_traceable() -> None:
    """Refuse a release of torch that does not describe the inputs and outputs of joint graphs."""
    if torch.__version__ < torch.torch_version.TorchVersion("2.10"):
        found = f"and this is {torch.__version__}"
        raise CaptureError(f"joint and compiled graphs need torch 2.10 or later, {found}: update it")


def _trace(request: CaptureRequest) -> object:
    """Run the target eagerly, and return the call to trace with the facts of this run."""
    target = request.target
    expect_traceable()
    if not callable(target):
        raise SpecError(
            f"a {request.graph} graph is traced of a function or a module, and this is of type "
            f"{type(target).__name__}: name a function that returns the loss, or a class of modules with --input"
        )
    if not request.is_program and not isinstance(target, nn.Module):
        # Functions run without arguments, as those that a PROGRAM names.
        target = partial(target, *request.inputs, **(request.kwargs or {}))
        request = replace(request, target=target, inputs=(), kwargs=None)
    with _without_data(request), set_compile_stance("force_eager"), warnings.catch_warnings():
        # torch warns about gradir's hooks.
        warnings.filterwarnings("ignore", "Using `torch.compile")
        ran = run_recorded(request)
    if request.fake and ran.call is None:
        raise SpecError("--fake traces a class of modules with --input: the second run of a function has data")
    eager = ran.recorder.live_capture(ran.outputs, model=ran.model, params=request.params).graph
    _set_seed(request)
    modules = ran.recorder.modules(request.model if ran.model is None else ran.model)
    for buffer in chain.from_iterable(own_buffers(module).values() for module in modules.paths):
        if buffer is not None and buffer.grad_fn is not None:
            # The next run would continue the graph of this run.
            buffer.detach_()
    compiles = request.graph == "compiled"
    return Traced(ran.call or target, modules, ran.recorder.called, eager, compiles, request.fake)


@contextmanager
def set_compile_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """Set the stance for the program's compiled code, but let ``cond`` and its like compile their arguments.

    They find in this way which tensors and modules these functions use.
    """
    utils = import_module(DYNAMO_UTILS)
    original: Callable[[], AbstractContextManager[None]] = getattr(utils, COMPILES_BODIES)

    @contextmanager
    def compile_bodies() -> Iterator[None]:
        with torch.compiler.set_stance("default"), original():
            yield

    with replace_attribute(utils, COMPILES_BODIES, compile_bodies), torch.compiler.set_stance(stance, **options):
        yield


def _set_seed(request: CaptureRequest) -> None:
    if request.is_program or request.seed is not None:
        torch.manual_seed(request.seed or 0)


def _bind_inputs(module: nn.Module, request: CaptureRequest) -> partial[object]:
    if not request.inputs and (request.is_program or (not request.kwargs and _needs_inputs(module))):
        example = "such as --input 'float32[1,3]'" if request.is_program else "as in gradir.capture(model, x)"
        raise SpecError(f"{type(module).__name__} is a module; describe its input, {example}")
    if not request.is_program:
        return partial(module, *request.inputs, **(request.kwargs or {}))
    inputs = [parse_input(text) for text in request.inputs]
    named = {name: tensor for name, tensor in inputs if name is not None}
    return partial(module, *(tensor for name, tensor in inputs if name is None), **named)


def _needs_inputs(module: nn.Module) -> bool:
    try:
        signature(module.forward).bind()
    except (TypeError, ValueError) as error:
        # A forward in C++ has no signature.
        return isinstance(error, TypeError)
    return False


def _record_call(recorder: Recorder, call: Callable[[], object]) -> object:
    with recorder:
        return call()


def _run_module(call: Callable[[], object], request: CaptureRequest, module: nn.Module) -> object:
    """Call a module; report an error as the program's error if a PROGRAM or its forward graph is captured."""
    return _run(call, type(module).__name__) if request.is_program or request.graph == "forward" else call()


def _step(outputs: object) -> None:
    tensors = [entry.tensor for entry in flatten(outputs, warns=False) if entry.role == "output"]
    torch.autograd.backward(tensors, list(map(ones_for, tensors)))


def explain_target(request: CaptureRequest) -> Explanation:
    """Explain the gradients of the parameters behind the tensors that `capture_target` would capture."""
    if not request.is_program and not isinstance(request.target, nn.Module):
        advice = "`with gradir.record(model, flow=True) as rec: loss = ...`, then `rec.explain(loss)`"
        raise CaptureError(f"cannot explain a {type(request.target).__name__} by itself; record its forward: {advice}")
    _set_seed(request)
    recorder = Recorder(CaptureRequest(flow=True))
    model: Any = request.model
    optimizer: object = None
    try:
        result = _run_target(request.target, recorder)
        if _is_exported(result):
            raise OtherFrontendError(result)
        if isinstance(result, nn.Module):
            model = result if model is None else model
            result = _run_module(partial(_record_call, recorder, _bind_inputs(result, request)), request, result)
        else:
            model, result, optimizer = _split_result(result, request.inputs)
    except (SpecError, RuntimeError) as error:
        cause = error.__cause__ if isinstance(error, SpecError) else error
        if not isinstance(cause, RuntimeError) or not recorder.has_failed:
            raise
        found = recorder.explain(cause, model=model, params=request.params)
        result = None
    else:
        if request.is_program:
            _expect_some(result)
        found = recorder.explain(result, model=model, params=request.params, optimizer=optimizer, values=request.values)
    return found.locate_in(recorder.forward(model=model, returned=result)) if request.graph == "forward" else found


def _run_target(target: object, recorder: Recorder) -> object:
    if not callable(target) or isinstance(target, nn.Module):
        return target
    return _run(partial(_record_call, recorder, target), getattr(target, "__qualname__", type(target).__name__))


def _split_result(result: object, inputs: Sequence[str]) -> tuple[nn.Module | None, object, object]:
    """Return the model, the outputs and the optimizers in the value that a PROGRAM names or returns."""
    if inputs:
        raise SpecError("--input is for a module; PROGRAM names a tensor or a callable that returns tensors")
    if isinstance(result, (tuple, list)) and isinstance(next(iter(result), None), nn.Module):
        if len(result) == 2:
            return result[0], result[1], None
        several = result[2] if len(result) == 3 and isinstance(result[2], (tuple, list)) else result[2:]
        if len(result) == 3 and several and all(isinstance(each, torch.optim.Optimizer) for each in several):
            return result[0], result[1], result[2]
    return None, result, None


@contextmanager
def _without_data(request: CaptureRequest) -> Iterator[None]:
    target = request.target
    if not request.fake:
        yield
        return
    if isinstance(target, (torch.Tensor, nn.Module)) or not callable(target):
        raise SpecError("--fake cannot use a tensor with data; PROGRAM must name a callable or a module class")
    with without_data():
        try:
            yield
        except SpecError as error:
            cause = error.__cause__
            if not isinstance(cause, RuntimeError) or isinstance(cause, LOOKED_AT):
                raise
            other = "under torchrun" if is_standing_in() else "without --fake"
            raise SpecError(f"{error} (torch cannot run every operation without data; try it {other})") from cause


def parse_input(text: str) -> tuple[str | None, torch.Tensor]:
    """Make a tensor from ``dtype[shape]``, with its keyword if given as ``name=dtype[shape]``.

    Floats are normally distributed, and all others are zero, a valid index of any embedding.

    >>> name, tensor = parse_input("ids=int64[1,8]")
    >>> name, tensor.dtype, tuple(tensor.shape)
    ('ids', torch.int64, (1, 8))
    """
    name, dtype_name, shape = parse_described(text)
    dtype = getattr(torch, dtype_name, None)
    if not isinstance(dtype, torch.dtype):
        hint = did_you_mean(dtype_name, (name for name, value in vars(torch).items() if isinstance(value, torch.dtype)))
        raise CaptureError(f"--input {text!r}: torch has no dtype {dtype_name!r}{hint}")
    # torch has no random generators for smaller dtypes.
    drawn_as = torch.complex64 if dtype.is_complex else torch.float32
    is_drawn = dtype.is_floating_point or dtype.is_complex
    try:
        return name, torch.randn(shape, dtype=drawn_as).to(dtype) if is_drawn else torch.zeros(shape, dtype=dtype)
    except (RuntimeError, MemoryError) as error:
        raise CaptureError(f"--input {text!r}: {describe_error(error)}") from error


def _run(call: Callable[[], object], name: str) -> object:
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
    """Return the place in the user's program that raised an error, to append to its message."""
    places = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__) if not is_internal(frame.f_code)]
    return f" ({ShownPaths()(places[-1][0].co_filename)} line {places[-1][1]})" if places else ""
