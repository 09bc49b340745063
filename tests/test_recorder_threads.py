"""A recorder beside other threads: what belongs to which of them, and how fast that is found out."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from steps import steps  # noqa: E402
from tensors import leaf  # noqa: E402
from threads import call_in_thread  # noqa: E402

import gradir  # noqa: E402
from gradir.frontends.pytorch.recording.timelines import Coverage, Frame, ScopeLookup, Timeline  # noqa: E402

nn = torch.nn


class Meanwhile(nn.Module):
    """Lets another thread do something before each of its own operations."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.action = action

    def forward(self, x):
        call_in_thread(self.action)
        y = self.a(x)
        call_in_thread(self.action)
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

    alone = call_in_thread(run)
    model.action = lambda: other(x)
    assert call_in_thread(run) == alone
    assert alone.nodes["m/tanh:1"].ext == {}
    assert (alone.nodes["m/tanh:1"].source is not None) == sources


def test_a_model_in_another_thread_that_feeds_the_graph_is_in_it() -> None:
    other = nn.Linear(2, 2)
    model = nn.Linear(2, 2)

    def run() -> gradir.Graph:
        with gradir.record({"m": model}) as rec:
            x = torch.ones(1, 2)
            y = model(x) + call_in_thread(lambda: other(x))
        return rec.capture(y)

    graph = call_in_thread(run)
    assert graph.nodes["Linear.weight"].scope == "Linear"
    made = [node for node in graph.nodes.values() if node.op == "addmm"]
    assert len(made) == 2
    for node in made:
        own = "m" if graph.nodes["m.bias/accumulate_grad:1"].id in {ref.id for ref in node.inputs if ref} else "Linear"
        assert (node.scope, node.ext) in [(own, {}), ("", {"scope": "ambiguous"})]


def test_sources_are_those_of_the_thread_that_recorded() -> None:
    with gradir.record(sources=True) as rec:
        product = leaf(1) * 2
    node = call_in_thread(lambda: rec.capture(product)).nodes["mul:1"]
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

    outputs = [call_in_thread(late), call_in_thread(early)]
    graph = rec.capture(outputs)
    assert {node.op: node.names for node in graph.nodes.values() if node.names} == {
        "sin": ("second",),
        "cos": ("first",),
    }


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
                assert lookup([kind(number=number)]) == [scope_by_search(timelines, paths, kind(number=number))]
            covered = any(line.numbers[0] <= number < line.numbers[-1] for line in timelines)
            assert (number in coverage) == covered


def test_many_threads_are_looked_up_in_time() -> None:
    frame = Frame(nn.Identity(), None, ())

    def scopes(threads: int) -> list[str | None]:
        timelines = []
        for start in range(threads):
            timeline = Timeline()
            timeline.numbers, timeline.frames = [start, start + threads], [frame, None]
            timelines.append(timeline)
        lookup = ScopeLookup(timelines, {frame.module: "m"})
        return lookup([FakeFunction(number=number) for number in range(2 * threads)])

    assert scopes(3_000) == ["m"] * 5_999 + [""]
    assert steps(lambda: scopes(800)) < 3 * steps(lambda: scopes(400))
