"""What a capture makes of values, names, modules and threads that few programs have."""

from __future__ import annotations

import copy
import enum
import pickle
import random
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir import codecs  # noqa: E402
from gradir.capture.pytorch.timelines import Coverage, Frame, ScopeLookup, Timeline  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.ir import NonFinite  # noqa: E402

nn = torch.nn


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(shape, requires_grad=True)


def attributes_of(**values: Any) -> dict[str, Any]:
    """The attributes that the node of a custom Function has when its forward kept these values."""

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            vars(ctx).update(values)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    graph = gradir.capture(Keeps.apply(leaf(1)))
    assert codecs.decode(codecs.encode(graph)) == graph
    attributes = dict(graph.nodes["keeps:1"].attrs)
    del attributes["needs_input_grad"]
    return attributes


class Mode(str, enum.Enum):
    SUM = "sum"


class Level(enum.IntEnum):
    HIGH = 3


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


class Shifted(int):
    def __int__(self) -> int:
        return 7

    def __str__(self) -> str:
        return "seven"


class Rounded(float):
    def __float__(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Mode.SUM, "sum"),
        (Loud("quiet"), "quiet"),
        ([Mode.SUM, (Loud("quiet"),)], ("sum", ("quiet",))),
        (Level.HIGH, 3),
        ((Level.HIGH, Shifted(4)), (3, 4)),
        (Shifted(2**70), str(2**70)),
        (Rounded(1.5), 1.5),
        (True, True),
    ],
)
def test_an_attribute_is_a_plain_value_whatever_its_class(value: object, plain: object) -> None:
    found = attributes_of(kept=value)["kept"]
    assert found == plain
    pending = [found]
    while pending:
        item = pending.pop()
        assert type(item) in (str, int, float, bool, tuple)
        if type(item) is tuple:
            pending.extend(item)


def test_numpy_scalars_that_are_python_values_become_them() -> None:
    numpy = pytest.importorskip("numpy")
    found = attributes_of(text=numpy.str_("sum"), number=numpy.float64(0.5))
    assert found == {"text": "sum", "number": 0.5}
    assert {type(value) for value in found.values()} == {str, float}


def test_numbers_of_numpy_are_shown_by_value() -> None:
    numpy = pytest.importorskip("numpy")
    found = attributes_of(
        i=numpy.int64(-3), b=numpy.bool_(1), f=numpy.float32(0.5), inf=numpy.float16("inf"), l=[numpy.uint8(1)]
    )
    assert found == {"i": -3, "b": True, "f": 0.5, "inf": NonFinite("inf"), "l": (1,)}
    assert [type(found[name]) for name in ("i", "b", "f")] == [int, bool, float]
    assert attributes_of(huge=numpy.uint64(2**64 - 1)) == {"huge": str(2**64 - 1)}


def test_scalars_of_numpy_that_are_no_numbers_are_named() -> None:
    numpy = pytest.importorskip("numpy")
    found = attributes_of(span=numpy.timedelta64(3, "s"), day=numpy.datetime64("2020-01-01"), long=numpy.longdouble(1))
    assert found["span"] == "<timedelta64>"
    assert found["day"] == "<datetime64>"
    assert found["long"] == "<longdouble>"


def test_a_class_that_looks_like_a_number_is_not_asked_for_its_value() -> None:
    numpy = pytest.importorskip("numpy")

    class Trap:
        __class__ = numpy.int64

        def __index__(self) -> int:
            raise ZeroDivisionError

        __int__ = __float__ = __bool__ = item = __index__

    class Subclass(numpy.float32):
        def item(self) -> float:
            raise ZeroDivisionError

        dtype = property(item)

    assert attributes_of(trap=Trap(), own=Subclass(0.5)) == {"trap": "<Trap>", "own": 0.5}


def test_names_are_plain_text_whatever_their_class() -> None:
    x = leaf(1)
    model = nn.ModuleDict({Mode.SUM: nn.Linear(1, 1)})
    type(model[Mode.SUM]).__name__ = Loud("Linear")
    try:
        with gradir.record({Loud("m"): model}) as rec:
            y = model["sum"](x)
        graph = rec.capture({Mode.SUM: y}, params={Loud("given"): x})
    finally:
        nn.Linear.__name__ = "Linear"
    assert "output:sum" in graph.nodes
    (found,) = [node for node in graph.nodes.values() if node.role == "leaf"]
    assert found.names == ("given",)
    assert graph.nodes["m.sum.weight"].scope == "m.sum"
    texts = [*graph.nodes, *graph.scopes, *found.names, *(scope.class_name for scope in graph.scopes.values())]
    assert {type(text) for text in texts} == {str}
    assert graph.scopes["m.sum"].class_name == "Linear"


def test_the_name_of_an_attribute_is_plain_text() -> None:
    found = attributes_of(**{Loud("kept"): 1})
    assert found == {"kept": 1}
    assert [type(name) for name in found] == [str]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (2**63 - 1, 2**63 - 1),
        (2**63, str(2**63)),
        (2**64 - 1, str(2**64 - 1)),
        (2**64, str(2**64)),
        (-(2**63), -(2**63)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        ([2**64, 1], (str(2**64), 1)),
    ],
)
def test_a_large_integer_of_a_custom_function_is_kept(value: object, plain: object) -> None:
    assert attributes_of(kept=value)["kept"] == plain


def test_an_integer_that_python_refuses_to_write_is_hexadecimal() -> None:
    assert attributes_of(kept=[10**5000, -(10**5000)])["kept"] == (hex(10**5000), hex(-(10**5000)))


def test_torchs_own_negative_integers_are_negative() -> None:
    graph = gradir.capture(leaf(2, 3).softmax(-1).sum((-1, -2)))
    assert graph.nodes["softmax:1"].attrs["dim"] == -1
    assert graph.nodes["sum:1"].attrs["dim"] == (-1, -2)


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(CaptureError, match="same name: 1, '1'"):
        gradir.record({1: nn.Linear(1, 1), "1": nn.Linear(1, 1)}).__enter__()


def in_new_thread(call: Callable[[], Any]) -> Any:
    """What a call returns in a thread of its own, in which torch numbers nodes from 0."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


class Meanwhile(nn.Module):
    """Lets another thread do something before each of its own operations."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.action = action

    def forward(self, x):
        in_new_thread(self.action)
        y = self.a(x)
        in_new_thread(self.action)
        return y.tanh()


@pytest.mark.parametrize("sources", [False, True])
def test_a_model_that_another_thread_runs_gives_the_graph_nothing(sources: bool) -> None:
    other = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = torch.ones(1, 2)
    model = Meanwhile(lambda: None)

    def run() -> gradir.Graph:
        with gradir.record({"m": model}, sources=sources) as rec:
            y = model(x)
        return rec.capture(y)

    alone = in_new_thread(run)
    model.action = lambda: other(x)
    assert in_new_thread(run) == alone
    assert alone.nodes["m/tanh:1"].ext == {}
    assert (alone.nodes["m/tanh:1"].source is not None) == sources


def test_a_model_in_another_thread_that_feeds_the_graph_is_in_it() -> None:
    other = nn.Linear(2, 2)
    model = nn.Linear(2, 2)

    def run() -> gradir.Graph:
        with gradir.record({"m": model}) as rec:
            x = torch.ones(1, 2)
            y = model(x) + in_new_thread(lambda: other(x))
        return rec.capture(y)

    graph = in_new_thread(run)
    assert graph.nodes["Linear.weight"].scope == "Linear"
    made = [node for node in graph.nodes.values() if node.op == "addmm"]
    assert len(made) == 2
    for node in made:
        own = "m" if graph.nodes["m.bias/accumulate_grad:1"].id in {ref.id for ref in node.inputs if ref} else "Linear"
        assert (node.scope, node.ext) in [(own, {}), ("", {"scope": "ambiguous"})]


def test_beside_a_given_model_only_modules_that_took_part_are_shown() -> None:
    class Prompt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Parameter(torch.ones(1, 2))

        def forward(self):
            return self.start

    model, teacher, prompt, criterion, idle = nn.Linear(2, 2), nn.Linear(2, 2), Prompt(), nn.MSELoss(), nn.MSELoss()
    with gradir.record({"m": model}) as rec:
        idle(teacher(torch.ones(1, 2)), torch.ones(1, 2))
        loss = criterion(model(prompt()), torch.ones(1, 2))
    graph = rec.capture(loss)
    assert list(graph.scopes) == ["m", "Prompt", "MSELoss"]
    assert graph.nodes["MSELoss/mse_loss:1"].scope == "MSELoss"
    assert graph.nodes["Prompt.start"].role == "parameter"
    assert graph.cuts == ()


def test_sources_are_those_of_the_thread_that_recorded() -> None:
    with gradir.record(sources=True) as rec:
        product = leaf(1) * 2
    node = in_new_thread(lambda: rec.capture(product)).nodes["mul:1"]
    assert node.source is not None
    assert node.names == ("product",)


def test_two_threads_that_record_one_after_the_other_have_their_own_lines() -> None:
    rec = gradir.record(sources=True)

    def late() -> list[torch.Tensor]:
        for _ in range(50):
            leaf(1).exp()
        with rec:
            second = leaf(1).sin()
        return [second]

    def early() -> list[torch.Tensor]:
        with rec:
            first = leaf(1).cos()
        return [first]

    outputs = [in_new_thread(late), in_new_thread(early)]
    graph = rec.capture(outputs)
    assert {node.op: node.names for node in graph.nodes.values() if node.names} == {
        "sin": ("second",),
        "cos": ("first",),
    }


def test_many_modules_of_one_class_are_named_in_time() -> None:
    count = 12_000
    with gradir.record() as rec:
        y = leaf(1)
        for _ in range(count):
            y = nn.Identity()(y)
        y = y.exp()
    begun = time.perf_counter()
    graph = rec.capture(y)
    assert time.perf_counter() - begun < 3
    assert list(graph.scopes)[:3] == ["Identity", "Identity_2", "Identity_3"]
    assert list(graph.scopes)[-1] == f"Identity_{count}"


def test_a_modules_name_leaves_out_what_is_taken_inside_the_model() -> None:
    with gradir.record({"Sequential.0": nn.Linear(1, 1), "Sequential_2": nn.Linear(1, 1)}) as rec:
        y = nn.Sequential(nn.Linear(1, 1))(leaf(1, 1))
    assert "Sequential_3.0/addmm:1" in rec.capture(y).nodes


def drawn_timeline(modules: list[nn.Module], draw: random.Random) -> Timeline:
    timeline = Timeline()
    number, frame = draw.randrange(30), None
    for _ in range(draw.randrange(1, 12)):
        timeline.numbers.append(number)
        timeline.frames.append(frame)
        number += draw.choice((0, 0, 1, 2, 5))
        frame = Frame(draw.choice(modules), frame, ()) if frame is None or draw.random() < 0.5 else frame.caller
    return timeline


class FakeFunction(SimpleNamespace):
    def _sequence_nr(self) -> int:
        return self.number


class BackwardHookFunctionBackward(FakeFunction):
    """What torch puts behind a module."""


def scope_by_search(timelines: list[Timeline], paths: dict[nn.Module, str], fn: FakeFunction) -> str | None:
    found = set()
    for timeline in timelines:
        if not timeline.numbers[0] <= fn.number < timeline.numbers[-1]:
            continue
        index = bisect_right(timeline.numbers, fn.number) - 1
        frame = timeline.frames[index]
        if type(fn) is BackwardHookFunctionBackward and index and timeline.numbers[index] == fn.number:
            left = timeline.frames[index - 1]
            frame = left if left is not None and left.caller is frame else frame
        while frame is not None and frame.module not in paths:
            frame = frame.caller
        found.add("" if frame is None else paths[frame.module])
    return None if len(found) > 1 else found.pop() if found else ""


def test_threads_are_looked_up_together_as_each_by_itself() -> None:
    draw = random.Random(0)
    modules: list[nn.Module] = [nn.Identity() for _ in range(4)]
    paths = dict(zip(modules, "abc", strict=False))
    for _ in range(300):
        timelines = [drawn_timeline(modules, draw) for _ in range(draw.randrange(4))]
        lookup, coverage = ScopeLookup(timelines, paths), Coverage(timelines)
        for number in range(70):
            for kind in (FakeFunction, BackwardHookFunctionBackward):
                assert lookup(kind(number=number)) == scope_by_search(timelines, paths, kind(number=number))
            covered = any(line.numbers[0] <= number < line.numbers[-1] for line in timelines)
            assert (number in coverage) == covered


def test_many_threads_are_looked_up_in_time() -> None:
    frame = Frame(nn.Identity(), None, ())
    timelines = []
    for start in range(3_000):
        timeline = Timeline()
        timeline.numbers, timeline.frames = [start, start + 3_000], [frame, None]
        timelines.append(timeline)
    begun = time.perf_counter()
    lookup = ScopeLookup(timelines, {frame.module: "m"})
    assert [lookup(FakeFunction(number=number)) for number in range(6_000)] == ["m"] * 5_999 + [""]
    assert time.perf_counter() - begun < 2


def test_hooks_have_the_scope_that_the_documentation_says() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    model[0].register_forward_pre_hook(lambda _, inputs: (inputs[0].sin(),))
    model[0].register_forward_hook(lambda _, inputs, output: output.exp())
    graph = gradir.capture(model, leaf(1, 1), model={"m": model})
    scopes = {node.op: node.scope for node in graph.nodes.values() if node.role == "function"}
    assert (scopes["sin"], scopes["mm"], scopes["exp"]) == ("m.0", "m.0", "m")


@pytest.mark.parametrize("size", [(2, 2), (4,)])
def test_parameters_are_unreached_when_detached_aliases_were_used(size: tuple[int, ...]) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))

        def forward(self, x):
            return x * self.weight

    model = Scale()
    for fast in (model.weight.detach().requires_grad_(), nn.Parameter(model.weight.detach())):
        y = torch.func.functional_call(model, {"weight": fast}, (torch.ones(size),))
        assert [cut.names for cut in gradir.capture(y, model=model).cuts] == [("weight",)]


def test_slices_of_one_buffer_do_not_stand_for_each_other() -> None:
    buffer = torch.ones(8)
    model = nn.Linear(2, 2, bias=False)
    model.weight = nn.Parameter(buffer[:4].view(2, 2))
    beside = nn.Parameter(buffer[4:])
    assert [cut.names for cut in gradir.capture(beside.exp(), model=model).cuts] == [("weight",)]
    across = nn.Parameter(buffer[3:])
    assert [cut.names for cut in gradir.capture(across.exp(), model=model).cuts] == [("weight",)]
    for whole in (nn.Parameter(buffer), nn.Parameter(buffer[:5])):
        assert gradir.capture(whole.exp(), model=model).cuts == ()


def test_a_lazy_module_that_did_not_run_is_unreached_without_a_shape() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.LazyLinear(3)
            self.c = nn.LazyBatchNorm1d()

        def forward(self, x):
            return self.a(x)

    model = Partly()
    graph = gradir.capture(model, torch.ones(1, 2))
    assert codecs.decode(codecs.encode(graph)) == graph
    cuts = {cut.names: cut.tensor for cut in graph.cuts}
    assert list(cuts) == [("b.weight",), ("b.bias",), ("c.weight",), ("c.bias",)]
    assert {(meta.dtype, meta.shape) for meta in cuts.values()} == {("float32", None)}
    assert gradir.verify(model, torch.ones(1, 2)).mismatches == ()


def test_modules_that_contain_each_other_are_captured() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    vars(model[0])["_modules"]["back"] = model
    y = nn.functional.linear(torch.ones(1, 2), model[0].weight)
    graph = gradir.capture(y, model=model)
    assert list(graph.scopes) == ["", "0"]
    assert graph.nodes["0.weight"].names == ("0.weight",)


def test_modules_nested_too_deeply_are_one_clear_error() -> None:
    model = inner = nn.Sequential()
    for _ in range(5_000):
        inner.append(nn.Sequential())
        inner = inner[0]
    with pytest.raises(CaptureError, match="nested too deeply"):
        gradir.capture(leaf(1).exp(), model=model)
    while len(model):
        model = model[0]


def test_a_module_with_a_named_parameters_of_its_own_is_captured() -> None:
    class Own(nn.Linear):
        def named_parameters(self, prefix="", recurse=True):
            return super().named_parameters(prefix, recurse)

    graph = gradir.capture(Own(2, 2), torch.ones(1, 2))
    assert {node.names for node in graph.nodes.values() if node.role == "parameter"} == {("weight",), ("bias",)}


def test_a_tensor_whose_name_raises_has_none() -> None:
    class Nameless(torch.Tensor):
        @property
        def name(self):
            raise ValueError

    x = leaf(1).detach().as_subclass(Nameless).requires_grad_()
    assert [node.names for node in gradir.capture(x * 2).nodes.values() if node.role == "leaf"] == [()]


def test_sources_are_noted_without_a_working_directory(tmp_path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    namespace: dict[str, Any] = {}
    exec(compile("def double(x):\n    return x * 2\n", str(tmp_path / "program.py"), "exec"), namespace)
    with gradir.record(sources=True) as rec:
        y = namespace["double"](leaf(1))
    assert rec.capture(y).nodes["mul:1"].source == gradir.ir.Source("program.py", 2, "double")


def test_two_modules_of_one_path_are_refused() -> None:
    models = {"a": nn.Sequential(nn.Linear(1, 1)), "a.0": nn.Linear(1, 1)}
    with pytest.raises(CaptureError, match=r"two modules are called 'a\.0'"):
        gradir.capture(leaf(1).exp(), model=models)


def test_a_function_called_accumulate_grad_is_told_from_torchs_own() -> None:
    class AccumulateGrad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    class Doubles(nn.Module):
        def forward(self, x):
            return AccumulateGrad.apply(x)

    x = leaf(1)
    model = Doubles()
    with gradir.record({"w": model}) as rec:
        y = model(x)
    graph = rec.capture(y, params={"w": x})
    assert list(graph.nodes) == ["w", "w/accumulate_grad:1", "w/accumulate_grad_function:1", "output"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_recorder_is_not_copied(duplicate: Callable[[object], object]) -> None:
    with pytest.raises(CaptureError, match="cannot be copied"):
        duplicate(gradir.record(nn.Linear(1, 1)))


def test_ragged_sizes_are_numbered_within_the_graph() -> None:
    def capture() -> gradir.Graph:
        first, second = (
            torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True)
            for _ in range(2)
        )

        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.shape = x.shape
                ctx.mode = "j12"
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                return gradient

        return gradir.capture([(Keeps.apply(first) * first).sin(), second.cos().values().sum()])

    graph = capture()
    assert capture() == graph
    assert dict(graph.nodes["keeps:1"].attrs)["shape"] == (2, "j1", 3)
    assert graph.nodes["keeps:1"].attrs["mode"] == "j12"
    assert (graph.nodes["sin:1"].shape, graph.nodes["cos:1"].shape) == ((2, "j1", 3), (2, "j2", 3))
    assert {slot.shape for slot in graph.nodes["mul:1"].saved} == {(2, "j1", 3)}
