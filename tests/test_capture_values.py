"""What a capture makes of attribute values and of names whose classes few programs have."""

from __future__ import annotations

import enum
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir import codecs  # noqa: E402
from gradir.ir import NonFinite  # noqa: E402

nn = torch.nn


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


def test_a_tensor_whose_name_raises_has_none() -> None:
    class Nameless(torch.Tensor):
        @property
        def name(self):
            raise ValueError

    x = leaf(1).detach().as_subclass(Nameless).requires_grad_()
    assert [node.names for node in gradir.capture(x * 2).nodes.values() if node.role == "leaf"] == [()]


def test_a_device_has_no_number() -> None:
    assert attributes_of(device=torch.device("cuda", 3), devices=[torch.device("cuda:1"), torch.device("cpu")]) == {
        "device": "cuda",
        "devices": ("cuda", "cpu"),
    }


def test_the_device_of_a_tensor_has_no_number() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from gradir.frontends.pytorch.reading.attributes import MetadataReader

    with FakeTensorMode():
        reader = MetadataReader()
        metas = {reader.read_tensor(torch.empty(2, device=f"cuda:{number}")) for number in (0, 3)}
    assert {meta.device for meta in metas} == {"cuda"}


def test_an_operator_of_a_library_has_its_own_name() -> None:
    @torch.library.custom_op("gradir_of_tests::scale_by_two", mutates_args=())
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    scale.register_autograd(lambda ctx, gradient: gradient * 2)
    (node,) = [
        node
        for node in gradir.capture(scale(leaf(2))).nodes.values()
        if node.role == "function" and node.inputs[0].id == "leaf:1/accumulate_grad:1"
    ]
    assert node.id == "scale_by_two:1"
    assert node.native == "GeneratedBackwardFor_gradir_of_tests_scale_by_two_defaultBackward"


@pytest.mark.parametrize(
    ("qualified", "name"),
    [
        ("torch::autograd::CppNode<(anonymous namespace)::AllToAllSingle>", "AllToAllSingle"),
        ("struct torch::autograd::CppNode<class my::Op<float,struct my::Kind<int> > >", "Op"),
        ("torch::autograd::CppNode<Op>", "Op"),
        ("torch::autograd::CopySlices", "CopySlices"),
        ("Mine<int>", "Mine"),
    ],
)
def test_a_node_of_c_plus_plus_has_the_name_of_what_it_wraps(qualified: str, name: str) -> None:
    from gradir.frontends.pytorch.reading.attributes import native_name

    assert native_name(qualified) == name


def gradients(loss, *wanted):
    """Something computed of gradients, as a penalty on them is."""
    return sum(gradient.exp().sum() for gradient in torch.autograd.grad(loss, wanted, create_graph=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_that_a_derivative_did_not_compute_are_unknown(dtype) -> None:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        x, conv, norm = torch.ones(2, 3, 5, 5), torch.nn.Conv2d(3, 4, 3), torch.nn.LayerNorm(5)
        weight = gradir.capture(gradients(conv(x).sin().sum(), conv.weight))
        both = gradir.capture(gradients(conv(x).sin().sum(), conv.weight, conv.bias))
        bias = gradir.capture(gradients(norm(x).sin().sum(), norm.bias))
        scalar = torch.ones((), requires_grad=True)
        defined = gradir.capture(gradients(torch.nn.functional.prelu(x, scalar.sin()).sin().sum(), scalar))
    finally:
        torch.set_default_dtype(usual)
    name = str(dtype).removeprefix("torch.")
    texts = {
        graph.nodes[key].id: [str(tensor) for tensor in graph.nodes[key].outputs]
        for graph, key in (
            (weight, "convolution_backward:1"),
            (bias, "native_layer_norm_backward:1"),
            (defined, "prelu_kernel_backward:1"),
        )
    }
    assert texts == {
        "convolution_backward:1": ["?[?]", f"{name}[4, 3, 3, 3]", "?[?]"],
        "native_layer_norm_backward:1": ["?[?]", "?[?]", f"{name}[5]"],
        "prelu_kernel_backward:1": [f"{name}[2, 3, 5, 5]"] * 2,
    }
    shown = [str(tensor) for tensor in both.nodes["convolution_backward:1"].outputs]
    assert shown == ["?[?]", f"{name}[4, 3, 3, 3]", f"{name}[4]"]
    # A picture shows what flows on.
    assert f'\n{name}[4, 3, 3, 3]"' in weight.to("mermaid")
    assert (weight.nodes["convolution_backward:1"].dtype, weight.nodes["convolution_backward:1"].shape) == (
        name,
        (4, 3, 3, 3),
    )


def test_a_number_that_nothing_needs_is_known() -> None:
    sign, size = torch.linalg.slogdet(torch.eye(3, requires_grad=True))
    del sign
    graph = gradir.capture(size)
    (node,) = (node for node in graph.nodes.values() if node.op == "linalg_slogdet")
    assert [str(tensor) for tensor in node.outputs][:2] == ["float32[]", "float32[]"]
