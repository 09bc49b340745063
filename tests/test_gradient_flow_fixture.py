"""The pytest fixture ``gradient_flow``, in pytest runs of its own."""

from __future__ import annotations

import re
import sys

import pytest
from plugins import run_with_plugin

pytest.importorskip("torch")
pytest_plugins = ["pytester"]

MODEL = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head, self.spare = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.stem(x).detach())

x = torch.ones(2, 3)
"""
SHOWN = ["10 |     return self.head(self.stem(x).detach())"]
if sys.version_info >= (3, 11):
    SHOWN.append("   | " + " " * SHOWN[0][5:].index("detach") + "^" * len("detach()"))
MEANT = "to allow intended cuts, pass allow=[...] or write [tool.gradir] into pyproject.toml"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with the model."""
    pytester.makepyfile(net=MODEL)
    pytester.makepyprojecttoml("")
    return pytester


def run(pytester: pytest.Pytester, **tests: str) -> dict[str, list[str]]:
    """Run tests by name, together since each run takes long; gives the lines of each failure."""
    functions = (
        f"def test_{name}(gradient_flow):\n" + "".join(f"    {line}\n" for line in body.splitlines())
        for name, body in tests.items()
    )
    pytester.makepyfile(test_net="\n".join(["from net import *", "import pytest", *functions]))
    done = run_with_plugin(pytester)
    found: dict[str, list[str]] = {}
    for line in done.outlines:
        if match := re.fullmatch("_+ test_(\\w+) _+", line):
            found[match[1]] = []
        elif line.startswith("E  "):
            found[list(found)[-1]].append(line.removeprefix("E").removeprefix("       ").removeprefix("Failed: "))
    done.assert_outcomes(passed=len(tests) - len(found), failed=len(found))
    done.stdout.no_fnmatch_line("*gradir/*.py*")
    return found


RECORDED = "model = Net()\nwith gradient_flow.record(model):\n    loss = model(x).sum()\n"
ALONE = "model = Net()\nloss = model(x).sum()\n"
DETACHED = ALONE.replace("sum()", "sum().detach()")
NOTHING = "model = Net()\nwith gradient_flow.record(model):\n    model(x)\n    loss = torch.zeros(())\n"


def test_the_failure_is_the_explanation(project: pytest.Pytester) -> None:
    found = run(
        project,
        recorded=f"{RECORDED}gradient_flow.check(loss)",
        alone=f"{ALONE}gradient_flow.check(loss, model=model)",
        detached=f"{DETACHED}gradient_flow.check(loss, model=model.head)",
        nothing=f"{NOTHING}gradient_flow.check(loss)",
    )
    assert found["recorded"] == [
        "4 of 6 parameters get no gradient, 2 of them because detach() cuts all of stem (net.py:10 in Net.forward).",
        "",
        "error[detach]: detach() cuts all of stem",
        "  --> net.py:10 in Net.forward",
        *SHOWN,
        "  help: take detach() out of this line if all of stem should learn from what is computed with its result",
        "",
        MEANT,
    ]
    assert found["alone"] == [
        "2 of 6 parameters get a gradient; 4 get no gradient, which may be intended: no gradient arrives at "
        "{stem,spare}.{weight,bias}, and the reason is not known: the loss, or a part of it, was computed "
        "outside the recording.",
        "",
        "info[unrecorded]: no gradient arrives at {stem,spare}.{weight,bias}, and the reason is not known: the loss, "
        "or a part of it, was computed outside the recording",
        "  help: compute the loss inside `with gradir.record(model, flow=True)`",
        "",
        "with gradient_flow.record(model): around the forward and the loss finds the line",
        MEANT,
    ]
    assert found["detached"][0].startswith("0 of 2 parameters get a gradient: ")
    assert found["nothing"][0].startswith("0 of 6 parameters get a gradient: the loss depends on nothing")
    assert found["nothing"][3] == "  --> test_net.py:23 in test_nothing"


def test_the_fixture_passes_for_allowed_cuts_and_returns_the_explanation(project: pytest.Pytester) -> None:
    step = f"{RECORDED}for _ in range(2):\n    gradient_flow.check(loss, allow=['stem.*'])\nloss.backward()\n"
    reached = "assert found.status('head.weight') == 'reached'\nassert found.allowed == ()"
    optimizer = "optimizer=torch.optim.SGD(model.head.parameters())"
    passing = {
        "by_name": f"{RECORDED}gradient_flow.check(loss, allow=['stem.*'])",
        "by_kind": f"{RECORDED}gradient_flow.check(loss, allow=['detach'])",
        "by_optimizer": f"{RECORDED}found = gradient_flow.check(loss, {optimizer})\n{reached}",
        "a_part": f"{RECORDED}gradient_flow.check(loss, model=model.head)",
        "names": "w = torch.ones(3, requires_grad=True)\ngradient_flow.check(w.sum(), params={'w': w})",
        "alone": f"{ALONE}gradient_flow.check(loss, model=model, allow=['stem.*', 'spare.*'])",
        "a_part_alone": f"{ALONE}gradient_flow.check(loss, model=model.head)",
        "after_backward": f"{step}assert model.stem.weight.grad is None\ngradient_flow.check(loss, allow=['stem.*'])",
    }
    assert run(project, **passing) == {}


def test_the_fixture_reads_pyproject_of_the_test_folder(project: pytest.Pytester) -> None:
    project.makepyprojecttoml('[tool.gradir]\nallow = ["stem.bias", "old.*"]')
    found = run(
        project,
        alone=f"{RECORDED}gradient_flow.check(loss)",
        both=f"{RECORDED}gradient_flow.check(loss, allow=['stem.weight'])",
    )
    assert [*found] == ["alone"]
    assert found["alone"][-5:-2] == [
        "allowed:",
        "  stem.bias (pyproject.toml): nothing, as no cause is of this kind or of such names alone",
        "  old.* (pyproject.toml): nothing, as no cause is of this kind or of such names alone",
    ]
    project.makepyprojecttoml("[tool.gradir]\nalow = []")
    (line,) = run(project, one=f"{RECORDED}gradient_flow.check(loss)")["one"]
    assert line == "pyproject.toml: tool.gradir has no key 'alow' (did you mean 'allow'?): it has allow"


def test_misuse_is_one_line(project: pytest.Pytester) -> None:
    found = run(
        project,
        nameless="gradient_flow.check(Net()(x).sum())",
        none="gradient_flow.check(None, model=Net())",
        not_entered="gradient_flow.record(Net())\ngradient_flow.check(x)",
        no_model="gradient_flow.check(Net()(x), model=3)",
    )
    assert found == {
        "nameless": ["no parameter to check; pass model= or params="],
        "none": ["cannot explain NoneType: it has no tensor; pass the loss, or the error that the forward raised"],
        "not_entered": ["the recorder is empty: run the forward inside `with recorder:`"],
        "no_model": found["no_model"][:1],
    }
    assert "int" in found["no_model"][0]


def test_an_unused_fixture_loads_no_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\n\ndef test_it(gradient_flow):\n    assert 'torch' not in sys.modules\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.runpytest_subprocess("--fixtures").stdout.fnmatch_lines(
        ["gradient_flow -- *", "    Fails a test where a parameter gets no gradient, with the line that loses it;*"]
    )
