"""The cases of docs/cases.md about modules."""

from __future__ import annotations

import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402
from threads import call_in_thread  # noqa: E402
from wiring import tensor_roles, wiring  # noqa: E402

import gradir  # noqa: E402
from gradir.ir import Graph  # noqa: E402

nn = torch.nn
functional = torch.nn.functional


def use_up_numbers(count: int) -> None:
    """Make nodes, so that this thread's next one has a number that another thread's early ones have not."""
    x = leaf(1)
    for _ in range(count):
        x.exp()


def recorded(model: nn.Module, *, sources: bool = False) -> Graph:
    with gradir.record({"m": model}, sources=sources) as rec:
        y = model(torch.ones(1, 2))
    return rec.capture(y)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)


def test_a_module_called_twice_is_one_path_and_two_calls() -> None:
    class Twice(Pair):
        def forward(self, x):
            return self.a(self.a(x)).tanh()

    graph = gradir.capture(Twice(), torch.ones(1, 2))
    assert wiring(graph) == {
        "a/t:1": ("a.weight",),
        "a/mm:1": (None, "a/t:1"),
        "a/t:2": ("a.weight",),
        "a/mm:2": ("a/mm:1", "a/t:2"),
        "tanh:1": ("a/mm:2",),
        "output": ("tanh:1",),
    }
    assert {path: scope.calls for path, scope in graph.scopes.items()} == {"": 1, "a": 2, "b": 0}


def test_operations_of_an_uncalled_module_belong_to_its_caller() -> None:
    class Bypass(Pair):
        def forward(self, x):
            return self.a.forward(x).tanh()

    graph = recorded(Bypass())
    assert wiring(graph) == {
        "m/t:1": ("m.a.weight",),
        "m/mm:1": (None, "m/t:1"),
        "m/tanh:1": ("m/mm:1",),
        "output": ("m/tanh:1",),
    }
    assert graph.nodes["m.a.weight"].scope == "m.a"
    assert (graph.scopes["m"].calls, graph.scopes["m.a"].calls) == (1, 0)


def test_a_module_with_a_call_of_its_own_is_not_seen_to_run() -> None:
    class Own(nn.Linear):
        def __call__(self, x):
            return self.forward(x)

    class Calls(Pair):
        def __init__(self) -> None:
            super().__init__()
            self.a = Own(2, 2, bias=False)

        def forward(self, x):
            return self.b(self.a(x))

    graph = recorded(Calls())
    assert wiring(graph) == {
        "m/t:1": ("m.a.weight",),
        "m/mm:1": (None, "m/t:1"),
        "m.b/t:1": ("m.b.weight",),
        "m.b/mm:1": ("m/mm:1", "m.b/t:1"),
        "output": ("m.b/mm:1",),
    }
    assert graph.nodes["m.a.weight"].scope == "m.a"
    assert {path: scope.calls for path, scope in graph.scopes.items()} == {"m": 1, "m.a": 0, "m.b": 1}


def test_a_childs_weight_used_by_the_parent_is_the_parents_operation() -> None:
    class Borrows(Pair):
        def forward(self, x):
            return functional.linear(self.a(x), self.b.weight)

    assert wiring(recorded(Borrows())) == {
        "m.a/t:1": ("m.a.weight",),
        "m.a/mm:1": (None, "m.a/t:1"),
        "m/t:1": ("m.b.weight",),
        "m/mm:1": ("m.a/mm:1", "m/t:1"),
        "output": ("m/mm:1",),
    }


def test_full_backward_hooks_are_a_pair_around_their_module() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh())
    model[0].register_full_backward_hook(lambda *_: None)
    x = leaf(1, 2)
    with gradir.record({"m": model}) as rec:
        y = model(x)
    graph = rec.capture(y, params={"x": x})
    assert wiring(graph) == {
        "m.0/backward_hook_function:1": ("x",),
        "m.0/t:1": ("m.0.weight",),
        "m.0/mm:1": ("m.0/backward_hook_function:1", "m.0/t:1"),
        "m.0/backward_hook_function:2": ("m.0/mm:1",),
        "m.1/tanh:1": ("m.0/backward_hook_function:2",),
        "output": ("m.1/tanh:1",),
    }
    assert graph.nodes["m.0/backward_hook_function:1"].native == "BackwardHookFunctionBackward"


SUM_OF_BOTH = {
    "m.a/t:1": ("m.a.weight",),
    "m.a/mm:1": (None, "m.a/t:1"),
    "m.b/t:1": ("m.b.weight",),
    "m.b/mm:1": (None, "m.b/t:1"),
    "m/add:1": ("m.a/mm:1", "m.b/mm:1"),
    "output": ("m/add:1",),
}
"""The wiring of a pair that adds what its children make."""


class Workers(Pair):
    """Runs its children in threads of their own, one after the other."""

    def forward(self, x):
        return call_in_thread(lambda: self.a(x)) + call_in_thread(lambda: self.b(x).sin())


def test_modules_in_worker_threads_are_right_where_numbers_decide() -> None:
    class Mixed(Pair):
        def forward(self, x):
            return self.a(x) + call_in_thread(lambda: self.b(x))

    def run() -> Graph:
        use_up_numbers(10)
        return recorded(Mixed())

    graph = call_in_thread(run)
    assert wiring(graph) == SUM_OF_BOTH


def test_modules_in_worker_threads_are_right_or_ambiguous() -> None:
    graph = call_in_thread(lambda: recorded(Workers()))
    made = [node for node in graph.nodes.values() if node.role == "function" and node.op != "accumulate_grad"]
    assert sorted(node.op for node in made) == ["add", "mm", "mm", "sin", "t", "t"]
    for weight, path in (("m.a.weight", "m.a"), ("m.b.weight", "m.b")):
        (transposed,) = [node for node in made if node.op == "t" and wiring(graph)[node.id] == (weight,)]
        (product,) = [node for node in made if node.op == "mm" and wiring(graph)[node.id] == (None, transposed.id)]
        for node in (transposed, product):
            assert (node.scope, node.ext) in [(path, {}), ("", {"scope": "ambiguous"})]
    assert {scope.calls for path, scope in graph.scopes.items() if path != ""} == {1}


def test_a_thread_that_ended_lends_its_place_to_no_other() -> None:
    class OneAfterTheOther(Pair):
        def forward(self, x):
            return call_in_thread(lambda: self.late(x)) + call_in_thread(lambda: self.b(x))

        def late(self, x):
            use_up_numbers(10)
            return self.a(x)

    def run() -> Graph:
        use_up_numbers(20)
        return recorded(OneAfterTheOther())

    graph = call_in_thread(run)
    assert wiring(graph) == SUM_OF_BOTH


def test_no_line_is_given_to_what_a_worker_thread_made() -> None:
    class Mixed(Pair):
        def forward(self, x):
            theirs = call_in_thread(lambda: self.b(x))
            mine = x * self.a.weight
            return mine.sin() + theirs

    graph = call_in_thread(lambda: recorded(Mixed(), sources=True))
    first = Mixed.forward.__code__.co_firstlineno
    lines = {node.op: node.source.line - first for node in graph.nodes.values() if node.source is not None}
    assert set(lines.items()) <= {("mul", 2), ("sin", 3), ("add", 3)}
    assert not any(node.names for node in graph.nodes.values() if node.op == "mm")


def compilations() -> dict[str, int]:
    from torch._dynamo.utils import counters

    return {
        "frames": counters["frames"]["total"],
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
    }


@pytest.fixture
def dynamo():
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


COMPILED = {
    "compiled_function:1": ("0.weight", None, "2.weight"),
    "sum:1": ("compiled_function:1",),
    "output": ("sum:1",),
}


def compiled_model() -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Linear(2, 1, bias=False))

    @torch.compile(backend="aot_eager")
    def compiled(x):
        return model(x)

    return model, compiled


@pytest.mark.usefixtures("dynamo")
def test_a_compiled_function_is_one_opaque_node() -> None:
    model, compiled = compiled_model()
    graph = gradir.capture(compiled(torch.ones(1, 2)).sum(), model=model)
    assert wiring(graph) == COMPILED
    node = graph.nodes["compiled_function:1"]
    assert (node.native, node.opaque) == ("CompiledFunctionBackward", True)
    assert tensor_roles(graph) == {"0.weight": "parameter", "2.weight": "parameter"}
    assert {slot.state for slot in node.saved} == {"held"}
    assert graph.cuts == ()
    assert compilations() == {"frames": 1, "graphs": 1, "breaks": 0}


@pytest.mark.usefixtures("dynamo")
def test_recording_a_compiled_function_compiles_nothing_anew() -> None:
    model, compiled = compiled_model()
    x = torch.ones(1, 2)
    compiled(x)
    with gradir.record(model) as rec:
        loss = compiled(x).sum()
    assert wiring(rec.capture(loss)) == COMPILED
    compiled(x)
    assert compilations() == {"frames": 1, "graphs": 1, "breaks": 0}


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("sources", [False, True])
def test_recording_breaks_no_compiled_graph(sources: bool) -> None:
    model, compiled = compiled_model()
    with gradir.record(model, sources=sources) as rec:
        loss = compiled(torch.ones(1, 2)).sum()
    graph = rec.capture(loss)
    assert {node_id: set(inputs) for node_id, inputs in wiring(graph).items()} == {
        node_id: set(inputs) for node_id, inputs in COMPILED.items()
    }
    assert compilations() == {"frames": 1, "graphs": 1, "breaks": 0}


@pytest.mark.usefixtures("dynamo")
@pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
def test_a_wrapper_of_the_recorded_model_adds_no_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    compiled = torch.compile(model, backend="aot_eager")
    with gradir.record(model) as rec:
        y = compiled(torch.ones(1, 2))
    graph = rec.capture(y)
    assert graph.nodes["0.weight"].names == ("0.weight",)
    assert (graph.scopes[""].total, graph.scopes["0"].total) == (4, 4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_function_is_one_opaque_node() -> None:
    @torch.jit.script
    def scripted(x, w):
        return (x * w).tanh().sum()

    x, w = leaf(3), leaf(3)
    for _ in range(3):
        y = scripted(x, w)
    graph = gradir.capture(y, params={"x": x, "w": w})
    (opaque,) = [node for node in graph.nodes.values() if node.opaque]
    assert (opaque.native, opaque.op) == ("DifferentiableGraphBackward", "differentiable_graph")
    assert sorted(wiring(graph)[opaque.id]) == ["w", "x"]
    number = len(opaque.outputs) - 1
    assert wiring(graph) == {
        opaque.id: wiring(graph)[opaque.id],
        "sum:1": (f"{opaque.id}#{number}",),
        "output": ("sum:1",),
    }
    assert tensor_roles(graph) == {"w": "leaf", "x": "leaf"}


def parameter_counts(graph: Graph) -> dict[str, tuple[int, int, int, bool]]:
    return {path: (scope.own, scope.total, scope.trainable, scope.training) for path, scope in graph.scopes.items()}


@pytest.mark.parametrize("how", ["scripted", "traced", "loaded"])
def test_a_scripted_module_has_the_parameters_of_the_module(how: str) -> None:
    model, x = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval(), torch.ones(4, 2)
    scripted = torch.jit.trace(model, x) if how == "traced" else torch.jit.script(model)
    if how == "loaded":
        file = io.BytesIO()
        torch.jit.save(scripted, file)
        file.seek(0)
        scripted = torch.jit.load(file)
    graph, plain = gradir.capture(scripted, x), gradir.capture(model, x)
    assert parameter_counts(graph) == parameter_counts(plain)
    roles = {node.names: node.role for node in graph.nodes.values() if node.names}
    assert roles == {node.names: node.role for node in plain.nodes.values() if node.names}
    with gradir.record(scripted, flow=True) as rec:
        loss = scripted(x).square().sum()
    assert rec.explain(loss).statuses.keys() == {name for name, _ in model.named_parameters()}
    assert gradir.verify(loss, model=scripted).mismatches == ()
