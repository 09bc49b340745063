"""A recorder that is dropped, or left out of turn or by another thread, leaves nothing of itself in torch."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo import eval_frame  # noqa: E402
from torch.autograd.function import BackwardCFunction  # noqa: E402
from torch.nn.modules import module as module_hooks  # noqa: E402
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack  # noqa: E402
from torch.utils import _python_dispatch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack  # noqa: E402

import gradir  # noqa: E402
from gradir.frontends.pytorch import private  # noqa: E402
from gradir.frontends.pytorch.watching.programs import Running  # noqa: E402

nn = torch.nn

KINDS = [{}, {"sources": True}, {"flow": True}, {"collectives": True}, {"sources": True, "flow": True}]
everything = pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "+".join(kinds) or "scopes")


def modes() -> list[object]:
    """The modes of this thread."""
    return [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]


def patches() -> list[object]:
    """Whatever of torch's a recording changes in all threads, and what torch knows of all dispatch modes."""
    hooks = (*module_hooks._global_forward_hooks.values(), *module_hooks._global_forward_pre_hooks.values())
    dynamo = (vars(eval_frame).get(name) for name in (private.COMPILED_BEGINS, private.COMPILED_ENDS))
    known = [value for name, value in vars(_python_dispatch).items() if name.startswith("_is_in_")]
    return [*hooks, *dynamo, vars(BackwardCFunction).get("__init__"), *known]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = patches()
    assert modes() == []
    yield
    assert modes() == []
    assert patches() == before


class Plain(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class PlainBelow(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Worker:
    """A thread that runs what it is given, one after the other."""

    def __enter__(self) -> Worker:
        self._given: Callable[[], object] | None = None
        self._turns = threading.Barrier(2, timeout=60)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self(None)
        self._thread.join()

    def __call__(self, function: Callable[[], object] | None) -> object:
        self._given = function
        self._turns.wait()
        if function is not None:
            self._turns.wait()
            return self._result
        return None

    def _work(self) -> None:
        self._turns.wait()
        while self._given is not None:
            try:
                self._result = self._given()
            except Exception as error:  # noqa: BLE001 (the test looks at it)
                self._result = error
            self._turns.wait()
            self._turns.wait()


@everything
def test_a_recorder_that_is_dropped_leaves_with_a_warning(kinds) -> None:
    recorder = gradir.record(**kinds)
    recorder.__enter__()
    alive = weakref.ref(recorder)
    nn.Linear(2, 2)(torch.ones(1, 2))
    with pytest.warns(gradir.GradirWarning, match="dropped while it recorded") as told:
        del recorder
    assert alive() is None
    assert told[0].filename == __file__


@everything
@pytest.mark.parametrize("release", [gc.collect, gradir.release])
def test_a_recorder_that_its_own_model_holds_leaves_once_both_are_collected(kinds, release) -> None:
    model = nn.Linear(2, 2)
    model.recorder = gradir.record(model, **kinds)
    model.recorder.__enter__()
    model(torch.ones(1, 2)).sum()
    del model
    with pytest.warns(gradir.GradirWarning, match="dropped while it recorded"):
        release()


@everything
@pytest.mark.parametrize("is_above", [True, False])
def test_a_recorder_that_is_dropped_while_its_mode_runs_leaves_after_the_call(kinds, is_above) -> None:
    held = []

    class Dropping(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            held.clear()
            return func(*args, **(kwargs or {}))

    class DroppingBelow(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            held.clear()
            return func(*args, **(kwargs or {}))

    with Dropping() if is_above else DroppingBelow() as theirs:
        held.append(gradir.record(**kinds))
        held[0].__enter__()
        with pytest.warns(gradir.GradirWarning, match="dropped while it recorded"):
            torch.ones(2).sum()
        torch.ones(2).sum()
        assert modes() == [theirs]


@everything
def test_a_recorder_that_another_thread_leaves_is_off_after_the_next_call(kinds) -> None:
    hooks, recorder = len(module_hooks._global_forward_hooks), gradir.record(**kinds)
    with Worker() as worker:
        worker(recorder.__enter__)
        recorded = worker(lambda: torch.ones(2, requires_grad=True) * 2)
        with pytest.warns(gradir.GradirWarning, match="left in another thread"):
            recorder.__exit__(None, None, None)
        assert len(module_hooks._global_forward_hooks) == hooks
        worker(lambda: str(nn.Linear(2, 2)(torch.ones(1, 2)).sum()))
        assert worker(modes) == []
    graph = recorder.capture(recorded)
    assert [node.op for node in graph.nodes.values() if node.role == "function"] == ["accumulate_grad", "mul"]


@everything
@pytest.mark.parametrize("clear", [gradir.release, lambda: gradir.record().__enter__().__exit__(None, None, None)])
def test_a_thread_whose_recorder_another_one_left_is_cleared_by_the_next_use_of_gradir(kinds, clear) -> None:
    recorder = gradir.record(**kinds)
    with Worker() as worker:
        worker(recorder.__enter__)
        with pytest.warns(gradir.GradirWarning, match="left in another thread"):
            recorder.__exit__(None, None, None)
        worker(clear)
        assert worker(modes) == []


@everything
def test_a_recorder_that_is_dropped_by_another_thread_leaves_there(kinds) -> None:
    held = [gradir.record(**kinds)]
    with Worker() as worker:
        worker(lambda: str(held[0].__enter__()))
        with pytest.warns(gradir.GradirWarning, match="dropped while it recorded"):
            held.clear()
        worker(lambda: torch.ones(2).sum())
        assert worker(modes) == []


def test_the_profile_of_a_thread_is_left_to_it() -> None:
    recorder, calls = gradir.record(flow=True), []

    def watch(frame, event, argument) -> None:
        calls.append(event)

    def run() -> object:
        sys.setprofile(watch)
        try:
            torch.ones(2)
            return sys.getprofile()
        finally:
            sys.setprofile(None)

    with Worker() as worker:
        worker(recorder.__enter__)
        with pytest.warns(gradir.GradirWarning, match="left in another thread"):
            recorder.__exit__(None, None, None)
        assert worker(run) is watch
        assert calls
        worker(gradir.release)
        assert worker(modes) == []


@everything
def test_a_generator_that_is_dropped_inside_a_recording_ends_it(kinds) -> None:
    recorder = gradir.record(**kinds)

    def batches() -> Iterator[torch.Tensor]:
        with recorder:
            yield torch.ones(2, requires_grad=True).exp()

    generator = batches()
    with Plain() as above, PlainBelow() as below:
        made = next(generator)
        with Plain() as inner, PlainBelow() as inner_below:
            del generator
            assert modes() == [above, inner, below, inner_below]
    assert "exp:1" in recorder.capture(made).nodes
    if "flow" in kinds:
        assert [node.op for node in recorder.forward().nodes.values() if node.role == "function"] == ["ones", "exp"]


@everything
def test_a_recorder_that_outlives_a_mode_around_it(kinds) -> None:
    def batches() -> Iterator[None]:
        with gradir.record(**kinds):
            yield

    generator = batches()
    with Plain(), PlainBelow():
        next(generator)
    generator.close()
    assert modes() == []


@everything
def test_a_recorder_that_is_entered_twice_refuses_and_leaves_once(kinds) -> None:
    with gradir.record(**kinds) as recorder:
        entered = modes()
        with pytest.raises(gradir.CaptureError, match="already recording"):
            recorder.__enter__()
        assert modes() == entered


def test_a_recording_of_backwards_that_another_thread_ends_is_off_in_its_own() -> None:
    found = []
    with Worker() as worker:
        watch = Running(gradir.CaptureRequest(step=2, sources=True), lambda call: found.append(call.capture()))
        worker(watch.__enter__)
        w = torch.ones(2, requires_grad=True)
        (w * 2).sum().backward()
        (w * 2).sum().backward()
        assert [node.op for node in found[0].nodes.values() if node.role == "function"][-2:] == ["mul", "sum"]
        watch.__exit__(None, None, None)
        worker(lambda: torch.ones(2).sum())
        assert worker(modes) == []
