"""The graph of a recorded forward: every operation, which tensor went where, and what the tensors are."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steps import measure_memory  # noqa: E402
from tensors import leaf, since  # noqa: E402
from wiring import describe_wiring, forward, tensor_roles  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402

nn = torch.nn


def test_a_recorder_that_does_not_note_the_flow_has_no_forward() -> None:
    with gradir.record() as rec:
        leaf(3).exp()
    with pytest.raises(CaptureError, match="use flow=True"):
        rec.forward()


def test_every_operation_is_there_with_its_module_line_and_variable() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    with gradir.record(model, flow=True) as rec, torch.no_grad():
        hidden = model(torch.ones(1, 3))
        best = hidden.argmax()
    graph = rec.forward()
    assert describe_wiring(graph) == [
        "ones:1",
        "0.weight",
        "0/t:1(~0.weight)",
        "0.bias",
        "0/addmm:1(0.bias, ones:1, 0/t:1)",
        "1/tanh:1(0/addmm:1)",
        "argmax:1(1/tanh:1)",
        "output(argmax:1)",
    ]
    assert graph.nodes["argmax:1"].names == ("best",)
    assert graph.nodes["argmax:1"].source.function.endswith("line_and_variable")
    assert (graph.nodes["0.weight"].role, graph.nodes["0.weight"].scope) == ("parameter", "0")
    assert graph.producer.options["graph"] == "forward"
    assert best is not None


def test_several_outputs_are_distinguished() -> None:
    assert describe_wiring(forward(lambda: sum(torch.arange(6.0).split([1, 2, 3])[2:]))) == [
        "arange:1",
        "split_with_sizes:1(~arange:1)",
        "add:1(split_with_sizes:1.2)",
        "output:0(split_with_sizes:1)",
        "output:1(split_with_sizes:1.1)",
        "output:2(add:1)",
    ]


def test_batch_norm_and_dropout_have_their_buffers_and_their_sample() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
    graph = forward(lambda: model(torch.rand(4, 2)), model)
    roles = {node.id: node.role for node in graph.nodes.values() if node.role in {"parameter", "buffer"}}
    assert roles == {
        "0.weight": "parameter",
        "0.bias": "parameter",
        "0.running_mean": "buffer",
        "0.running_var": "buffer",
    }
    assert "1/bernoulli_:1(!1/empty_like:1)" in describe_wiring(graph)
    assert len(graph.outputs) == 1


def test_a_float_dtype_of_autocast_is_a_copy() -> None:
    model = nn.Linear(2, 2)

    def run() -> object:
        with torch.autocast("cpu", torch.bfloat16):
            return model(torch.ones(1, 2))

    graph = forward(run, model)
    assert "_to_copy:1(bias)" in describe_wiring(graph)
    assert graph.nodes["addmm:1"].tensor.dtype == "bfloat16"


@pytest.mark.parametrize(
    "reentrant", [pytest.param(False, marks=since("2.12", "torch makes empty tensors for each checkpoint")), True]
)
def test_a_checkpoint_is_seen_through(reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = leaf(1, 2)
    from torch.utils.checkpoint import checkpoint as run

    graph = forward(lambda: run(model, x, use_reentrant=reentrant).sum(), model)
    assert [node.op for node in graph.nodes.values() if node.role == "function"] == ["t", "addmm", "tanh", "sum"]


def test_operations_of_a_custom_function_are_recorded() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    x = leaf(2)
    assert describe_wiring(forward(lambda: Doubled.apply(x).sum())) == [
        "leaf:1",
        "mul:1(leaf:1)",
        "sum:1(mul:1)",
        "output(sum:1)",
    ]


def test_functions_that_read_numbers_are_ends() -> None:
    def run() -> None:
        y = torch.ones(2) * 2
        float(y[0])
        y.numpy()
        y.tolist()

    assert describe_wiring(forward(run)) == [
        "ones:1",
        "mul:1(ones:1)",
        "select:1(~mul:1)",
        "_local_scalar_dense:1(select:1)",
        "numpy:1(mul:1)",
        "tolist:1(mul:1)",
        "output(select:1)",
    ]


@since("2.8", "torch refuses such classes while a mode sees what it runs")
def test_a_tensor_that_is_shared_as_another_object_is_the_same_tensor() -> None:
    class Named(torch.Tensor):
        pass

    x = torch.ones(2).as_subclass(Named)
    assert describe_wiring(forward(lambda: x.mul(2).sum())) == [
        "input:1",
        "mul:1(input:1)",
        "sum:1(mul:1)",
        "output(sum:1)",
    ]
    w = leaf(2)
    assert describe_wiring(forward(lambda: nn.Parameter(w * 2).sum())) == [
        "leaf:1",
        "mul:1(leaf:1)",
        "parameter:1(~mul:1)",
        "sum:1(parameter:1)",
        "output(sum:1)",
    ]


def test_a_parameter_in_another_memory_is_still_the_parameter() -> None:
    w = nn.Parameter(torch.ones(2))

    def run() -> object:
        w.data = torch.zeros(2)
        return w * 2

    assert "mul:1(parameter:1)" in describe_wiring(forward(run))


def test_a_functional_call_takes_what_it_is_given() -> None:
    model = nn.Linear(2, 1)
    graph = forward(
        lambda: torch.func.functional_call(model, {"weight": torch.zeros(1, 2)}, (torch.ones(1, 2),)), model
    )
    assert "t:1(~zeros:1)" in describe_wiring(graph)
    assert "weight" not in graph.nodes


def test_tensors_of_a_functional_call_are_leaves() -> None:
    model, x = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1, affine=False)), torch.ones(3, 2)
    given = {name: tensor.detach().clone().requires_grad_() for name, tensor in model.named_parameters()}
    with gradir.record(model, flow=True) as rec:
        loss = torch.func.functional_call(model, given, (x,)).sum()
    buffers = {"1.running_mean": "buffer", "1.running_var": "buffer"}
    roles = {"0.weight": "leaf", "0.bias": "leaf", **buffers}
    assert tensor_roles(rec.capture(loss)) == roles
    assert tensor_roles(rec.forward()) == {"input:1": "input", **roles}


@pytest.mark.parametrize(("requires_grad", "role"), [(True, "leaf"), (False, "input")])
def test_a_name_makes_no_buffer(requires_grad: bool, role: str) -> None:
    x = torch.ones(2, requires_grad=requires_grad)
    with gradir.record(flow=True) as rec:
        x.exp()
    assert tensor_roles(rec.forward(params={"mine": x})) == {"mine": role}


def test_an_operation_that_raises_is_the_last_and_marked() -> None:
    y = torch.ones(2)
    with pytest.raises(RuntimeError), gradir.record(flow=True) as rec:
        torch.cat([y * 2, torch.ones(2, 2)])
    last = [*rec.forward().nodes.values()][-1]
    assert (last.op, [ref.id for ref in last.inputs]) == ("cat", ["mul:1", "ones:1"])
    assert last.ext["failed"].startswith("RuntimeError: Tensors must have same number of dimensions")


def test_a_function_that_raises_before_any_operation_is_the_last_and_marked() -> None:
    with pytest.raises(ValueError, match="target size"), gradir.record(flow=True) as rec:
        nn.functional.binary_cross_entropy(torch.ones(2), torch.ones(3))
    last = [*rec.forward().nodes.values()][-1]
    assert (last.op, [ref.id for ref in last.inputs]) == ("binary_cross_entropy", ["ones:1", "ones:2"])
    assert last.ext["failed"].startswith("ValueError: Using a target size")


def test_recorders_in_each_other_and_one_that_is_entered_again() -> None:
    outer, inner = gradir.record(flow=True), gradir.record(flow=True)
    with outer:
        x = torch.ones(2)
        with inner:
            y = x * 2
    with outer:
        y.sum()
    assert describe_wiring(outer.forward()) == ["ones:1", "mul:1(ones:1)", "sum:1(mul:1)", "output(sum:1)"]
    assert describe_wiring(inner.forward()) == ["input:1", "mul:1(input:1)", "output(mul:1)"]


def test_a_tensor_of_another_thread_is_an_input() -> None:
    made = []

    def run() -> None:
        thread = threading.Thread(target=lambda: made.append(leaf(2).exp()))
        thread.start()
        thread.join()
        made[0].sum()

    assert describe_wiring(forward(run)) == ["input:1", "sum:1(input:1)", "output(sum:1)"]


@pytest.fixture
def dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("dynamo")
@since("2.11", "torch does not tell when compiled code has run, and what it gave")
def test_compiled_code_is_compiled_whole_and_runs_on() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: x.sin().cos(), backend=counter, fullgraph=True)
    x = leaf(2)
    with gradir.record(flow=True) as rec:
        loss = compiled(x * 2).sum()
    assert [node.op for node in rec.capture(loss).nodes.values()][-3:] == ["compiled_function", "sum", ""]
    assert "mul:1(leaf:1)" in describe_wiring(rec.forward())
    with gradir.record(flow=True):
        compiled(x)
    assert counter.frame_count == 1


@since("2.11", "torch refuses to run it while a mode sees what it runs")
def test_an_operation_that_takes_functions_is_one() -> None:
    x = torch.ones(2)
    graph = forward(lambda: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
    assert describe_wiring(graph)[-2:] == ["cond:1(gt:1, input:1)", "output(cond:1)"]


@pytest.mark.parametrize("around", [False, True])
def test_tensors_without_data(around: bool) -> None:
    fake = torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)

    def run() -> object:
        with contextlib.nullcontext() if around else fake:
            model = nn.Linear(2, 2)
            return model(torch.ones(1, 2)).relu_()

    with fake if around else contextlib.nullcontext():
        graph = forward(run)
    assert describe_wiring(graph)[-2:] == ["relu_:1(!addmm:1)", "output(relu_:1)"]
    assert [node.role for node in graph.nodes.values()].count("parameter") == 2


def test_sparse_tensors_and_tensors_that_wrap_others() -> None:
    sparse = torch.eye(2).to_sparse()
    assert describe_wiring(forward(lambda: (sparse + sparse).coalesce().values())) == [
        "input:1",
        "add:1(input:1, input:1)",
        "values:1(~add:1)",
        "output(values:1)",
    ]


@since("2.11", "a weak reference to a storage breaks the memory of torch")
def test_no_tensor_and_no_memory_is_kept_alive() -> None:
    with gradir.record(flow=True) as rec:
        y = torch.ones(2) * 2
        kept = [weakref.ref(y), weakref.ref(y.untyped_storage()), weakref.ref(y.view(-1))]
        del y
    gc.collect()
    assert [reference() for reference in kept] == [None, None, None]
    assert describe_wiring(rec.forward())[:2] == ["ones:1", "mul:1(ones:1)"]


def test_memory_that_is_used_again_leads_no_edge_astray() -> None:
    def run() -> None:
        for _ in range(50):
            written = torch.ones(4)
            written.add_(1)
            del written
            with torch.utils._python_dispatch._disable_current_modes():
                read = torch.ones(4)
            read.sum()
            read.mean()
            del read

    graph = forward(run)
    sources = {graph.nodes[node.inputs[0].id].role for node in graph.nodes.values() if node.op in {"sum", "mean"}}
    assert sources == {"input"}


def test_a_deep_forward_takes_memory_that_grows_with_it() -> None:
    def recorded(length: int) -> gradir.Graph:
        x = torch.ones(1)
        with gradir.record(flow=True) as rec:
            for _ in range(length):
                x = x + 1
        return rec.forward()

    def peak(length: int) -> int:
        graph, memory = measure_memory(lambda: recorded(length))
        assert len(graph.nodes) == length + 2
        return memory

    peak(100)
    assert peak(2_000) < 5 * peak(500)
