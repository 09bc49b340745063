"""Findings of several steps of a watched training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from watched_trainings import errors, watched  # noqa: E402

pytest_plugins = ["watched_trainings"]
pytestmark = pytest.mark.usefixtures("watched_folder")

Read = pytest.CaptureFixture[str]
TRAININGS = Path(__file__).parent / "trainings"


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("net = nn.Sequential(*[m for _ in range(11) for m in (nn.Linear(16, 16), nn.Sigmoid())])", {"vanishing"}),
        ("net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(11)])", set()),
        (
            "net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)); parameters = net[1].parameters()",
            {"in_no_optimizer"},
        ),
    ],
)
def test_possibly_intended_findings_are_information(body: str, kinds: set[str]) -> None:
    Path("train.py").write_text(
        f"import torch\nfrom torch import nn\ntorch.manual_seed(0)\nparameters = None\n{body}\n"
        "opt = torch.optim.Adam(parameters or net.parameters(), 1e-3)\nfor step in range(12):\n    opt.zero_grad()\n"
        "    net(torch.randn(8, 16)).square().mean().backward()\n    opt.step()\n"
    )
    status, lines = watched("train.py")
    assert {line["kind"] for line in lines if line["type"] == "finding" and line["level"] == "info"} == kinds
    assert (status, errors(lines)) == (0, [])


SCALED = """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale={scale})
for step in range(4):
    opt.zero_grad()
    scaler.scale(net(torch.ones(2, 4)).square().mean() + 9).backward()
    {step}
"""


@pytest.mark.parametrize(
    ("step", "op"),
    [
        ("nn.utils.clip_grad_norm_(net.parameters(), 1.0); scaler.step(opt); scaler.update()", "clip_grad_norm_"),
        ("opt.step()", "step"),
        (
            "scaler.unscale_(opt); nn.utils.clip_grad_norm_(net.parameters(), 0.1); scaler.step(opt); scaler.update()",
            "",
        ),
        ("nn.utils.clip_grad_norm_(net.parameters(), float('inf')); scaler.step(opt); scaler.update()", ""),
        ("scaler.unscale_(opt); opt.step(); scaler.update()", ""),
        ("[p.grad.div_(scaler.get_scale()) for p in net.parameters()]; opt.step()", ""),
    ],
)
def test_gradients_that_a_scaler_still_multiplies_are_reported(step: str, op: str) -> None:
    Path("train.py").write_text(SCALED.format(step=step, scale=1024.0))
    found = {(each["kind"], each["op"], each["source"]["line"]) for each in errors(watched("train.py")[1])}
    assert found == ({("still_scaled", op, 10)} if op else set())
    Path("train.py").write_text(SCALED.format(step=step, scale=1.0))
    assert not errors(watched("train.py")[1])


THAWED = """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
net[0].requires_grad_(False)
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-3)
for step in range(14):
    if step == 6:
        net[0].requires_grad_(True)
        {thaw}
    opt.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    opt.step()
"""


def test_parameters_that_a_program_thaws_must_join_an_optimizer() -> None:
    for thaw, found in (
        ("pass", [("in_no_optimizer", 6)]),
        ("opt.add_param_group({'params': net[0].parameters()})", []),
    ):
        Path("train.py").write_text(THAWED.format(thaw=thaw))
        assert [(each["kind"], each["source"]["line"]) for each in errors(watched("train.py")[1])] == found


SET_BACK = """\
import copy
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 1)
mean = copy.deepcopy(net).requires_grad_(False)
old = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(14):
    opt.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    opt.step()
    with torch.no_grad():
        for m, p in zip(mean.parameters(), net.parameters()):
            m.lerp_(p, {share})
    {back}
"""


@pytest.mark.parametrize(
    ("back", "share", "found"),
    [
        ("for m, p in zip(mean.parameters(), net.parameters()): p.data = m.data.clone()", 0.0, [("undone", 16)]),
        ("nn.utils.vector_to_parameters(old.clone(), net.parameters())", 0.0, [("undone", 16)]),
        ("net.load_state_dict(mean.state_dict())", 0.001, [("undone", 16)]),
        # A slow mean is as good as a smaller rate.
        ("net.load_state_dict(mean.state_dict())", 0.2, []),
    ],
)
def test_steps_that_a_program_takes_back_are_reported_at_its_line(back: str, share: float, found: object) -> None:
    Path("train.py").write_text(SET_BACK.format(back=back, share=share))
    assert [(each["kind"], each["source"]["line"]) for each in errors(watched("train.py")[1])] == found


@pytest.mark.parametrize(
    "body",
    [
        # Nothing gives the second model a gradient yet.
        "    net(x).square().mean().backward(); opt.step(); late.zero_grad(); late.step()\n",
        # Reptile steps along the difference of two models.
        "    fast = copy.deepcopy(net); inner = torch.optim.SGD(fast.parameters(), 0.1); inner.zero_grad()\n"
        "    fast(x).square().mean().backward(); inner.step(); opt.zero_grad()\n"
        "    for p, f in zip(net.parameters(), fast.parameters()):\n        p.grad = p.data - f.data\n"
        "    opt.step()\n",
    ],
)
def test_gradients_that_a_program_sets_or_lacks_are_not_called_wiped_or_kept(body: str) -> None:
    Path("train.py").write_text(
        "import copy\nimport torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
        "net, other = nn.Linear(4, 2), nn.Linear(2, 1)\n"
        "opt, late = torch.optim.SGD(net.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)\n"
        f"for step in range(8):\n    x = torch.randn(8, 4)\n    opt.zero_grad()\n{body}"
    )
    assert errors(watched("train.py")[1]) == []


NEVER_GRADED = """\
import copy
import torch
from torch import nn
torch.manual_seed(0)
class Own(torch.optim.Optimizer):
    def step(self):
        pass
net = nn.Linear(4, 1)
opt = {made}
for step in range(10):
    copied = copy.deepcopy(net)
    inner = torch.optim.SGD(copied.parameters(), 0.1)
    copied(torch.randn(8, 4)).square().mean().backward()
    inner.step()
    opt.step()
"""


def test_an_optimizer_that_never_finds_a_gradient_moves_nothing() -> None:
    for made, found in (
        ("torch.optim.SGD(net.parameters(), 0.1)", [("moves_nothing", 9)]),
        # The optimizer of a program or a library may need no gradient.
        ("Own(net.parameters(), {})", []),
    ):
        Path("train.py").write_text(NEVER_GRADED.format(made=made))
        assert [(each["kind"], each["source"]["line"]) for each in errors(watched("train.py")[1])] == found


@pytest.mark.parametrize(("sizes", "kind"), [(range(9), "exploding_gradient"), (range(8, -1, -1), "vanishing")])
def test_norms_are_far_apart_for_many_steps(sizes: range, kind: str) -> None:
    from gradir.frontends.pytorch.watching.movements import compare_norms

    order = {f"layers.{place}": 10.0**-size for place, size in enumerate(sizes)}
    far, near = Counter[str](), dict.fromkeys(order, 1.0)
    found = [cause.kind for step in range(30) for cause in compare_norms(near if step == 5 else order, far)]
    assert found == [kind]
    mixed = Counter[str]()
    assert not [cause for _ in range(30) for cause in compare_norms({**order, "layers.4": 1e9}, mixed)]


ENDED = {
    "detach": ("x = x.detach()", "error", "detach"),
    "replaced": ("net[0] = head if step == 4 else net[0]", "error", "replaced"),
    "frozen": ("net[0].requires_grad_(False)", "info", "frozen"),
    "zero": ("net[0].bias.data.fill_(-99)", "info", "dead factor"),
    "some": ("x = x.detach() if step % 3 else x", "", ""),
}


@pytest.mark.parametrize(("change", "level", "kinds"), ENDED.values(), ids=ENDED)
def test_a_gradient_that_ends_later_is_explained(change: str, level: str, kinds: str) -> None:
    Path("train.py").write_text(
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nhead = nn.Linear(4, 4)\n"
        "net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))\n"
        "opt = torch.optim.Adam(net.parameters(), 1e-3)\nfor step in range(12):\n    opt.zero_grad()\n"
        f"    if step > 3 and {change.startswith('net')}: {change}\n    x = net[:2](torch.rand(8, 4))\n"
        f"    if step > 3 and {change.startswith('x')}: {change}\n"
        "    net[2](x).square().mean().backward()\n    opt.step()\n"
    )
    status, lines = watched("train.py")
    found = sorted((line["kind"], line["level"], line["step"]) for line in lines if line["type"] == "finding")
    assert found == [(each, level, 8) for each in kinds.split()]
    assert status == (level == "error")


def test_it_ends_after_so_many_steps_and_stops_at_what_is_not_finite(capfd: Read) -> None:
    _, lines = watched("--steps", "5", str(TRAININGS / "healthy_mlp.py"))
    assert lines[-1]["steps"] == 5
    fault = str(TRAININGS / "fault_bad_data.py")
    _, lines = watched("--no-replay", fault)
    assert lines[-1]["steps"] == 11
    (found,) = errors(lines)
    assert (found["kind"], found["step"], found["loops"]) == ("loss_not_finite", 12, {"epoch": 0, "i": 11})
    _, lines = watched("--no-replay", "--go-on", fault)
    assert lines[-1]["steps"] == 40
    assert "Step 12 (epoch = 0, i = 11): the loss is NaN or infinite: it is nan" in capfd.readouterr().err


def test_parameters_that_take_longer_to_be_proved_are_no_second_finding() -> None:
    _, lines = watched(str(TRAININGS / "fault_deep_tanh.py"))
    assert [found["kind"] for found in errors(lines)] == ["vanished"]
    assert errors(lines)[0]["names"][:2] == ["inp.weight", "inp.bias"]


CLIPS = {
    "norm": "nn.utils.clip_grad_norm_(net.parameters(), 1.0)",
    "value": "nn.utils.clip_grad_value_(net.parameters(), 0.1)",
    "known norm": "nn.utils.clip_grads_with_norm_(net.parameters(), 1.0, torch.tensor(9.0))",
    "module": "nn.utils.clip_grad.clip_grad_norm_(net.parameters(), 1.0, foreach=False)",
}


@pytest.mark.parametrize("name", CLIPS)
def test_gradients_that_are_clipped_and_never_cleared_are_reported(name: str) -> None:
    if name == "known norm" and not hasattr(nn.utils, "clip_grads_with_norm_"):
        pytest.skip("this torch has no such function")
    for clears in ("", "        if not part: opt.zero_grad(set_to_none=False)\n"):
        Path("train.py").write_text(
            "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nnet = nn.Linear(4, 1)\n"
            "opt = torch.optim.SGD(net.parameters(), lr=0.01)\nfor step in range(8):\n    for part in range(2):\n"
            f"{clears}        net(torch.randn(8, 4)).square().mean().backward()\n"
            f"        {CLIPS[name]}\n    opt.step()\n"
        )
        status, lines = watched("train.py")
        assert (status, [each["kind"] for each in errors(lines)]) == ((0, []) if clears else (1, ["not_zeroed"]))


BY_HAND = {
    "data": ("net = torch.nn.Linear(4, 1)", "net(x)", "for p in net.parameters():\n    p.data -= 0.01 * p.grad", 10),
    "no_grad": (
        "w = torch.randn(4, 1, requires_grad=True)",
        "x @ w",
        "with torch.no_grad():\n    w -= 0.01 * w.grad",
        10,
    ),
    "others": (
        "w = torch.randn(4, 1, requires_grad=True)",
        "x @ w",
        "w = (w - 0.01 * w.grad).detach().requires_grad_()",
        # Nobody knows of the last one.
        9,
    ),
    "every other": (
        "net = torch.nn.Linear(4, 1)",
        "net(x)",
        "if step % 2:\n    for p in net.parameters():\n        p.data.add_(p.grad, alpha=-0.01)",
        5,
    ),
    "not at all": ("net = torch.nn.Linear(4, 1)", "net(x)", "", 0),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_training_without_an_optimizer_is_watched_by_moving_parameters(name: str, capfd: Read) -> None:
    made, output, update, count = BY_HAND[name]
    leaves = "net.parameters()" if "net" in made else "[w]"

    def train(last: str) -> tuple[int, list[dict[str, Any]]]:
        Path("train.py").write_text(
            f"import torch\ntorch.manual_seed(0)\n{made}\nfor step in range(10):\n    x = torch.randn(8, 4)\n"
            f"    loss = ({output} - x.sum(1, keepdim=True)).square(){last}.mean()\n    loss.backward()\n"
            + "".join(f"    {line}\n" for line in update.splitlines())
            + f"    for p in {leaves}:\n        p.grad = None\n"
        )
        return watched("train.py")

    status, lines = train("")
    assert len([line for line in lines if line["type"] == "step"]) == count
    if not count:
        assert status == 2
        assert "never stepped an optimizer in this process; name the script that trains" in capfd.readouterr().err
        return
    found = [line for line in lines if line["type"] == "finding"]
    assert (status, [each["kind"] for each in found], found[0]["level"]) == (0, ["by_hand"], "info")
    assert all(line["norm"] > 0 and line["ratios"][0] > 0 for line in lines if line["type"] == "step")
    status, lines = train(".mul(step != 7).sqrt()")
    assert (status, errors(lines)[0]["kind"], errors(lines)[0]["loops"]) == (1, "nonfinite", {"step": 7})


SUMMED = {
    "summed_graphs": ("total, best = 0.0, None", "total = total + val", "total if best is None or total < best"),
    "kept_graphs": ("seen, best = [], None", "seen.append(val)", "val if best is None or val < best"),
    "carried_graph": ("mean, best = 0.0, None", "mean = smooth(mean, val)", "mean if best is None or mean < best"),
}


@pytest.mark.parametrize("kind", SUMMED)
def test_validation_losses_that_no_backward_can_go_through_are_reported_while_a_function_keeps_them(kind: str) -> None:
    start, line, best = SUMMED[kind]
    Path("train.py").write_text(
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
        "def smooth(mean, val):\n    return 0.9 * mean + 0.1 * val\n"
        f"def fit(net, opt):\n    {start}\n    for step in range(70):\n"
        "        loss = net(torch.randn(8, 4)).pow(2).mean()\n        opt.zero_grad()\n"
        "        loss.backward()\n        opt.step()\n        val = net(torch.randn(8, 4)).pow(2).mean()\n"
        f"        {line}\n        best = {best} else best\n    return best.item()\n"
        "net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))\n"
        "fit(net, torch.optim.SGD(net.parameters(), 0.01))\n"
    )
    status, lines = watched("train.py")
    (found,) = errors(lines)
    assert (status, found["kind"], found["step"]) == (1, kind, 64)
    assert line in Path("train.py").read_text().splitlines()[found["source"]["line"] - 1]


VANISHING = {
    "exactly 0": ("h = inp(x)\nfor _ in range(300):\n    h = cell(torch.zeros(8, 1), h)", "becomes 0", "h = cell"),
    "squares are 0": ("h = inp(x)\nfor _ in range(18):\n    h = h * 0.05", "to 0 at", "h = inp(x)"),
    "in one call": ("_, h = rnn(torch.zeros(8, 300, 1), inp(x)[None])\nh = h[0]", "becomes 0", "rnn("),
    "small factors": ("h = inp(x)\nfor _ in range(40):\n    h = h * 0.05", "becomes 0", "h = h * 0.05"),
    "flat sigmoids": (
        "h = inp(x)\nfor _ in range(90):\n    h = torch.sigmoid(mix(h))",
        "becomes 0",
        "h = torch.sigmoid",
    ),
}


@pytest.mark.parametrize("name", VANISHING)
def test_a_gradient_that_falls_to_nothing_has_vanished(name: str) -> None:
    forward, words, code = VANISHING[name]
    body = "".join(f"    {line}\n" for line in forward.splitlines())
    Path("train.py").write_text(
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
        "inp, cell, mix = nn.Linear(1, 8), nn.RNNCell(1, 8), nn.Linear(8, 8)\n"
        "rnn, head = nn.RNN(1, 8, batch_first=True), nn.Linear(8, 1)\n"
        "used = [*inp.parameters(), *head.parameters()]\nopt = torch.optim.SGD(used, lr=0.01)\n"
        f"for step in range(12):\n    x = torch.randn(8, 1)\n{body}"
        "    loss = (head(h) - 1).pow(2).mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
    )
    status, lines = watched("train.py")
    (found,) = errors(lines)
    assert (status, found["kind"], found["names"][:2]) == (1, "vanished", ["inp.weight", "inp.bias"])
    assert words in found["text"]
    lines_of_code = Path("train.py").read_text().splitlines()
    assert code in lines_of_code[found["source"]["line"] - 1], found
