"""Compiled code while a flow is recorded: one operation of which nothing inside is known, and not compiled anew."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402
from wiring import describe_wiring  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn

pytestmark = [
    pytest.mark.usefixtures("dynamo"),
    # torch says of global hooks that they run for the wrapper of a compiled module, too.
    pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning"),
]


@pytest.fixture
def dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(params=["eager", "aot_eager"])
def counting(request: pytest.FixtureRequest) -> Any:
    from torch._dynamo.testing import CompileCounterWithBackend

    return CompileCounterWithBackend(request.param)


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(2), nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(x))


class Heads(nn.Module):
    """One output that learns, one that may be left out, and one that is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.cut = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.one(x), self.other(x), self.cut(x).detach()


def compiled_of_a_module(head: Head, backend: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(head, backend=backend, **options)


def compiled_of_a_function(head: Head, backend: Any, **options: Any) -> Callable[..., Any]:
    def run(x: torch.Tensor) -> torch.Tensor:
        return head(x)

    return torch.compile(run, backend=backend, **options)


def compiled_in_place(head: Head, backend: Any, **options: Any) -> Callable[..., Any]:
    head.compile(backend=backend, **options)
    return head


def compiled_of_a_method(head: Head, backend: Any, **options: Any) -> Callable[..., Any]:
    head.forward = torch.compile(head.forward, backend=backend, **options)
    return head


COMPILED = (compiled_of_a_module, compiled_of_a_function, compiled_in_place, compiled_of_a_method)
# Each with either backend, in turn with and without what else a test varies.
WAYS = [
    (way, backend, number % 2 != place)
    for number, way in enumerate(COMPILED)
    for place, backend in enumerate(("eager", "aot_eager"))
]


@pytest.mark.parametrize(("way", "counting", "sources"), WAYS, indirect=["counting"])
def test_recording_does_not_recompile_and_shows_one_operation(
    way: Callable[..., Any], counting: Any, sources: bool
) -> None:
    stem, head = nn.Linear(2, 2), Head()
    run, x = way(head, counting), torch.rand(3, 2)
    run(stem(x))
    compilations = counting.frame_count
    with gradir.record({"stem": stem, "head": head}, sources=sources, flow=True) as rec:
        loss = run(stem(x)).sum()
    run(stem(x))
    assert (compilations, counting.frame_count) == (1, 1)
    graph = rec.forward()
    (part,) = [node for node in graph.nodes.values() if node.opaque]
    assert part.op == "compiled_function"
    assert part.native.startswith("torch.compile(")
    assert part.source is not None
    assert part.source.file.endswith("test_compiled_parts.py")
    taken = [graph.nodes[ref.id] for ref in part.inputs if ref is not None]
    names = ["", "head.norm.weight", "head.norm.bias", "head.out.weight", "head.out.bias"]
    assert [*(node.names[0] if node.names else "" for node in taken)][:5] == names
    kinds = {node.names[0]: kind for node, kind in zip(taken, part.kinds, strict=True) if node.role == "buffer"}
    assert len(kinds) == 3
    assert kinds["head.norm.num_batches_tracked"] == "inplace"
    ran = [node.op for node in graph.nodes.values() if node.role == "function"]
    assert ran == ["t", "addmm", "compiled_function", "sum"]
    assert rec.explain(loss).level == "none"
    assert all(status in {"reached", "zero"} for status in rec.explain(loss).statuses.values())


@pytest.mark.parametrize(("way", "counting", "fullgraph"), WAYS, indirect=["counting"])
def test_source_lines_alone_compile_nothing_anew(way: Callable[..., Any], counting: Any, fullgraph: bool) -> None:
    head, x = Head(), torch.rand(3, 2)
    run = way(head, counting, fullgraph=fullgraph)
    run(x)
    for _ in range(3):
        with gradir.record(head, sources=True) as rec:
            hidden = x * 2
            found = run(hidden)
            loss = found.sum()
        graph = rec.capture(loss)
    run(x)
    if isinstance(run, nn.Module):
        gradir.capture(run, x, sources=True)
    assert counting.frame_count == 1
    made = [node for node in graph.nodes.values() if node.role == "function" and node.op != "accumulate_grad"]
    *inside, last = [node.source for node in made]
    assert inside
    assert {(source.file, source.line, source.function) for source in inside} == {
        (last.file, last.line - 1, last.function)
    }
    assert last.function == "test_source_lines_alone_compile_nothing_anew"


def test_only_the_node_that_compiled_code_returned_has_the_variable(counting: Any) -> None:
    class Kept:
        other: torch.Tensor

    kept = Kept()

    @torch.compile(backend=counting)
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        kept.other = x.cos()
        return y

    x = leaf(2)
    with gradir.record(sources=True) as rec:
        y = run(x)
    names = {node.op: node.names for node in rec.capture((y, kept.other)).nodes.values()}
    # What aot_eager compiles is one node, and has both results.
    assert names.get("sin", ()) == names.get("cos", ()) == ()
    with gradir.record(sources=True) as rec:
        kept.other = run(x)
        z = torch.compile(lambda x: x.exp(), backend=counting)(x)
    assert [node.names for node in rec.capture(z).nodes.values() if node.op in {"exp", "compiled_function"}] == [("z",)]


def test_recording_lines_continues_behind_compiled_code_that_raised(counting: Any) -> None:
    run = torch.compile(lambda x: x @ torch.ones(5, 5), backend=counting)
    x = leaf(2)
    with gradir.record(sources=True) as rec:
        with pytest.raises(RuntimeError):
            run(x)
        y = x.exp()
    assert rec.capture(y).nodes["exp:1"].names == ("y",)
    assert torch.overrides._get_current_function_mode_stack() == []


def test_code_compiled_in_a_recording_stays_compiled(counting: Any) -> None:
    double = torch.compile(lambda x: x.sin() * 2, backend=counting)
    x = leaf(2)
    for _ in range(2):
        with gradir.record(flow=True) as rec:
            y = double(x.exp())
            loss = y.sum()
        operations = ["exp:1(leaf:1)", "compiled_function:1(exp:1)", "sum:1(compiled_function:1)", "output(sum:1)"]
        assert describe_wiring(rec.forward())[1:] == operations
        assert rec.forward().nodes["compiled_function:1"].names == ("y",)
        assert rec.explain(loss, params={"x": x}).statuses == {"x": "reached"}
        double(x)
    with torch.device("cpu"):
        double(x)
        known = counting.frame_count
        with gradir.record(flow=True) as outer, gradir.record(flow=True) as inner:
            double(x)
    assert (known, counting.frame_count) == (2, 2)
    assert (
        describe_wiring(outer.forward())
        == describe_wiring(inner.forward())
        == ["leaf:1", "compiled_function:1(leaf:1)", "output(compiled_function:1)"]
    )


def test_the_backward_of_compiled_code_is_compiled_once() -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    backwards = []

    def leave(graph: Any, inputs: object) -> Any:
        return make_boxed_func(graph)

    def count(graph: Any, inputs: object) -> Any:
        backwards.append(graph)
        return leave(graph, inputs)

    double = torch.compile(lambda x: x.sin() * 2, backend=aot_autograd(fw_compiler=leave, bw_compiler=count))
    x = leaf(2)
    double(x).sum().backward()
    with gradir.record(flow=True):
        double(x).sum().backward()
    double(x).sum().backward()
    assert len(backwards) == 1


def test_a_graph_break_is_inside_the_compiled_operation(counting: Any) -> None:
    @torch.compile(backend=counting)
    def run(x: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin()
        seen.add_(1)
        torch._dynamo.graph_break()
        return y.cos(), seen

    x, seen = leaf(2), torch.zeros(2)
    run(x, seen)
    assert counting.frame_count == 2
    with gradir.record(flow=True) as rec:
        y, same = run(x, seen)
        total = y + same
    assert counting.frame_count == 2
    assert describe_wiring(rec.forward())[2:4] == [
        "compiled_function:1(leaf:1, !input:1)",
        "add:1(compiled_function:1, compiled_function:1)",
    ]
    assert rec.forward().nodes["compiled_function:1"].kinds == ("data", "inplace")
    assert total.requires_grad


def test_force_eager_shows_the_operations_of_compiled_code(counting: Any) -> None:
    run = torch.compile(lambda x: x.sin().detach(), backend=counting)
    x = leaf(2)
    with gradir.record(flow=True) as rec:
        loss = run(x).sum()
    (cause,) = rec.explain(loss, params={"x": x}).causes
    assert (cause.kind, cause.level, cause.names) == ("compiled", "error", ("x",))
    assert 'torch.compiler.set_stance("force_eager")' in str(rec.explain(loss, params={"x": x}))
    with torch.compiler.set_stance("force_eager"), gradir.record(flow=True) as rec:
        loss = run(x).sum()
    (cause,) = rec.explain(loss, params={"x": x}).causes
    assert (cause.kind, cause.level, cause.names) == ("detach", "error", ("x",))


def test_a_gradient_lost_inside_compiled_code_is_reported(counting: Any) -> None:
    stem, heads = nn.Linear(2, 2), Heads()
    run = torch.compile(heads, backend=counting)
    with gradir.record({"stem": stem, "heads": heads}, flow=True) as rec:
        one, other, cut = run(stem(torch.ones(3, 2)))
        whole, some, lost = (one + other).sum(), one.sum() + cut.sum(), cut.sum()
    for module in (stem, heads):
        module.zero_grad()
    some.backward(retain_graph=True)
    gradients = {
        f"{name}.{own}": tensor.grad
        for name, module in {"stem": stem, "heads": heads}.items()
        for own, tensor in module.named_parameters()
    }
    found = rec.explain(some)
    reached = {name for name, gradient in gradients.items() if gradient is not None and gradient.any()}
    assert {name for name, status in found.statuses.items() if status == "reached"} == reached
    assert reached == {"stem.weight", "stem.bias", "heads.one.weight", "heads.one.bias"}
    assert {term.names for term in found.terms} == {tuple(name for name in found.statuses if name in reached), ()}
    left = ("heads.other.weight", "heads.other.bias")
    detached = ("heads.cut.weight", "heads.cut.bias")
    told = [(cause.kind, cause.level, cause.names) for cause in found.causes]
    assert {found.status(name) for name in detached} == {"unreached"}
    if gradients["heads.other.weight"] is None:
        assert told == [("opaque", "info", left + detached)]
        assert {found.status(name) for name in left} == {"unreached"}
    else:
        # What aot_eager compiles has a backward that runs whole.
        assert told == [("opaque", "info", left), ("opaque", "info", detached)]
        assert {found.status(name) for name in left} == {"zero"}
    assert [(cause.kind, cause.level, len(cause.names)) for cause in rec.explain(lost).causes] == [
        ("compiled", "error", 8)
    ]
    assert [cause.kind for cause in rec.explain(whole).causes if set(cause.names) - set(detached)] == []


def test_hidden_parameters_of_compiled_code_are_not_reported_as_unused(counting: Any) -> None:
    class Step:
        def __init__(self) -> None:
            self.heads, self.idle = Heads(), nn.Linear(2, 1)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            one, _, cut = self.heads(x)
            return (one + cut).sum()

    step, outer = Step(), nn.Linear(2, 2)
    run = torch.compile(step.run, backend=counting)
    with gradir.record({"heads": step.heads, "outer": outer}, flow=True) as rec:
        x = torch.ones(1, 2)
        outer(x)
        loss = run(x)
    found = rec.explain(loss)
    assert found.level == "info"
    statuses = {name: found.status(f"{name}.weight") for name in ("heads.one", "heads.other", "outer")}
    assert statuses == {"heads.one": "reached", "heads.other": "unreached", "outer": "unused"}


def test_code_that_raises_is_named_and_recording_continues(counting: Any) -> None:
    run = torch.compile(lambda x: x @ torch.ones(5, 5), backend=counting)
    x = leaf(2)
    rec = gradir.record(flow=True)
    with pytest.raises(RuntimeError) as raised, rec:
        run(x.exp())
    found = rec.explain(raised.value, params={"x": x})
    assert [(cause.kind, cause.op) for cause in found.causes] == [("raised", "compiled_function")]
    failed = rec.forward().nodes["compiled_function:1"]
    assert dict(failed.ext).keys() == {"failed"}
    assert torch.overrides._get_current_function_mode_stack() == []
    with gradir.record(flow=True) as rec:
        x.exp()
    assert describe_wiring(rec.forward()) == ["leaf:1", "exp:1(leaf:1)", "output(exp:1)"]


def test_only_the_recording_thread_is_recorded_and_torch_is_left_as_it_was(counting: Any) -> None:
    from torch._dynamo import eval_frame

    functions = {name: value for name, value in vars(eval_frame).items() if callable(value)}
    run = torch.compile(lambda x: x.sin(), backend=counting)
    x = leaf(2)
    run(x)
    with gradir.record(flow=True) as rec:
        other = threading.Thread(target=run, args=(x,))
        other.start()
        other.join()
        run(x)
    assert describe_wiring(rec.forward()) == ["leaf:1", "compiled_function:1(leaf:1)", "output(compiled_function:1)"]
    assert {name: value for name, value in vars(eval_frame).items() if callable(value)} == functions


def test_a_compiled_part_keeps_nothing_alive(counting: Any) -> None:
    head = Head()
    run = torch.compile(head, backend=counting)
    with gradir.record(head, flow=True) as rec:
        given = leaf(3, 2).exp()
        hidden = run(given)
        loss = hidden.sum()
    rec.explain(loss)
    gone = [weakref.ref(tensor) for tensor in (given, hidden, loss)]
    del given, hidden, loss
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


def test_an_operation_that_takes_functions_may_cut() -> None:
    x = leaf(2)
    with gradir.record(flow=True) as rec:
        with torch.no_grad():
            y = torch.cond(torch.tensor(True), torch.sin, torch.cos, (x,))
        loss = (y * x).sum()
    causes = rec.explain(loss, params={"x": x}).causes
    assert [(cause.kind, cause.level, cause.op, cause.names) for cause in causes] == [
        ("no_grad", "info", "cond", ("x",))
    ]


def test_the_compiler_is_loaded_by_programs_that_compile_alone() -> None:
    """To load it takes longer than most programs. What compiles while it is recorded is noted all the same."""
    program = """
import sys, torch, gradir
with gradir.record(flow=True) as rec:
    x = torch.ones(3, requires_grad=True).exp()
    print("torch._dynamo" in sys.modules)
    y = torch.compile(lambda x: x.sin().cos(), backend="eager")(x)
print([node.op for node in rec.forward().nodes.values() if node.role == "function"])
with gradir.record(flow=True) as rec:
    x.exp()
print([node.op for node in rec.forward().nodes.values() if node.role == "function"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "['ones', 'exp', 'compiled_function']", "['exp']"]
