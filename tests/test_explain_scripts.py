"""``gradir explain SCRIPT``: the backward of an unedited script, or what it raises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from training_scripts import GAN, HF, LIGHTNING, LOOP

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402
from gradir.explanations.from_cuts import explain_cuts as explain_file  # noqa: E402
from gradir.frontends.pytorch import private  # noqa: E402

Read = pytest.CaptureFixture[str]

HEAD = "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
NET = (
    HEAD
    + """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.b(self.a(x).relu())


net = Net()
"""
)


def explained(text: str, *words: str, capfd: Read) -> dict[str, Any]:
    """What ``gradir explain`` says of a script, in JSON, and its exit status."""
    Path("train.py").write_text(text)
    status = main(["explain", "--format", "json", "train.py", *words])
    said = capfd.readouterr()
    assert said.out, said.err
    return {**json.loads(said.out), "status": status}


def line_of(text: str, code: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if code in line)


def errors(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (each["kind"], each.get("source", {}).get("line", 0)) for each in found["causes"] if each["level"] == "error"
    ]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "cut", ["self.a(x).detach().relu()", "torch.tensor(self.a(x).tolist())", "self.a(x).data.relu()"]
)
def test_the_line_of_a_cut_in_an_unedited_loop(cut: str, capfd: Read) -> None:
    text = LOOP.replace("self.a(x).relu()", cut)
    found = explained(text, "--width", "5", capfd=capfd)
    assert found["status"] == 1
    assert [line for _, line in errors(found)] == [line_of(text, cut)]
    assert {name for name, status in found["statuses"].items() if status == "cut"} == {"a.weight", "a.bias"}


@pytest.mark.parametrize("script", [LOOP, LIGHTNING, GAN], ids=["loop", "closure", "gan"])
def test_a_healthy_script_has_no_error(script: str, capfd: Read) -> None:
    found = explained(script, capfd=capfd)
    assert found["status"] == 0
    assert not errors(found)


def test_models_beside_the_explained_one_are_reported_by_their_variables(capfd: Read) -> None:
    text = "first, second, third = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)\nx = torch.ones(3, 2)\n"
    text += "(first(x) * third(second(x)).detach()).sum().backward()\n"
    (cause,) = explained(HEAD + text, capfd=capfd)["causes"]
    told = "4 parameters of second, third that the recorded model does not have"
    assert (cause["kind"], cause["level"], cause["text"].partition(": ")[2]) == ("detach", "note", told)


def test_a_teacher_that_the_script_builds_is_known_by_its_mode(capfd: Read) -> None:
    text = HEAD + "pair = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).eval()])\nx = torch.ones(3, 2)\n"
    text += "(pair[0](x) - pair[1](x).detach()).square().mean().backward()\n"
    (cause,) = explained(text, capfd=capfd)["causes"]
    assert (cause["kind"], cause["level"], cause["pattern"]) == ("detach", "info", "teacher")


def test_arguments_belong_to_the_script_and_options_at_the_end_to_gradir(capfd: Read) -> None:
    Path("train.py").write_text(LOOP)
    assert main(["explain", "train.py", "--width", "7", "--step", "2"]) == 0
    assert "All 4 parameters get a gradient." in capfd.readouterr().out
    assert main(["explain", "--step", "2", "train.py", "--", "--steps", "1"]) == 2
    assert capfd.readouterr().err.endswith("called backward 1 time, and --step is 2: there is nothing to explain\n")


def test_the_loss_may_be_made_as_the_file_is_imported(capfd: Read) -> None:
    text = NET + "hidden = net.a(torch.ones(2, 3)).detach()\nloss = net.b(hidden).sum()\n"
    Path("post.py").write_text(text)
    assert main(["explain", "--format", "json", "post.py:loss"]) == 1
    assert errors(json.loads(capfd.readouterr().out)) == [("detach", line_of(text, "detach"))]
    assert not private.dispatch_modes(), "the recording has ended"
    # As a script it never comes to a backward.
    assert main(["explain", "post.py"]) == 2
    assert "e.g. post.py:" in capfd.readouterr().err


def test_a_loss_without_a_graph_is_explained_before_its_backward_raises(capfd: Read) -> None:
    text = NET + "loss = net(torch.ones(2, 3)).detach().sum()\nloss.backward()\n"
    assert errors(explained(text, capfd=capfd)) == [("detach", line_of(text, "detach"))]


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        ("loss = net(torch.ones(2, 5)).sum()\nloss.backward()\n", "raised", "self.b(self.a(x)"),
        ("h = net.a(torch.ones(2, 3)).sigmoid()\nh += 1\nh.sigmoid_()\nh.sum().backward()\n", "inplace", "h += 1"),
        (
            "h = torch.zeros(2, 3)\nfor _ in range(3):\n    h = net(h).expand(2, 3).tanh()\n    h.sum().backward()\n",
            "freed",
            "h = net(h)",
        ),
    ],
)
def test_what_a_script_raises_is_explained_at_its_line(body: str, kind: str, code: str, capfd: Read) -> None:
    text = NET + body
    found = errors(explained(text, capfd=capfd))
    assert found[:1] == [(kind, line_of(text, code))]


TWO_MODELS = """\
g, d = nn.Linear(3, 4), nn.Linear(4, 1)
of_g, of_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
for _ in range(2):
    fake = g(torch.randn(5, 3))
    of_d.zero_grad()
    (d(fake.detach()).mean() - d(torch.randn(5, 4)).square().mean()).backward()
    of_d.step()
    of_g.zero_grad()
    (-d(fake{cut}).mean()).backward()
    of_g.step()
"""


def test_the_optimizer_is_the_one_that_the_backward_is_for(capfd: Read) -> None:
    first = explained(HEAD + TWO_MODELS.format(cut=""), capfd=capfd)
    assert not errors(first)
    text = HEAD + TWO_MODELS.format(cut=".detach()")
    assert not errors(explained(text, "--step", "1", capfd=capfd))
    assert errors(explained(text, "--step", "2", capfd=capfd)) == [("detach", line_of(text, "-d(fake"))]


def test_an_optimizer_made_twice_of_one_model_is_reported_and_not_the_cut(capfd: Read) -> None:
    text = HEAD + TWO_MODELS.format(cut="").replace("Adam(d.par", "Adam(g.par")
    assert errors(explained(text, capfd=capfd)) == [("not_in_optimizer", line_of(text, "of_g, of_d ="))]


def test_a_model_that_stays_frozen_is_reported_where_it_was_frozen(capfd: Read) -> None:
    for freeze in ("d.requires_grad_(False)", "[setattr(p, 'requires_grad', False) for p in d.parameters()]"):
        text = HEAD + TWO_MODELS.format(cut="").replace("    fake =", f"    {freeze}\n    fake =")
        text = text.replace(
            "torch.randn(5, 3))\n", "torch.randn(5, 3))\n    of_g.zero_grad(); d(fake).sum().backward()\n"
        )
        text = text.replace("    of_d.zero_grad()\n", "    of_g.step(); of_d.zero_grad()\n")
        assert errors(explained(text, "--step", "2", capfd=capfd)) == [("frozen", line_of(text, freeze))]


def test_an_optimizer_of_a_copy_is_reported_where_it_is_made(capfd: Read) -> None:
    text = NET + (
        "import copy\n"
        "optimizer = torch.optim.SGD(copy.deepcopy(net).parameters(), 0.1)\n"
        "net(torch.ones(2, 3)).sum().backward()\n"
    )
    ((_, line),) = errors(explained(text, capfd=capfd))
    assert line == line_of(text, "optimizer = ")


@pytest.mark.parametrize("scale", ["2.0**127", "1.0"])
def test_the_scale_of_a_loss_is_no_alarm(scale: str, capfd: Read) -> None:
    text = NET + (
        f"scaler = torch.amp.GradScaler('cpu', init_scale={scale})\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "scaler.scale(net(torch.ones(2, 3)).square().mean() * 1e3).backward()\n"
    )
    assert explained(text, capfd=capfd)["status"] == 0
    trap = text.replace("square()", "sub(net(torch.ones(2, 3))).sqrt()").replace("2.0**127", "2.0")
    assert explained(trap, capfd=capfd)["status"] == 1


def test_a_trainer_is_explained_as_it_is(capfd: Read) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    assert not errors(explained(HF, capfd=capfd))


def test_a_run_with_the_flow_can_be_explained(capfd: Read) -> None:
    text = NET + "net.b(net.a(torch.ones(2, 3)).detach()).sum().backward()\n"
    Path("train.py").write_text(text)
    assert main(["run", "--flow", "-o", "loss.gir", "train.py"]) == 0
    capfd.readouterr()
    assert main(["explain", "--format", "json", "loss.gir"]) == 1
    assert errors(json.loads(capfd.readouterr().out)) == [("detach", line_of(text, "detach"))]


def test_the_file_of_a_run_has_the_model_that_its_optimizer_trains(capfd: Read) -> None:
    text = HEAD + TWO_MODELS.format(cut=".detach()")
    Path("train.py").write_text(text)
    for step, status, names in (("1", 0, {"weight", "bias"}), ("2", 1, {"g.weight", "g.bias", "d.weight", "d.bias"})):
        assert main(["run", "--flow", "--step", step, "-o", "loss.gir", "train.py"]) == 0
        capfd.readouterr()
        assert main(["explain", "--format", "json", "loss.gir"]) == status
        found = json.loads(capfd.readouterr().out)
        assert found["statuses"].keys() == names
        assert errors(found) == [("detach", line_of(text, "-d(fake"))] * status
        assert main(["run", "--step", step, "-o", "plain.gir", "train.py"]) == 0
        assert explain_file(gradir.load("plain.gir")).statuses.keys() == names
        capfd.readouterr()


def test_a_class_that_cannot_be_hashed_is_no_trouble(capfd: Read) -> None:
    text = NET + (
        "class Meta(type):\n"
        "    __hash__ = None\n"
        "class Unhashable(metaclass=Meta):\n"
        "    pass\n"
        "there = Unhashable()\n"
        "there.itself = there\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "net(torch.ones(2, 3)).sum().backward()\n"
    )
    assert explained(text, capfd=capfd)["status"] == 0


def test_options_of_a_program_are_refused_before_a_script(capfd: Read) -> None:
    Path("train.py").write_text(LOOP)
    assert main(["explain", "--input", "float32[1]", "train.py"]) == 2
    assert "--input is for a program" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        main(["explain", "--step", "0", "train.py"])
    assert "expected integer, 1 or more, not '0'" in capfd.readouterr().err


PARALLEL = """
import os, torch.distributed as dist
os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=0, world_size=1)
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
{wrapped}
torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.randn(8, 3)).square().mean().backward()
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no processes here")
@pytest.mark.parametrize(
    ("wrapped", "kinds"),
    [
        ("net = DistributedDataParallel(net)", []),
        ("net.norm = nn.BatchNorm1d(3); net = DistributedDataParallel(net, find_unused_parameters=True)", []),
        ('fully_shard(net.a, mesh=init_device_mesh("cpu", (1,)))', []),
        ('fully_shard(net, mesh=init_device_mesh("cpu", (1,)))', []),
        (
            "shadow = nn.Parameter(torch.ones(3)); mean = shadow.detach() * 2; net = DistributedDataParallel(net)",
            ["detach"],
        ),
    ],
)
def test_what_parameters_were_before_a_wrapper_set_them_is_not_reported(
    wrapped: str, kinds: list[str], capfd: Read
) -> None:
    text = NET + PARALLEL.format(wrapped=wrapped)
    if kinds:
        text = text.replace("net(torch.randn(8, 3))", "(net(torch.randn(8, 3)) * mean.sum())")
    found = explained(text, "--all", capfd=capfd)
    assert [
        each["kind"] for each in found["causes"] if each["kind"] not in {"unused", "rounding", "ddp_unused"}
    ] == kinds


def test_the_number_of_a_loss_is_not_read_by_the_program(capfd: Read) -> None:
    text = f"""{HEAD}
one, other, x = nn.Linear(3, 1), nn.Linear(3, 1), torch.randn(8, 3)
optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.1)
for _ in range(2):
    for net in (one, other):
        net(x).square().mean().backward()
    optimizer.step()
"""
    found = explained(text, capfd=capfd)
    assert (found["status"], [each["kind"] for each in found["causes"] if each["kind"] == "exit"]) == (0, [])


BY_HAND = NET + "ways = [*net.parameters()]\nloss = net(torch.ones(2, 3)).square().sum()\n"
GRADS = "grads = torch.autograd.grad(loss, ways, allow_unused=True)\n"
OPTIMIZER = "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
FED = "for p, g in zip(ways, grads):\n    p.grad = g\noptimizer.step()\n"


@pytest.mark.parametrize(
    "text", [f"{BY_HAND}{GRADS}", f"{BY_HAND}{OPTIMIZER}{GRADS}{FED}"], ids=["by hand", "optimizer"]
)
def test_a_call_of_autograd_grad_that_trains_is_a_backward(text: str, capfd: Read) -> None:
    assert not errors(explained(text, capfd=capfd))
    text = text.replace("self.a(x).relu()", "self.a(x).detach()")
    assert errors(explained(text, capfd=capfd)) == [("detach", line_of(text, "detach"))]


@pytest.mark.parametrize(
    "clear",
    [
        *("optimizer.zero_grad()", "net.zero_grad()", "optimizer.zero_grad(set_to_none=False)"),
        "for each in net.parameters(): each.grad = None",
    ],
)
def test_gradients_cleared_before_the_step_of_a_script(clear: str, capfd: Read) -> None:
    text = f"{BY_HAND}{OPTIMIZER}loss.backward()\n{clear}\noptimizer.step()\n"
    found = explained(text, capfd=capfd)
    assert errors(found) == [("cleared", line_of(text, clear))]
    assert set(found["statuses"].values()) == {"cleared"}
    text = f"{BY_HAND}{OPTIMIZER}loss.backward()\noptimizer.step()\n{clear}\n"
    assert not errors(explained(text, capfd=capfd))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("loss = (net(x) * 0 + net.b.bias.detach()).sum()", "weighed_out"),
        ("loss = torch.softmax(net(x), 1).clamp(max=0.9).log().sum() + net(x).sum() * 0", "one_entry"),
    ],
)
def test_a_gradient_that_stays_zero_in_a_script(line: str, kind: str, capfd: Read) -> None:
    text = f"{NET}{OPTIMIZER}x = torch.ones(2, 3)\n{line}\nloss.backward()\n"
    assert (kind, line_of(text, line)) in errors(explained(text, capfd=capfd))


@pytest.mark.parametrize(
    "copy",
    [
        "head.weight.data.copy_(embed.weight.data)",
        "head.weight = nn.Parameter(embed.weight.detach().clone())",
        "head.weight = nn.Parameter(embed.weight.clone())",
        "head.weight = copy.deepcopy(embed.weight)",
        "head.weight = copy.deepcopy(embed).weight",
    ],
)
def test_the_line_that_copies_a_tied_weight(copy: str, capfd: Read) -> None:
    text = f"{HEAD}import copy\nembed, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)\n{copy}\n"
    text += "model = nn.Sequential(embed, head)\nmodel(torch.arange(5)).logsumexp(-1).sum().backward()\n"
    assert errors(explained(text, capfd=capfd)) == [("untied", line_of(text, copy))]


def test_parts_of_a_weight_that_become_parameters_lose_it_at_each_line(capfd: Read) -> None:
    # The initialization of the weight wrote to the storage that its parts share.
    parts = "low = nn.Parameter(self.a.weight[:2])\n        high = nn.Parameter(self.a.weight[2:])"
    text = NET.replace(
        "return self.b(self.a(x).relu())", f"{parts}\n        return x @ low.t() @ high + self.a.bias[0]"
    )
    found = explained(f"{text}net(torch.ones(2, 3)).sum().backward()\n", capfd=capfd)
    assert errors(found) == [("new_leaf", line_of(text, f"{name} = nn.Parameter")) for name in ("low", "high")]


HEADS = (
    f"{HEAD}net = nn.ModuleDict(dict(a=nn.Linear(3, 4), b=nn.Linear(4, 1), c=nn.Linear(4, 1)))\n"
    "x = torch.ones(2, 3)\nh = net['a'](x)\n"
)
TRAINED = f"{HEADS}optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
CUT = "net['c'](h.detach()).sum().backward()\n"
UNCUT = "net['b'](h).sum().backward()\n"
APART = (
    f"{HEADS}one = torch.optim.SGD(net['a'].parameters(), lr=0.1)\n"
    "other = torch.optim.SGD([*net['b'].parameters(), *net['c'].parameters()], lr=0.1)\nnet.zero_grad()\n"
)


@pytest.mark.parametrize(
    "text",
    [
        f"{TRAINED}{CUT}{UNCUT}optimizer.step()\n",
        f"{TRAINED}{UNCUT}{CUT}optimizer.step()\n",
        f"{APART}{CUT}other.step()\nnet.zero_grad()\nnet['b'](net['a'](x)).sum().backward()\none.step()\n",
    ],
)
def test_a_cut_is_no_error_if_the_step_has_the_gradient_or_lacks_the_parameter(text: str, capfd: Read) -> None:
    assert not errors(explained(text, capfd=capfd))


@pytest.mark.parametrize(
    "text",
    [
        f"{TRAINED}{CUT}{CUT}optimizer.step()\n",
        f"{APART}{CUT}other.step()\none.step()\n",
        f"{TRAINED}{CUT}",
    ],
)
def test_a_cut_is_an_error_if_a_step_lacks_the_gradient_or_never_comes(text: str, capfd: Read) -> None:
    assert errors(explained(text, capfd=capfd)) == [("detach", line_of(text, "h.detach"))]


def test_an_optimizer_that_gets_gradients_of_a_copy_by_hand_is_no_error(capfd: Read) -> None:
    text = (Path(__file__).parent / "trainings" / "healthy_first_order_maml.py").read_text()
    assert not errors(explained(text, capfd=capfd))
    without = text.replace("p.grad = adapted.grad.clone()", "adapted.grad.clone()")
    assert ("copied", line_of(text, "copy.deepcopy")) in errors(explained(without, capfd=capfd))


@pytest.mark.parametrize("made", ["nn.Linear(4, 1)", "nn.Linear(4, 1).to(x.dtype)"])
def test_a_layer_that_the_forward_makes_is_reported_there_if_the_optimizer_lacks_it(made: str, capfd: Read) -> None:
    text = NET.replace("        return self.b(", f"        self.b = self.b or {made}\n        return self.b(")
    text = text.replace(", self.b = nn.Linear(3, 4), nn.Linear(4, 1)", ", self.b = nn.Linear(3, 4), None")
    text += "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nnet(torch.ones(2, 3)).sum().backward()\n"
    assert errors(explained(text, capfd=capfd)) == [("not_in_optimizer", line_of(text, made))]
