"""``gradir.watch`` in a program: which operation makes a step not finite, and what the program has is left as it is."""

from __future__ import annotations

import random
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402

MARK = "  # <- "
HOOKED = """
hooked = []
for parameter in model.parameters():
    parameter.register_hook(lambda grad: hooked.append(float(grad.nan_to_num().sum())))
    parameter.register_post_accumulate_grad_hook(lambda parameter: hooked.append(1.0))
"""
START = """
import torch, gradir
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
"""
LOOP = """
for step in range(9):
    torch.manual_seed(step)
    x = torch.rand(6, 4) + 0.5
    optimizer.zero_grad()
    {loss}
    loss.backward()
    {after}optimizer.step()
"""


def training(made: str, loss: str, *, after: str = "", optimizer: str = "SGD(model.parameters(), lr=0.01)") -> str:
    """A training of nine steps, of which the sixth may go wrong."""
    body = "\n    ".join(loss.splitlines())
    return f"{START}{made}\noptimizer = torch.optim.{optimizer}\n{LOOP.format(loss=body, after=after)}"


LINEAR = "model = nn.Linear(4, 3, bias=False)"
IN_A_MODULE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.calls = 0
    def forward(self, x, scale):
        self.calls += 1
        print("called")
        h = self.drop(self.norm(self.fc(x))) * scale
        return h.pow(2).sum(1).sqrt()  # <- nonfinite
model = Net()
"""
RECURRENT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 3)
    def forward(self, x, scale):
        h = torch.zeros(6, 3)
        for _ in range(5):
            h = self.cell(x, h)
        return h / scale  # <- nonfinite
model = Net()
"""
TWICE = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2
model = nn.Linear(4, 3, bias=False)
"""
BAD = {
    "in a module": training(IN_A_MODULE, "loss = model(x, float(step != 5)).mean()"),
    "divided in a module": training(RECURRENT, "loss = model(x, float(step != 5)).mean()"),
    "in the loss": training(LINEAR, "p = (model(x) * (step != 5)).abs()\nloss = p.log().mean()  # <- nonfinite"),
    "clipped": training(
        LINEAR,
        "loss = (model(x) * (step != 5)).square().sum(1).sqrt().mean()  # <- nonfinite",
        after="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); ",
    ),
    "a mask": training(
        LINEAR,
        "y = model(x) * (step != 5)\nloss = torch.where(y == 0, 0.0, y.abs().sqrt()).mean()  # <- where_trap",
    ),
    "written in place": training(
        LINEAR,
        "out = torch.ones(6, 4)\nout[:, :3] = model(x)\nout[:, 0].mul_(step != 5)\n"
        "loss = out.square().sqrt().mean()  # <- nonfinite\nloss /= 2",
    ),
    "accumulated": training(
        LINEAR,
        "for part in x.split(2):\n    (model(part).square().sum() / 3).backward()\n"
        "loss = (model(x) * (step != 5)).square().sum().sqrt()  # <- nonfinite",
    ),
    "in autocast": training(
        LINEAR,
        'with torch.autocast("cpu", torch.bfloat16):\n    y = model(x)\n'
        "    loss = (y / (step != 5)).mean()  # <- nonfinite",
    ),
    "behind a function": training(
        TWICE, "y = Twice.apply(model(x)) * (step != 5)\nloss = y.square().sum().sqrt()  # <- nonfinite"
    ),
    "a penalty": training(
        LINEAR,
        "x = (x * (step != 5)).requires_grad_()\ny = model(x).square().sum()\n"
        "slope, = torch.autograd.grad(y, x, create_graph=True)\nloss = slope.square().sum().sqrt()  # <- nonfinite",
    ),
    "attention": training(
        LINEAR,
        "y = model(x)\nmask = torch.full((6, 6), -torch.inf if step == 5 else 0.0)\n"
        "loss = ((y @ y.T + mask).softmax(-1) @ y).square().mean()  # <- born",
    ),
    "another's weights": training(
        "model = nn.LSTM(4, 3, dropout=0.5, num_layers=2)",
        "y, _ = torch.func.functional_call(model, dict(model.named_parameters()), (x,))\n"
        "loss = (y[0] * (step != 5)).abs().pow(0.5).sum()  # <- nonfinite",
    ),
}
WATCHED = """
def train():
{body}
with gradir.watch(model, optimizer) as w:
    train()
"""


def run(text: str, *, watched: bool) -> dict[str, Any]:
    """The variables of a program at its end."""
    start, _, steps = text.partition("\nfor step")
    if watched:
        body = "".join(f"    {line}\n" for line in f"for step{steps}".splitlines())
        text = start + WATCHED.format(body=body)
    path = Path(f"watched_{watched}.py")
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradir.GradirWarning)
        return {**runpy.run_path(str(path)), "text": text}


def bits_of(program: dict[str, Any]) -> list[object]:
    """All that a program has, and the state of the random numbers."""
    found: list[object] = [random.getstate(), torch.get_rng_state().numpy().tobytes(), program["hooked"]]
    waiting: list[Any] = [program["model"].state_dict(), program["optimizer"].state_dict(), program.get("scaler")]
    waiting += [vars(module) for module in program["model"].modules()]
    waiting += [each.grad for each in program["model"].parameters()]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, (list, tuple)):
            waiting += each
        elif isinstance(each, torch.Tensor):
            found.append((each.detach().float().numpy().tobytes(), each.requires_grad))
        elif isinstance(each, (bool, int, float, str)):
            found.append(repr(each))
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", BAD)
def test_the_operation_that_makes_a_step_not_finite_is_found_and_nothing_changed(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = BAD[name].replace("\nfor step", f"\n{HOOKED}\nfor step", 1)
    # The first step is explained by a backward of its own, which calls hooks.
    text = text.replace("optimizer.zero_grad()", "optimizer.zero_grad(), step == 1 and hooked.clear()")
    alone = bits_of(run(text, watched=False))
    output = capfd.readouterr().out
    program = run(text, watched=True)
    report = program["w"].report()
    lines = program["text"].splitlines()
    line, kind = next((number, part.split(MARK)[1]) for number, part in enumerate(lines, 1) if MARK in part)
    first = report.findings[0]
    assert (first.cause.kind, first.cause.source.line) == (kind, line), report
    assert first.how == "found by computing the loss of this step once more"
    assert len([each for each in report.findings if each.cause.level == "error"]) == 1
    assert capfd.readouterr().out == output
    assert bits_of(program) == alone


OVERFLOWS = {
    "half": "loss = (model(x) + (step == 5) * 1e5).half().sum()  # <- half",
    "sum": "y = model(x).half() + (step == 5) * 5e4\nloss = y.sum()  # <- sum",
    "add": "y = model(x).half() + (step == 5) * 6e4\nloss = (y + 6e4 * (step == 5)).mean()  # <- add",
    "sum of float32": "y = model(x) + (step == 5) * 3e38\nloss = y.sum()  # <- sum",
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_a_loss_that_is_too_large_for_its_type_has_its_line(name: str) -> None:
    program = run(training(LINEAR, OVERFLOWS[name]), watched=True)
    lines = program["text"].splitlines()
    line, op = next((number, part.split(MARK)[1]) for number, part in enumerate(lines, 1) if MARK in part)
    first = program["w"].report().findings[0]
    assert (first.cause.kind, first.cause.op, first.cause.source.line) == ("loss_undefined", op, line)
    assert ("too large for float16" in first.text) == ("half" in program["text"])


CRITIC = """
import torch, gradir
from torch import nn
torch.manual_seed(0)
maker, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
model, optimizer = nn.ModuleList([maker, critic]), [torch.optim.Adam(each.parameters()) for each in (maker, critic)]
for step in range(6):
    fake = maker(torch.randn(8, 4)).detach()
    loss = critic(fake).mean() - critic(torch.randn(8, 2) + 2).mean()
    optimizer[1].zero_grad()
    loss.backward()
    optimizer[1].step()
    optimizer[0].zero_grad()
    (-critic(maker(torch.randn(8, 4))).mean()).backward()
    optimizer[0].step()
"""


def test_a_bias_of_a_critic_whose_gradient_cancels_has_not_vanished() -> None:
    report = run(CRITIC, watched=True)["w"].report()
    assert not report, str(report)


def test_arguments_of_a_watched_program_have_any_names() -> None:
    class Net(torch.nn.Linear):
        def forward(self, module: Any) -> Any:
            return super().forward(module)

    net = Net(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with gradir.watch(net, optimizer) as w:
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer=optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            net(module=torch.ones(1, 2)).sum().backward()
            optimizer.step()
            scheduler.step(1.0)
    report = w.report()
    assert report is not None
    assert (report.count, report.findings) == (3, ())
