"""What a recorder does when the code around it or inside it goes wrong."""

from __future__ import annotations

import threading
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.nn.modules import module as module_hooks  # noqa: E402
from torch.overrides import _get_current_function_mode_stack  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.frontends.pytorch.recording.sources import SourceMode  # noqa: E402

nn = torch.nn


def installed() -> tuple[int, int, int]:
    """How many module hooks and function modes are in force."""
    hooks = len(module_hooks._global_forward_hooks), len(module_hooks._global_forward_pre_hooks)
    return *hooks, len(_get_current_function_mode_stack())


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = installed()
    yield
    assert installed() == before


class BoomError(Exception):
    pass


class Raises(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(x)
        raise self.error


@pytest.mark.parametrize("sources", [False, True])
@pytest.mark.parametrize("error", [BoomError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_the_users_exception_is_untouched(error: BaseException, sources: bool) -> None:
    model = Raises(error)
    with pytest.raises(type(error)) as caught, gradir.record(model, sources=sources):
        model(torch.ones(1, 2))
    assert caught.value is error
    assert error.__context__ is error.__cause__ is None
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert not any("frontends/pytorch/recorder" in file for file in files)


def test_after_a_forward_that_raised_the_same_recorder_records_again() -> None:
    model = Raises(BoomError())
    recorder = gradir.record(model)
    with pytest.raises(BoomError), recorder:
        model(torch.ones(1, 2))
    with recorder:
        y = model.inner(torch.ones(1, 2))
    assert "inner/addmm:1" in recorder.capture(y).nodes


def test_a_recorder_that_cannot_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: SourceMode) -> None:
        raise BoomError

    with monkeypatch.context() as patch:
        patch.setattr(SourceMode, "__enter__", refuse)
        recorder = gradir.record(nn.Linear(1, 1), sources=True)
        with pytest.raises(BoomError), recorder:
            pass
    before = installed()
    with recorder:
        assert installed() > before


@pytest.mark.parametrize("sources", [False, True])
def test_a_recorder_inside_another_records_too(sources: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    with gradir.record(model, sources=sources) as outer:
        before = model(torch.ones(1, 2))
        with gradir.record(model, sources=sources) as inner:
            within = model(before)
        after = model(within).sum()
    whole = outer.capture(after)
    assert [node.scope for node in whole.nodes.values() if node.op == "tanh"] == ["1", "1", "1"]
    part = inner.capture(after)
    assert sorted(node.scope for node in part.nodes.values() if node.op == "tanh") == ["", "", "1"]
    assert (whole.scopes["1"].calls, part.scopes["1"].calls) == (3, 1)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False)])
def test_a_graph_is_captured_where_gradients_are_disabled(without) -> None:
    model = nn.Linear(2, 1)
    loss = model(torch.ones(1, 2)).sum()
    expected = gradir.capture(loss, model=model)
    with without():
        assert gradir.capture(loss, model=model) == expected


def test_a_capture_under_no_grad_says_so() -> None:
    with torch.no_grad(), pytest.raises(CaptureError, match="gradients are disabled here"):
        gradir.capture(nn.Linear(2, 1)(torch.ones(1, 2)))


def test_a_graph_that_another_thread_is_still_building() -> None:
    """Nodes never change once they are made, so what hangs on the tensor at hand is captured whole."""
    built = [torch.ones(3, requires_grad=True).exp()]
    stop = threading.Event()

    def build() -> None:
        while not stop.wait(0.0001):
            built.append(built[-1].sin())

    thread = threading.Thread(target=build)
    thread.start()
    try:
        for _ in range(10):
            last = len(built) - 1
            graph = gradir.capture(built[last])
            assert sum(node.op == "sin" for node in graph.nodes.values()) == last
    finally:
        stop.set()
        thread.join()


@pytest.mark.filterwarnings("ignore")
def test_inside_a_compiled_function_capture_is_not_compiled() -> None:
    model = nn.Linear(2, 2)

    @torch.compile(backend="aot_eager")
    def step(x: torch.Tensor) -> tuple[torch.Tensor, gradir.Graph]:
        loss = model(x).sum()
        return loss, gradir.capture(loss, model=model)

    loss, graph = step(torch.ones(1, 2))
    assert {node.names for node in graph.nodes.values() if node.role == "parameter"} == {("weight",), ("bias",)}
    loss.backward()


@pytest.mark.parametrize("noting", [{}, {"sources": True}, {"flow": True}, {"sources": True, "flow": True}])
def test_a_warning_of_torch_has_the_line_that_called_it(noting: dict[str, bool]) -> None:
    shown = warnings.showwarning
    with warnings.catch_warnings(record=True) as found, gradir.record(**noting):
        warnings.simplefilter("always")
        torch.nn.functional.mse_loss(torch.ones(2, 1), torch.ones(2))  # HERE
        # torch's own code in C++ gives this one.
        torch.ones(2, requires_grad=True).sin().grad  # noqa: B018 (HERE TOO)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert [Path(warning.filename).name for warning in found] == [Path(__file__).name] * 2
    assert ["HERE" in lines[warning.lineno - 1] for warning in found] == [True, True]
    assert warnings.showwarning is shown
