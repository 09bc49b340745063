"""The cuts of a recorded forward: where both of their ends are, and which of them are meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir import dumps, loads  # noqa: E402
from gradir.explanations.from_cuts import explain_cuts  # noqa: E402
from gradir.ir import Cut, Graph  # noqa: E402
from gradir.ir.cuts import FLOW  # noqa: E402

Tensor = torch.Tensor


class Net(torch.nn.Module):
    """Two layers, a third that nothing trains, and a program."""

    def __init__(self, program: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.target = (torch.nn.Linear(4, 4) for _ in range(3))
        self.program = program

    def forward(self, x: Tensor) -> Tensor:
        return self.program(self, x)


def captured(program: Callable[[Net, Tensor], Tensor]) -> Graph:
    model = Net(program)
    with gradir.record(model, flow=True) as recorder:
        loss = model(torch.randn(3, 4)).sum()
    return recorder.capture(loss)


def places(program: Callable[[Net, Tensor], Tensor]) -> list[Cut]:
    return [cut for cut in captured(program).cuts if cut.is_place]


def test_both_ends_of_a_detach_beside_an_undetached_branch() -> None:
    graph = captured(lambda net, x: (h := net.a(x)) + net.b(h.detach().relu()) * 2)
    (cut,) = (cut for cut in graph.cuts if cut.is_place)
    assert (cut.kind, cut.names, cut.at, cut.into, cut.slot) == (
        "detach",
        ("a.weight", "a.bias"),
        "a/addmm:1",
        "b/addmm:1",
        1,
    )
    assert graph.nodes[cut.into].inputs[1] is None
    assert cut.source is not None
    assert cut.source.file.endswith("test_flow_places.py")
    assert graph.producer.options[FLOW] is True


def test_a_cut_of_a_leaf_names_the_leaf() -> None:
    (cut,) = places(lambda net, x: net.a(x) @ net.a.weight.detach())
    assert (cut.at, cut.into, cut.slot) == ("a.weight", "mm:1", 1)


def test_nodes_behind_a_cut_alone_are_not_in_the_graph() -> None:
    (cut,) = places(lambda net, x: net.b(net.a(x).detach()))
    assert (cut.at, cut.into, cut.slot) == ("", "b/addmm:1", 1)


def test_a_value_enters_through_its_first_result() -> None:
    model = Net(lambda net, x: x)
    with gradir.record(model, flow=True) as recorder:
        h = model.a(torch.randn(3, 4))
        found = recorder.capture({"loss": h.sum(), "log": (h.sum().detach() * 2) + model.b.bias.sum()}).cuts
    (cut,) = (cut for cut in found if cut.is_place)
    assert (cut.kind, cut.into) == ("detach", "add:1")


def no_grad_branch(net: Net, x: Tensor) -> Tensor:
    h = net.a(x)
    with torch.no_grad():
        t = net.target(x)
    return (h - t) ** 2


def test_a_branch_under_no_grad_enters_again() -> None:
    (cut,) = places(no_grad_branch)
    assert (cut.kind, cut.names, cut.into, cut.slot, cut.meant) == (
        "no_grad",
        ("target.weight", "target.bias"),
        "sub:1",
        1,
        "",
    )


def test_of_a_loop_the_first_time_is_reported() -> None:
    def program(net: Net, x: Tensor) -> Tensor:
        for _ in range(3):
            x = net.b(x).relu() + net.a(x).detach()
        return x

    (cut,) = places(program)
    assert (cut.into, cut.slot) == ("add:1", 1)


def straight_through(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return s + (torch.round(s) - s).detach()


def straight_through_turned(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return s - (s - torch.round(s)).detach()


def straight_through_taken_out(net: Net, x: Tensor) -> Tensor:
    s = net.a(x).softmax(1)
    hard = torch.nn.functional.one_hot(s.argmax(1), 4).float()
    return hard - s.detach() + s


def stop_gradient(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return (s - s.detach()) * 3


def largest(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return torch.exp(s - s.amax(1, keepdim=True).detach())


def largest_of_detached(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return torch.exp(s - s.detach().max(1).values.unsqueeze(1))


def largest_under_no_grad(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    with torch.no_grad():
        m = s.amax(1, keepdim=True)
    return torch.exp(s - m)


def moving_average(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        for old, new in zip(net.target.parameters(), net.a.parameters(), strict=True):
            old.mul_(0.9).add_(new, alpha=0.1)
    return no_grad_branch(net, x)


def average_that_is_trained(net: Net, x: Tensor) -> Tensor:
    return moving_average(net, x) + net.target(x)


@pytest.mark.parametrize(
    ("program", "meant"),
    [
        (straight_through, "straight-through"),
        (straight_through_turned, "straight-through"),
        (straight_through_taken_out, "straight-through"),
        (stop_gradient, "stop-gradient"),
        (largest, "subtracted maximum"),
        (largest_of_detached, "subtracted maximum"),
        (largest_under_no_grad, "subtracted maximum"),
        (moving_average, "target network"),
        # What learns on another way is no target network, and one side of a comparison.
        (average_that_is_trained, "stop-gradient"),
    ],
)
def test_a_pattern_is_intended(program: Callable[[Net, Tensor], Tensor], meant: str) -> None:
    assert {cut.meant for cut in places(program)} == {meant}


def of_another(net: Net, x: Tensor) -> Tensor:
    s, other = net.a(x), net.b(x)
    return s + (torch.round(s) - other).detach()


def of_a_copy(net: Net, x: Tensor) -> Tensor:
    return net.a(x) + (torch.round(x) - net.a(x)).detach()


def weighted(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return torch.add(s, (torch.round(s) - s).detach(), alpha=2)


def also_elsewhere(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    d = (torch.round(s) - s).detach()
    return s + d + net.b(x) * d


def added(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return s + s.detach()


def scaled(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return s - s.detach() * 2


def smallest(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return s - s.amin(1, keepdim=True).detach()


def largest_of_another(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return s - net.b(x).amax(1, keepdim=True).detach()


def largest_times(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return s / s.amax(1, keepdim=True).detach()


def largest_the_wrong_way(net: Net, x: Tensor) -> Tensor:
    s = net.a(x)
    return s.amax(1, keepdim=True).detach() - s


def average_of_one(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        net.target.weight.mul_(0.9).add_(net.a.weight, alpha=0.1)
    return no_grad_branch(net, x)


def weights_that_decay(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        for parameter in net.target.parameters():
            parameter.mul_(0.9)
    return no_grad_branch(net, x)


@pytest.mark.parametrize(
    "program",
    [
        of_another,
        of_a_copy,
        weighted,
        also_elsewhere,
        added,
        scaled,
        smallest,
        largest_of_another,
        largest_times,
        largest_the_wrong_way,
        average_of_one,
        weights_that_decay,
        no_grad_branch,
    ],
)
def test_a_near_miss_is_not_reported_as_intended(program: Callable[[Net, Tensor], Tensor]) -> None:
    found = places(program)
    assert found
    assert {cut.meant for cut in found} == {""}


def test_a_captured_correction_is_not_meant() -> None:
    model = Net(lambda net, x: x)
    with gradir.record(model, flow=True) as recorder:
        s = model.a(torch.randn(3, 4))
        d = (s.round() - s).detach()
        found = recorder.capture([(s + d).sum(), d + model.b.bias]).cuts
    assert {cut.meant for cut in found if cut.is_place} == {""}


def left_torch(net: Net, x: Tensor) -> Tensor:
    h = net.a(x)
    return h * net.b(x).sum().item()


def left_torch_often(net: Net, x: Tensor) -> Tensor:
    for parameter in net.b.parameters():
        x = x * float(parameter.sum())
    return net.a(x)


def test_a_value_that_left_torch_is_a_cut_with_its_parameters() -> None:
    (cut,) = places(left_torch)
    assert (cut.kind, cut.op, cut.names, cut.at, cut.into) == ("exit", "item", ("b.weight", "b.bias"), "", "")
    assert cut.tensor is not None
    assert cut.tensor.shape == ()
    assert cut.source is not None
    assert cut.source.line == left_torch.__code__.co_firstlineno + 2
    (cut,) = places(left_torch_often)
    assert (cut.op, cut.names) == ("float", ("b.weight", "b.bias"))
    # What the graph has all the same did not end there, nor what another cut stopped.
    assert places(lambda net, x: net.a(x) * net.a(x).sum().item()) == []
    (cut,) = places(lambda net, x: net.a(x) * net.b(x).detach() * net.b(x).sum().item())
    assert cut.kind == "detach"


def called_by_its_name(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        h = torch.nn.functional.linear(x, net.b.weight)
    return net.a(h) + torch.tensor([float(net.b.bias.sum())]) + net.target.weight.data


@pytest.mark.parametrize(
    "program",
    [left_torch, left_torch_often, no_grad_branch, called_by_its_name, of_another, lambda net, x: net.a(x)],
)
def test_the_file_explains_what_the_program_does(program: Callable[[Net, Tensor], Tensor]) -> None:
    model = Net(program)
    with gradir.record(model, flow=True) as recorder:
        loss = model(torch.randn(4, 4)).sum()
    found, stored = recorder.explain(loss, values=False), explain_cuts(loads(dumps(recorder.capture(loss))))
    assert stored.statuses == found.statuses
    assert {*stored.causes} == {replace(cause, excerpt=None) for cause in found.causes}
    assert stored.level == found.level


def test_parameters_of_a_loss_outside_the_recording_are_not_unused() -> None:
    model = Net(lambda net, x: net.a(x))
    with gradir.record(model, flow=True) as recorder:
        out = model(torch.randn(3, 4))
    inside, outside = recorder.capture(out.sum()), recorder.capture(out)
    assert (inside.producer.options[FLOW], outside.producer.options[FLOW]) == (False, True)
    assert explain_cuts(inside).status("b.weight") == "unreached"
    assert explain_cuts(outside).status("b.weight") == "unused"


def test_without_the_flow_nothing_is_reported() -> None:
    model = Net(no_grad_branch)
    with gradir.record(model) as recorder:
        graph = recorder.capture(model(torch.randn(3, 4)).sum())
    assert FLOW not in graph.producer.options
    assert not any(cut.is_place for cut in graph.cuts)
