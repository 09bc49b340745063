"""Which write is blamed for a saved tensor that changed before its backward, compared with what a backward raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from tensors import leaf_of as leaf  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import gradir  # noqa: E402

HERE = f"tests/{Path(__file__).name}"


class Told(TorchDispatchMode):
    """What torch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


with Told() as told:
    torch.ones(1)[0] = 0
SETS = told.names[-1]
"""What torch runs to set an entry to a number: ``copy_`` before 2.15, and ``fill_`` from then on."""

Program = Callable[[torch.Tensor], torch.Tensor]


def explained(
    program: Program, error: str = "modified by an inplace operation", values: bool | None = None
) -> gradir.Explanation:
    """The explanation of the loss that a program makes of a leaf, of which a real backward raises."""
    a = leaf()
    with gradir.record(flow=True) as rec:
        loss = program(a)
    with pytest.raises(RuntimeError, match=error):
        torch.autograd.grad(loss, a, retain_graph=True)
    return rec.explain(loss, params={"a": a}, values=values)


def two_writes(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    hidden.add_(1)  # HERE
    hidden.mul_(2)
    return hidden.sum()


def one_before_it_was_saved(a: torch.Tensor) -> torch.Tensor:
    hidden = a * 2
    hidden.add_(1)
    loss = (hidden * a).sum()
    hidden.mul_(2)  # HERE
    return loss


def one_that_autograd_does_not_see(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    hidden.data.add_(1)
    hidden.mul_(2)  # HERE
    return hidden.sum()


def to_a_view(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    hidden[0] = 0  # HERE
    hidden[1] = 0
    return hidden.sum()


@pytest.mark.parametrize("program", [two_writes, one_before_it_was_saved, one_that_autograd_does_not_see, to_a_view])
def test_the_first_write_that_broke_a_saved_tensor_is_blamed(program: Program) -> None:
    cause = next(cause for cause in explained(program).causes if cause.level == "error")
    assert cause.kind == "inplace"
    assert cause.source is not None
    assert cause.source.line == find_marked_line(program)


def test_the_writes_that_follow_are_mentioned() -> None:
    (cause,) = explained(two_writes).causes
    assert cause.op == "add_"
    line = find_marked_line(two_writes)
    assert cause.text == (
        f"add_ writes to hidden, which an earlier operation saved for its derivative: exp at {HERE}:{line - 1}; "
        f"later writes: mul_ at {HERE}:{line + 1}"
    )


def to_what_several_saved(a: torch.Tensor) -> torch.Tensor:
    hidden = a * 2
    loss = (hidden.square() + hidden.sin() + hidden.cos() + hidden * a).sum()
    hidden[0].fill_(0)  # HERE
    return loss


def to_a_view_of_a_parameter(a: torch.Tensor) -> torch.Tensor:
    loss = (a * a.exp()).sum()
    with torch.no_grad():
        a[0] = 1.0  # HERE
    return loss


def to_what_has_no_variable(a: torch.Tensor) -> torch.Tensor:
    return a.exp().add_(1).sum()  # HERE


SAVED = "which an earlier operation saved for its derivative:"


@pytest.mark.parametrize(
    ("program", "names", "text"),
    [
        (
            to_what_several_saved,
            ("hidden",),
            f"fill_ writes to hidden, {SAVED} square at HERE:-1, sin at HERE:-1, cos at HERE:-1 and 1 more",
        ),
        (to_a_view_of_a_parameter, ("a",), f"{SETS} changes a, {SAVED} mul at HERE:-2"),
        (to_what_has_no_variable, (), f"add_ writes to a tensor that has no name, {SAVED} exp at HERE:0"),
        (to_a_view, ("hidden",), f"{SETS} writes to hidden, {SAVED} exp at HERE:-1; later writes: {SETS} at HERE:1"),
        (one_before_it_was_saved, ("hidden",), f"mul_ writes to hidden, {SAVED} mul at HERE:-1"),
    ],
)
def test_the_report_of_a_write_names_the_operation_that_saved_the_tensor(
    program: Program, names: tuple[str, ...], text: str
) -> None:
    (cause,) = explained(program).causes
    line = find_marked_line(program)
    assert cause.text == re.sub(r"HERE:(-?\d+)", lambda found: f"{HERE}:{line + int(found[1])}", text)
    assert cause.names == names


def a_state(a: torch.Tensor) -> torch.Tensor:
    state = torch.ones(3)
    for step in range(2):
        state = (state * a).tanh()  # HERE
        loss = state.sum()
        if step == 0:
            loss.backward()
    return loss


def a_state_without_saved_tensors_of_its_own(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    state = hidden + 1  # HERE
    state.sum().backward()
    slope = torch.autograd.grad((a * a).sum(), a, create_graph=True)[0]
    return (state * slope).sum()


def two_states_and_one_that_is_detached(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    cell = a.sin()  # HERE
    other = a.cos()
    (hidden + cell + other).sum().backward()
    return (hidden + cell + other.detach() * 2 + a * 3).sum()


def what_is_in_a_list(a: torch.Tensor) -> torch.Tensor:
    states = []
    states.append(a.exp())  # HERE
    states[0].sum().backward()
    return (states[0] * 2).sum()


def two_results_of_one_operation(a: torch.Tensor) -> torch.Tensor:
    low, high = (a.exp().outer(a)).aminmax(dim=0)  # HERE
    states = [low, high]
    (low * high).sum().backward()
    del low, high
    return (states[0].exp() * states[1].exp()).sum()


def two_losses_of_one_part(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    first, second = hidden.sum(), hidden.mean()
    first.backward()  # HERE
    return second


CARRIED = "carried over from before that backward"


@pytest.mark.parametrize(
    ("program", "names", "detail"),
    [
        (
            a_state,
            ("state",),
            f"state at HERE:0 is {CARRIED}, and mul at HERE:0 uses it again; that backward ran at HERE:3",
        ),
        (
            a_state_without_saved_tensors_of_its_own,
            ("state",),
            f"state at HERE:0 is {CARRIED}, and mul at HERE:3 uses it again; that backward ran at HERE:1",
        ),
        (
            two_states_and_one_that_is_detached,
            ("hidden", "cell"),
            f"hidden at HERE:-1, cell at HERE:0 are {CARRIED}, and add at HERE:3 uses them again; "
            "that backward ran at HERE:2",
        ),
        (
            what_is_in_a_list,
            (),
            f"the result of exp at HERE:0 is {CARRIED}, and mul at HERE:2 uses it again; that backward ran at HERE:1",
        ),
        (
            two_results_of_one_operation,
            (),
            f"the result of aminmax at HERE:0 is {CARRIED}, and exp at HERE:4 uses it again; "
            "that backward ran at HERE:2",
        ),
        (
            two_losses_of_one_part,
            (),
            "the loss was computed before that backward too; that backward ran at HERE:0",
        ),
    ],
)
def test_what_is_carried_over_from_before_a_backward_is_named(
    program: Program, names: tuple[str, ...], detail: str
) -> None:
    cause = explained(program, "backward through the graph a second time", values=True).causes[-1]
    line = find_marked_line(program)
    assert cause.detail == re.sub(r"HERE:(-?\d+)", lambda found: f"{HERE}:{line + int(found[1])}", detail)
    assert (cause.kind, cause.level, cause.names) == ("freed", "error", names)


def test_a_backward_outside_the_recording_is_reported_as_far_as_it_is_known() -> None:
    a = leaf()
    hidden = a.exp()
    hidden.sum().backward()
    with gradir.record(flow=True) as rec:
        loss = (hidden * 2).sum()
    (cause,) = rec.explain(loss, params={"a": a}, values=True).causes
    first = f"a tensor from before the recording is {CARRIED}, and mul at "
    assert re.fullmatch(rf"{re.escape(first)}\S+:\d+ uses it again", cause.detail)
    with gradir.record(flow=True) as rec:
        state = a.exp()
    state.sum().backward()
    with rec:
        loss = (state * 2).sum()
    (cause,) = rec.explain(loss, params={"a": a}, values=True).causes
    assert cause.detail == "gradir does not know which values come from before that backward"


class OfAUser(torch.optim.Optimizer):
    """Writes in a line of its own."""

    def __init__(self, parameters: object) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad)


def stepping(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    loss = model(torch.ones(3, 4)).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()  # HERE
    return loss


OPTIMIZERS: list[Callable[[object], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, 0.1),
    lambda parameters: torch.optim.SGD(parameters, 0.1, foreach=False, weight_decay=0.1),
    lambda parameters: torch.optim.Adam(parameters, foreach=True),
    lambda parameters: torch.optim.Adam(parameters, foreach=False),
    OfAUser,
]


@pytest.mark.parametrize("of_model", OPTIMIZERS)
def test_a_step_between_two_backwards_of_a_graph_is_named(
    of_model: Callable[[object], torch.optim.Optimizer],
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = of_model(model.parameters())
    with gradir.record(model, flow=True) as rec:
        loss = stepping(model, optimizer)
    found = rec.explain(loss, optimizer=optimizer)
    if optimizer.defaults.get("foreach") and isinstance(optimizer, torch.optim.Adam):
        # torch does not count what this form writes, and runs the backward.
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        assert found.level == "none"
        return
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.op) == ("updated", "error", "step")
    assert "2.weight" in cause.names
    assert cause.detail == f"linear at {HERE}:{find_marked_line(stepping) - 2}"
    assert cause.source is not None
    assert cause.source.line == find_marked_line(stepping)
    assert cause.advice.startswith("compute the loss again after an optimizer's step")


def updating(weight: torch.Tensor) -> torch.Tensor:
    hidden = weight.exp() * weight
    with torch.no_grad():
        weight -= 0.1  # HERE
    return hidden.sum()


def test_an_update_by_hand_is_reported_as_one() -> None:
    (cause,) = explained(updating).causes
    assert (cause.kind, cause.names) == ("updated", ("a",))
    assert cause.text.startswith(f"sub_ changes a, {SAVED} ")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(updating)
