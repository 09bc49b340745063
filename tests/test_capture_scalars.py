"""Numbers of the program's text, which torch turns into tensors, are told from tensors of the user's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import gradir  # noqa: E402
from gradir import codecs  # noqa: E402
from gradir.ir import NonFinite  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "data"), reason="this torch does not show what it saved"
)


def attributes_of(tensor: Any, op: str = "mul:1") -> dict[str, Any]:
    graph = gradir.capture(tensor)
    assert codecs.decode(codecs.encode(graph)) == graph
    return dict(graph.nodes[op].attrs)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.5, 0.5),
        (2, 2),
        (2**40, 2**40),
        (2j, "2j"),
        (float("inf"), NonFinite("inf")),
        (float("-inf"), NonFinite("-inf")),
    ],
)
def test_a_number_is_an_attribute_under_the_name_of_its_slot(number, shown):
    graph = gradir.capture(leaf(3) * number)
    assert graph.nodes["mul:1"].attrs == {"other": shown}
    assert [(saved.slot, saved.shape) for saved in graph.nodes["mul:1"].saved] == [("other", ())]


def test_the_sign_of_zero_is_kept():
    assert str(attributes_of(leaf(3) * -0.0)["other"]) == "-0.0"


def test_division_in_place_and_reflected_operations_keep_theirs():
    assert attributes_of(leaf(3) / 4, "div:1") == {"other": 4}
    assert attributes_of(leaf(3).clone().mul_(0.25)) == {"other": 0.25}
    assert attributes_of(8 / leaf(3)) == {"other": 8}


@pytest.mark.parametrize(
    "other",
    [
        torch.tensor(0.5),
        torch.tensor(0.5, dtype=torch.float64),
        torch.tensor(2),
        torch.tensor(2, dtype=torch.int16),
        torch.tensor(2j, dtype=torch.complex128),
        torch.tensor(True),
        torch.ones(3),
    ],
)
def test_a_tensor_of_the_users_shows_no_value(other):
    assert attributes_of(leaf(3) * other) == {}


def test_a_tensor_of_the_users_shows_no_value_where_its_dtype_is_the_default_one():
    torch.set_default_dtype(torch.float64)
    try:
        assert attributes_of(leaf(3) * torch.tensor(0.5)) == {}
        assert attributes_of(leaf(3) * 0.5) == {"other": 0.5}
    finally:
        torch.set_default_dtype(torch.float32)


def test_it_is_beside_the_other_attributes_sorted():
    fn = torch.addcmul(leaf(3), leaf(3), leaf(3), value=0.5)
    assert attributes_of(fn, "addcmul:1") == {"value": 0.5}
    node = gradir.capture(torch.special.xlogy(leaf(3), 2.5)).nodes["xlogy:1"]
    assert list(node.attrs) == sorted(node.attrs)
    assert node.attrs["other"] == 2.5


def test_numbers_are_read_where_tensors_have_no_data():
    with FakeTensorMode():
        tensor = torch.ones(3, requires_grad=True) * 0.5
        assert attributes_of(tensor) == {"other": 0.5}
    assert attributes_of(tensor) == {"other": 0.5}
    assert attributes_of(torch.ones(3, requires_grad=True, device="meta") * 0.5) == {"other": 0.5}


def test_no_mode_and_no_class_of_the_users_is_reported_of_the_reading():
    told: list[object] = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            told.append(function)
            return function(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            told.append(function)
            return function(*args, **(kwargs or {}))

    tensor = leaf(3) * 0.5
    with Dispatch():
        assert attributes_of(tensor) == {"other": 0.5}
    assert told == []
    with Function():
        assert attributes_of(tensor) == {"other": 0.5}
    assert not [function for function in told if function in (torch.result_type, torch.Tensor.item)]


def test_a_symbolic_size_is_no_number():
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)], requires_grad=True, layout=torch.jagged)
    assert attributes_of(nested.values() / nested.shape[1], "div:1") == {}
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
    tensor = mode.from_tensor(torch.ones(5, 7, requires_grad=True))
    with mode:
        assert attributes_of(tensor / tensor.shape[0], "div:1") == {}
        assert attributes_of(tensor * (tensor.shape[0] * 0.5)) == {}
        assert attributes_of(tensor * 3) == {"other": 3}


def test_a_backward_that_freed_its_tensors_leaves_no_number():
    tensor = leaf(3) * 0.5 * leaf(3)
    tensor.sum().backward()
    assert attributes_of(tensor) == {}


def test_another_number_is_a_change_of_the_graph():
    changes = gradir.diff(gradir.capture(leaf(3) * 0.5), gradir.capture(leaf(3) * 0.25))
    assert [(field.name, field.before, field.after) for field in changes.changes[-1].fields] == [
        ("attrs.other", 0.5, 0.25)
    ]
