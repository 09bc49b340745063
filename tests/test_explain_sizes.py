"""What an explanation costs, counted in steps and memory, and that it keeps nothing alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from explained_models import Model  # noqa: E402
from steps import measure_memory, steps  # noqa: E402
from tensors import leaf_of as leaf  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn


def test_nothing_is_kept_alive_by_an_explanation() -> None:
    model = Model()
    rec = gradir.record(model, flow=True)
    with rec:
        hidden = model.stem(torch.ones(1, 3)).exp()
        loss = hidden.sum()
    found = rec.explain(loss)
    gone = [weakref.ref(hidden), weakref.ref(loss), weakref.ref(model), weakref.ref(rec)]
    del model, rec, hidden, loss
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4
    assert found.status("stem.weight") == "reached"


def test_a_sum_doubled_again_and_again_has_each_term_once() -> None:
    a = leaf()
    with gradir.record(flow=True) as rec:
        total = a.exp().sum()
        for _ in range(64):
            total = total + total
    assert len(rec.explain(total, params={"a": a}).terms) == 1


def test_a_long_chain_of_leaves_takes_no_set_for_each_step() -> None:
    # 8,000 sets of up to 8,000 leaves would be 4 MB for each of the two kinds.
    from gradir.frontends.pytorch.explaining.cuts import Flowing

    length = 8_000
    weights = [torch.ones((), requires_grad=True) for _ in range(length)]
    rec: Any = gradir.record(flow=True)
    with rec:
        total = torch.zeros(())
        for weight in weights:
            total = total * weight
        lost = total.detach()
        loss = lost * weights[0]
    (flow,) = rec._flows.values()
    flowing, used = measure_memory(lambda: Flowing(flow, [loss]))
    assert [len(flowing.members(stop.leaves)) for stop in flowing.stops] == [length]
    assert used < 7_500_000


class Counted(list):
    """A list that counts how often one of its entries is asked for."""

    asked = 0

    def __getitem__(self, at: Any) -> Any:
        self.asked += 1
        return super().__getitem__(at)


def asked_for_writes(length: int) -> int:
    from gradir.frontends.pytorch.explaining.failures import find_stale_writes

    a, rec = leaf(), gradir.record(flow=True)
    with rec:
        buffer, loss = torch.ones(3), torch.zeros(3)
        for _ in range(length):
            loss = loss + a * buffer
            buffer.add_(1)
    (flow,) = rec._flows.values()
    live = rec.live_capture([loss])
    flow.steps = steps = Counted(flow.steps)
    (write,) = find_stale_writes(flow, live)
    assert len(write.savers) == 1
    return steps.asked


def test_writes_to_what_many_functions_saved_are_looked_at_once() -> None:
    once, twice = asked_for_writes(100), asked_for_writes(200)
    assert twice < 3 * once


def steps_for_writes(many: int) -> int:
    x, weight = torch.ones(many, requires_grad=True), torch.ones(many, requires_grad=True)
    with gradir.record(flow=True) as rec:
        buffer = torch.zeros(many)
        with torch.no_grad():
            for place in range(many):
                buffer[place] = x[place]
        loss = (buffer * weight).sum()

    def explained() -> None:
        assert rec.explain(loss, params={"x": x}, values=False).status("x") == "cut"

    return steps(explained)


def steps_for_zeros(many: int) -> int:
    leaves = {f"w{number}": torch.ones((), requires_grad=True) for number in range(many)}
    with gradir.record(flow=True) as rec:
        total = torch.zeros(())
        for weight in leaves.values():
            total = torch.sin(total + weight)
        loss = total * 0.0

    def explained() -> None:
        found = rec.explain(loss, params=leaves)
        assert set(found.statuses.values()) == {"zero"}
        assert [(cause.kind, len(cause.names)) for cause in found.causes] == [("weighed_out", many)]

    return steps(explained)


@pytest.mark.parametrize(
    ("counted", "many"),
    [
        pytest.param(steps_for_writes, 400, id="writes to one memory"),
        pytest.param(steps_for_zeros, 200, id="zeros of leaves below a chain"),
    ],
)
def test_steps_grow_with_what_is_explained(counted: Callable[[int], int], many: int) -> None:
    once = counted(many)
    assert many < once
    assert counted(2 * many) < 3 * once
