"""The origin of a saved tensor is what the engine says it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir.ir import Ref  # noqa: E402

F = torch.nn.functional


def matrix() -> Any:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()


def definite() -> Any:
    a = matrix()
    return a @ a.mT + 5 * torch.eye(4)


def heads() -> Any:
    return torch.randn(1, 2, 5, 8).requires_grad_()


OPERATIONS: dict[str, Callable[[], Any]] = {
    "attention": lambda: F.scaled_dot_product_attention(heads(), heads(), heads()),
    "qr": lambda: torch.linalg.qr(matrix())[1],
    "svd": lambda: torch.linalg.svd(matrix())[1],
    "svdvals": lambda: torch.linalg.svdvals(matrix()),
    "eig": lambda: torch.linalg.eig(matrix())[0],
    "eigh": lambda: torch.linalg.eigh(definite())[0],
    "cholesky": lambda: torch.linalg.cholesky(definite()),
    "inv": lambda: torch.linalg.inv(matrix()),
    "lu": lambda: torch.linalg.lu_factor(matrix())[0],
    "lstsq": lambda: torch.linalg.lstsq(matrix(), definite())[0],
    "solve": lambda: torch.linalg.solve(definite(), matrix()),
    "triangular": lambda: torch.linalg.solve_triangular(definite(), matrix(), upper=True),
    "slogdet": lambda: torch.linalg.slogdet(matrix())[1],
    "det": lambda: torch.linalg.det(matrix()),
    "matrix_exp": lambda: torch.linalg.matrix_exp(matrix()),
    "cholesky_inverse": lambda: torch.cholesky_inverse(matrix()),
    "softmax": lambda: matrix().softmax(0),
    "logsumexp": lambda: matrix().logsumexp(0),
    "in place": lambda: torch.exp_(matrix() * 1),
    "relu": lambda: torch.relu_(matrix() * 1),
    "norm": lambda: matrix().norm(),
    "std": lambda: matrix().std(),
    "cdist": lambda: torch.cdist(matrix(), matrix()),
    "cummax": lambda: matrix().cummax(0)[0],
    "median": lambda: matrix().median(),
    "layer norm": lambda: F.layer_norm(matrix(), (4,)),
    "group norm": lambda: F.group_norm(matrix()[None], 2),
    "batch norm": lambda: F.batch_norm(matrix(), None, None, training=True),
    "embedding bag": lambda: F.embedding_bag(torch.tensor([[1, 2]]), matrix()),
    "max pool": lambda: F.max_pool1d(matrix(), 2),
    "ctc": lambda: F.ctc_loss(
        matrix().log_softmax(1)[:, None], torch.ones(1, 2, dtype=torch.int64), torch.tensor([4]), torch.tensor([2])
    ),
    "recurrent": lambda: torch.nn.LSTM(4, 4)(matrix())[0],
    "sqrt of a tuple": lambda: torch._foreach_sqrt([matrix().exp(), matrix().exp()])[0],
    "complex": lambda: torch.polar(matrix(), matrix()),
    "rrelu": lambda: F.rrelu(matrix(), training=True),
}


def said_by_engine(fn: Any) -> Iterator[tuple[str, int]]:
    """The slots of a function with outputs of its own, with their numbers."""
    for name in dir(fn):
        if name.startswith("_raw_saved_"):
            slot = name.removeprefix("_raw_saved_")
            value = getattr(fn, f"_saved_{slot}")
            numbered = {f"{slot}[{number}]": each for number, each in enumerate(value)} if type(value) is tuple else {}
            for key, tensor in (numbered or {slot: value}).items():
                if isinstance(tensor, torch.Tensor) and tensor.grad_fn is fn:
                    yield key, tensor.output_nr


def functions_of(output: Any) -> list[Any]:
    found, pending = [], [output.grad_fn]
    while pending:
        fn = pending.pop()
        if fn is not None and fn not in found:
            found.append(fn)
            pending += [child for child, _ in fn.next_functions]
    return found


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_output_that_its_own_operation_saved_has_it_as_origin(operation: Callable[[], Any]) -> None:
    output = operation()
    expected = sorted(pair for fn in functions_of(output) for pair in said_by_engine(fn))
    graph = gradir.capture(output)
    found = [
        (slot.slot, slot.origin.output_nr)
        for node in graph.nodes.values()
        for slot in node.saved
        if slot.origin is not None and slot.origin.id == node.id
    ]
    assert sorted(found) == expected


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x * 2, x * 3
        ctx.save_for_backward(a, x, b)
        return a, b

    @staticmethod
    def backward(ctx, first, second):
        a, _, _ = ctx.saved_tensors
        return first * a


def test_the_outputs_that_a_custom_function_saved_have_it_as_origin() -> None:
    graph = gradir.capture(Twice.apply(leaf(2)))
    assert [slot.origin for slot in graph.nodes["twice:1"].saved] == [
        Ref("twice:1", 0),
        Ref("leaf:1", 0),
        Ref("twice:1", 1),
    ]


def test_saved_tensors_that_reading_would_free_are_not_read() -> None:
    class Clears(Twice):
        clear_saved_tensors_on_access = True

    outputs = Clears.apply(leaf(2))
    gradir.capture(outputs)
    outputs[0].sum().backward()


def test_no_hook_runs_to_find_an_origin() -> None:
    ran: list[str] = []

    def hook(tensor: Any) -> Any:
        ran.append("ran")
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, hook):
        y = Twice.apply(leaf(2))[0].exp()
    x = leaf(2).exp()
    graph = gradir.capture((y, x))
    assert not ran
    assert {slot.state for slot in graph.nodes["exp:1"].saved} == {"hooked"}
    assert graph.nodes["exp:2"].saved[0].origin == Ref("exp:2", 0)


def test_freed_and_stale_tensors_have_no_origin() -> None:
    freed, stale = leaf(2).exp(), leaf(2).exp()
    freed.sum().backward()
    stale.add_(1)
    graph = gradir.capture((freed, stale))
    assert [(slot.state, slot.origin) for name in ("exp:1", "exp:2") for slot in graph.nodes[name].saved] == [
        ("freed", None),
        ("stale", None),
    ]


def test_a_class_of_tensors_is_not_reported_that_its_origin_is_read() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
    y = x.exp()
    told: list[str] = []
    dispatch = TwoTensor.__torch_dispatch__

    def noting(cls, func, types, args=(), kwargs=None):
        told.append(str(func))
        return dispatch(func, types, args, kwargs)

    TwoTensor.__torch_dispatch__ = classmethod(noting)
    try:
        graph = gradir.capture(y)
    finally:
        TwoTensor.__torch_dispatch__ = dispatch
    assert graph.nodes["exp:1"].saved[0].origin == Ref("exp:1", 0)
    assert not told
