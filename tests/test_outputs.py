"""The tensors with a graph are found in whatever comes out, by one rule for every public call."""

from __future__ import annotations

import time
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402
from torch.autograd.graph import GradientEdge, get_gradient_edge  # noqa: E402

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402
from gradir.errors import CaptureError, GradirWarning  # noqa: E402

nn = torch.nn


@dataclass
class Out:
    logits: Any
    hidden: Any = ()
    step: int = 3


@dataclass(slots=True)
class Slotted:
    loss: Any


class Named(NamedTuple):
    loss: Any
    accuracy: float


class Plain:
    """An object of no known kind, whose property must not run."""

    kind = "plain"

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    @property
    def lazy(self) -> Any:
        raise AssertionError("asked for a property")


class WithSlots:
    __slots__ = ("empty", "loss")

    def __init__(self, loss: Any) -> None:
        self.loss = loss


class Storage(UserDict[str, Any]):
    pass


class Data:
    """As graphs of torch_geometric are: a store that is a mapping, and knows its owner."""

    def __init__(self, **values: Any) -> None:
        self._store = Storage(values)
        self._store.owner = self


def y() -> Any:
    return leaf(2).exp()


def outputs_of(graph: gradir.Graph) -> list[str]:
    return [node.id.removeprefix("output").removeprefix(":") for node in graph.nodes.values() if node.role == "output"]


WHOLE: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "dataclass": (lambda: Slotted(y()), ["loss"]),
    "set": (lambda: {y()}, ["0"]),
    "deque": (lambda: deque([y(), y()]), ["0", "1"]),
    "ordered": (lambda: OrderedDict(b=y(), a=y()), ["b", "a"]),
    "proxy": (lambda: MappingProxyType({"loss": y()}), ["loss"]),
    "user dict": (lambda: UserDict(loss=y()), ["loss"]),
    "namespace": (lambda: SimpleNamespace(loss=y(), aux=[y()]), ["loss", "aux.0"]),
    "object": (lambda: Plain(loss=y(), name="x", number=3), ["loss"]),
    "slots": (lambda: WithSlots(y()), ["loss"]),
    "distribution": (lambda: torch.distributions.Normal(y(), y()), ["loc", "scale"]),
    "independent": (
        lambda: torch.distributions.Independent(torch.distributions.Normal(y(), 1.0), 1),
        ["base_dist.loc"],
    ),
    "data of a graph": (lambda: Data(x=y(), edge_index=3, z=y()), ["_store.x", "_store.z"]),
    "packed": (lambda: nn.utils.rnn.pack_sequence([leaf(2, 3).exp()]), ["data"]),
    "returned by max": (lambda: torch.linalg.qr(leaf(2, 2).exp()), ["0", "1"]),
    "deep": (lambda: [[{"a": (Out(y()),)}]], ["0.0.a.0.logits"]),
}


@pytest.mark.parametrize(("make", "expected"), WHOLE.values(), ids=WHOLE)
@pytest.mark.filterwarnings("ignore::gradir.GradirWarning")
def test_the_tensors_of_a_container_or_object_are_captured(make: Callable[[], Any], expected: list[str]) -> None:
    assert outputs_of(gradir.capture(make())) == expected


BESIDE: dict[str, tuple[Callable[[], Any], list[str], str]] = {
    "mask": (lambda: (y(), y() > 0), ["0"], "output '1' (a tensor)"),
    "none": (lambda: (y(), None), ["0"], "output '1' (NoneType)"),
    "epoch": (lambda: {"loss": y(), "epoch": 1}, ["loss"], "output 'epoch' (int)"),
    "named": (lambda: Named(y(), 0.5), ["loss"], "output 'accuracy' (float)"),
    "record": (lambda: Out(y(), y().detach()), ["logits"], "output 'hidden' (a tensor), output 'step' (int)"),
    "object": (lambda: Plain(loss=y(), mask=y() > 0, name="x"), ["loss"], "output 'mask' (a tensor)"),
    "empty object": (lambda: [y(), Plain(name="x")], ["0"], "output '1' (Plain)"),
    "object in an object": (lambda: [y(), Plain(inner=Plain(x=1))], ["0"], "output '1' (Plain)"),
    "generator": (lambda: [y(), (each for each in [y()])], ["0"], "output '1' (generator)"),
    "module": (lambda: [nn.Linear(1, 1), y()], ["1"], "output '0' (Linear)"),
    "optimizer": (
        lambda: SimpleNamespace(loss=y(), opt=torch.optim.SGD([leaf(1)], 0.1)), ["loss"], "output 'opt' (SGD)"
    ),
    "many": (lambda: [y(), *range(9)], ["0"], "output '5' (int) and 4 more"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "expected", "left"), BESIDE.values(), ids=BESIDE)
def test_what_has_no_graph_is_left_out_and_named_once(make: Callable[[], Any], expected: list[str], left: str) -> None:
    with pytest.warns(GradirWarning) as told:
        graph = gradir.capture(make())
    assert outputs_of(graph) == expected
    assert [str(each.message).endswith(left) for each in told] == [True]
    assert str(told[0].message).startswith("left out, since it has no graph: ")
    assert told[0].filename == __file__


class Returns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        made = self.inner(x)
        return {"out": Plain(logits=made, mask=made > 0), "attention": None}


def recorded(call: Callable[[Any, Any], Any]) -> Any:
    model = Returns()
    with gradir.record(model, flow=True) as rec:
        made = model(torch.ones(1, 2))
    return call(rec, made)


CALLS: dict[str, Callable[[], Any]] = {
    "capture": lambda: outputs_of(gradir.capture(Returns()(torch.ones(1, 2)))),
    "capture of a module": lambda: outputs_of(gradir.capture(Returns(), torch.ones(1, 2))),
    "record": lambda: recorded(lambda rec, made: outputs_of(rec.capture(made))),
    "verify": lambda: recorded(lambda rec, made: rec.verify(made).mismatches or ["out.logits"]),
    "verify of a module": lambda: gradir.verify(Returns(), torch.ones(1, 2)).mismatches or ["out.logits"],
    "make_dot": lambda: gradir.make_dot(Returns()(torch.ones(1, 2))).source.count("out.logits") and ["out.logits"],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_has_the_same_rule(call: Callable[[], Any]) -> None:
    with pytest.warns(GradirWarning) as told:
        assert call() == ["out.logits"]
    assert [str(each.message) for each in told] == [
        "left out, since it has no graph: output 'out.mask' (a tensor), output 'attention' (NoneType)"
    ]


@pytest.mark.filterwarnings("default::gradir.GradirWarning")
def test_the_command_has_the_same_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "import torch\n"
        "class Out: pass\n"
        "def run():\n"
        "    out = Out()\n"
        "    out.logits = torch.ones(2, requires_grad=True).exp()\n"
        "    out.mask = out.logits > 0\n"
        "    return out\n",
        encoding="utf-8",
    )
    assert main(["capture", "net.py:run", "-o", "net.gir"]) == 0
    assert "warning: left out, since it has no graph: output 'mask' (a tensor)\n" in capfd.readouterr().err
    assert outputs_of(gradir.load("net.gir")) == ["logits"]


def test_what_a_model_of_transformers_returns_is_captured_whole() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=4)
    graph = gradir.capture(transformers.GPT2LMHeadModel(config), torch.ones(1, 3, dtype=torch.int64))
    assert outputs_of(graph)[0] == "logits"


def test_attention_that_returns_no_weights_is_captured() -> None:
    model, x = nn.MultiheadAttention(4, 2), torch.ones(3, 1, 4)
    with pytest.warns(GradirWarning, match=r"output '1' \(NoneType\)"):
        graph = gradir.capture(model, x, x, x, kwargs={"need_weights": False})
    assert outputs_of(graph) == ["0"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: (y().detach(), 1), "output '0' has no graph: nothing it was computed from requires grad"),
        (lambda: [1, y() > 0], "output '1' has no graph: its dtype bool carries no gradient"),
        (lambda: Out(1), "output 'logits' is not a tensor but int"),
        (lambda: Plain(x=1), "the output is not a tensor but Plain"),
        (lambda: GradientEdge(y().grad_fn, 1), "the output is not a tensor but GradientEdge"),
        (lambda: GradientEdge(None, 0), "the output is not a tensor but GradientEdge"),
        (lambda: (each for each in [y()]), "the output is not a tensor but generator"),
        (list, "cannot capture"),
    ],
)
def test_where_nothing_has_a_graph_the_error_says_why(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message.replace("(", r"\(")):
        gradir.capture(make())


def test_an_iterator_is_left_alone() -> None:
    class Counting:
        def __init__(self) -> None:
            self.tensors, self.taken = [y()], 0

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            self.taken += 1
            return y()

    rest = Counting()
    with pytest.warns(GradirWarning, match="Counting"):
        gradir.capture([y(), rest])
    assert rest.taken == 0


def test_cycles_have_an_end() -> None:
    @dataclass
    class Node:
        loss: Any
        others: list[Any] = field(default_factory=list)

    one, other = Node(y()), Node(y())
    one.others += [other, one]
    other.others += [one, one.others]
    assert outputs_of(gradir.capture(one)) == ["loss", "others.0.loss"]
    looped: list[Any] = [y()]
    looped.append(looped)
    assert outputs_of(gradir.capture(looped)) == ["0"]


def test_what_is_nested_too_deeply_is_an_error_and_objects_are_left_there() -> None:
    nested: Any = y()
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(CaptureError, match="nested too deeply"):
        gradir.capture(nested)
    chain: Any = None
    for _ in range(100_000):
        chain = Plain(next=chain)
    assert outputs_of(gradir.capture(Plain(loss=y(), chain=chain))) == ["loss"]
    while isinstance(nested, list):
        nested = nested.pop()
    while chain is not None:
        chain = vars(chain).pop("next")


def test_containers_that_share_containers_are_looked_at_once() -> None:
    shared: Any = [y()]
    for _ in range(100):
        shared = [shared, shared]
    assert len(outputs_of(gradir.capture(shared))) == 1


@pytest.mark.parametrize("make", [lambda: list(range(1_000_000)), lambda: dict.fromkeys(range(1000000), "x")])
def test_a_million_elements_take_seconds(make: Callable[[], Any]) -> None:
    outputs = [make(), y()]
    start = time.process_time()
    with pytest.warns(GradirWarning, match="999995 more"):
        gradir.capture(outputs)
    assert time.process_time() - start < 20


def test_a_tensor_that_an_object_has_twice_is_one_output() -> None:
    made = y()
    assert outputs_of(gradir.capture(Plain(a=made, b=made))) == ["a"]
    assert outputs_of(gradir.capture([made, made])) == ["0", "1"]


def test_the_tensors_of_a_set_are_in_the_order_in_which_they_were_made() -> None:
    w = leaf(2)
    made = [w.exp(), w.sin(), w.cos(), w.tanh()]
    graph = gradir.capture({*made[::-1]})
    assert [graph.nodes[f"output:{place}"].inputs[0].id for place in range(4)] == ["exp:1", "sin:1", "cos:1", "tanh:1"]


def test_a_gradient_edge_is_captured_as_its_tensor_and_verified() -> None:
    made = torch.nn.Linear(3, 4)(torch.ones(2, 3)).relu()
    edge = get_gradient_edge(made)
    assert gradir.capture([edge, made]) == gradir.capture([made, made])
    assert gradir.verify([edge]).mismatches == ()


def test_a_gradient_edge_is_explained_as_its_tensor_which_may_be_gone() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    with gradir.record(model, flow=True) as recorder:
        made = [model[1](model[0](torch.ones(2, 3)).detach()).unbind()[1]]
    explained, edge = recorder.explain(made), torch.autograd.graph.get_gradient_edge(made[0])
    cuts = recorder.capture(made).cuts
    made.clear()
    assert recorder.explain([edge]).to("json") == explained.to("json")
    assert explained.statuses["0.weight"] == "cut"
    assert recorder.capture([edge]).cuts == cuts


def test_a_key_without_a_text_has_the_name_of_its_type() -> None:
    class Key:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    graph = gradir.capture({Key(): torch.ones(2, requires_grad=True).exp()})
    assert "output:Key" in graph.nodes
