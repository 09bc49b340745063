"""Trainings by other libraries, unedited and with one fault, and what gradir has for each of them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torchrun import command_on_ranks  # noqa: E402

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402

HEAD = "import torch\nfrom torch import nn\n\ntorch.manual_seed(0)\n"

TRAINER = """\
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
config = GPT2Config(
    n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8, bos_token_id=1, eos_token_id=1, pad_token_id=1
)
lora = LoraConfig(r=2, target_modules=["c_attn", "lm_head"], fan_in_fan_out=True)
model = get_peft_model(GPT2LMHeadModel(config), lora)
arguments = TrainingArguments(
    output_dir="out", max_steps=12, per_device_train_batch_size=2, gradient_accumulation_steps=2, use_cpu=True,
    report_to=[], save_strategy="no", disable_tqdm=True, learning_rate=1e-2, lr_scheduler_type="constant",
)


class Own(Trainer):
    def compute_loss(self, model, inputs, **kwargs):
        inner = model.base_model.model
        hidden = inner.transformer(inputs["input_ids"]).last_hidden_state
        logits = inner.lm_head(hidden)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())


item = {"input_ids": torch.arange(8), "labels": torch.arange(8)}
trainer = Own(model=model, args=arguments, train_dataset=[item] * 8)
trainer.train()
"""

LIGHTNING = """\
import lightning
import torch
from torch import nn


class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.losses = nn.Linear(4, 3), nn.Linear(3, 4), []

    def training_step(self, batch, index):
        code = self.encoder(batch)
        loss = nn.functional.mse_loss(self.decoder(code), batch)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


torch.manual_seed(0)
data = torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=4)
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
model = Lit()
trainer.fit(model, data)
"""

ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch import nn

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
encoder, head = nn.Linear(4, 8), nn.Linear(8, 1)
net = nn.ModuleList([encoder, head])
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
data = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4)
net, optimizer, data = accelerator.prepare(net, optimizer, data)
for batch in data:
    with accelerator.accumulate(net):
        loss = (head(encoder(batch).tanh()) - batch.sum(1, keepdim=True)).square().mean()
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
"""

SCALER = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(4, 8), nn.Linear(8, 1)
parameters = [*encoder.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024)
for step in range(12):
    x = torch.randn(16, 4)
    with torch.autocast("cpu", torch.float16):
        out = head(encoder(x).tanh())
    loss = (out.float() - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


class Training(NamedTuple):
    """A script, the libraries that it needs, and two faults: what stands there, what instead, and the kind."""

    text: str
    needs: tuple[str, ...]
    cut: tuple[str, str]
    slow: tuple[str, str, str, str]

    def check(self) -> str:
        for name in self.needs:
            pytest.importorskip(name)
        return self.text


TRAININGS = {
    "transformers": Training(
        TRAINER,
        ("transformers", "accelerate", "peft"),
        ("lm_head(hidden)", "lm_head(hidden.detach())"),
        ("learning_rate=1e-2", "learning_rate=0.0", "lr_zero", "trainer.train()"),
    ),
    "lightning": Training(
        LIGHTNING,
        ("lightning",),
        ("decoder(code)", "decoder(code.detach())"),
        ("append(loss.item())", "append(loss)", "kept_graphs", "self.losses.append"),
    ),
    "accelerate": Training(
        ACCELERATE,
        ("accelerate",),
        ("encoder(batch).tanh()", "encoder(batch).tanh().detach()"),
        ("        optimizer.zero_grad()\n", "", "not_zeroed", "accelerator.backward"),
    ),
    "scaler": Training(
        SCALER,
        (),
        ("encoder(x).tanh()", "encoder(x).tanh().detach()"),
        ("torch.randn(16, 4)", "torch.randn(16, 4) / (9 - step)", "loss_not_finite", "backward()"),
    ),
}

Read = pytest.CaptureFixture[str]


CALLBACKS = {
    "transformers": ("gradir.integrations.transformers", "Own(model", "Own(callbacks=[callback], model"),
    "lightning": ("gradir.integrations.lightning", "lightning.Trainer(", "lightning.Trainer(callbacks=[callback],"),
}


def line_of(text: str, code: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if code in line)


def watched(text: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of ``gradir watch`` for a script, and its errors."""
    Path("train.py").write_text(text)
    status = main(["watch", "-o", "watch.jsonl", *words, "train.py"])
    lines = [json.loads(line) for line in Path("watch.jsonl").read_text().splitlines()]
    return status, [line for line in lines if line["type"] == "finding" and line["level"] == "error"]


def explained(text: str, capfd: Read) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of ``gradir explain`` for a script, and its errors."""
    Path("train.py").write_text(text)
    capfd.readouterr()
    status = main(["explain", "--format", "json", "-o", "found.json", "train.py"])
    causes = json.loads(Path("found.json").read_text())["causes"]
    return status, [cause for cause in causes if cause["level"] == "error"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", TRAININGS)
def test_an_unedited_script_is_healthy(name: str, capfd: Read) -> None:
    text = TRAININGS[name].check()
    assert watched(text) == (0, [])
    assert explained(text, capfd) == (0, [])


@pytest.mark.parametrize("name", TRAININGS)
def test_a_cut_is_found_at_its_line(name: str, capfd: Read) -> None:
    training = TRAININGS[name]
    text = training.check().replace(*training.cut)
    for status, found in (watched(text), explained(text, capfd)):
        assert status == 1
        assert [(each["kind"], each["source"]["line"]) for each in found] == [("detach", line_of(text, ".detach()"))]


@pytest.mark.parametrize("name", TRAININGS)
def test_a_fault_of_several_steps_is_found_at_its_line(name: str) -> None:
    training = TRAININGS[name]
    old, new, kind, code = training.slow
    text = training.check().replace(old, new)
    status, found = watched(text, "--no-replay")
    assert status == 1
    assert [(each["kind"], each["source"]["line"]) for each in found] == [(kind, line_of(text, code))]


def trained(name: str, *faults: tuple[str, str], callback: Callable[[Any], object] | None = None) -> dict[str, Any]:
    """The variables of a script after it has trained, in this process, with a callback if one is made."""
    training = TRAININGS[name]
    text = training.check()
    for fault in faults:
        text = text.replace(*fault)
    variables: dict[str, Any] = {"__name__": "__main__"}
    if callback is not None:
        module, old, new = CALLBACKS[name]
        text = text.replace(old, new)
        variables["callback"] = callback(importlib.import_module(module))
    Path("train.py").write_text(text)
    exec(compile(text, "train.py", "exec"), variables)
    return variables


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_callback_finds_nothing_in_a_healthy_training_and_changes_no_bit(name: str, capsys: Read) -> None:
    alone = trained(name)
    capsys.readouterr()
    seen = trained(name, callback=lambda library: library.WatchCallback())
    report = seen["callback"].report
    assert report.findings == ()
    assert report.verdict == "Nothing wrong was found in 12 steps."
    assert report.verdict in capsys.readouterr().out
    state, watched_state = (each["model"].state_dict() for each in (alone, seen))
    assert state.keys() == watched_state.keys()
    assert all(torch.equal(state[key], watched_state[key]) for key in state)


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_callback_reports_a_fault_and_ends_the_training_if_asked(name: str) -> None:
    with pytest.warns(gradir.GradirWarning, match=r"detach\(\) cuts"):  # noqa: PT031
        going_on = trained(name, TRAININGS[name].cut, callback=lambda library: library.WatchCallback(stop=False))
        ended = trained(name, TRAININGS[name].cut, callback=lambda library: library.WatchCallback(stop=True))
    reports = [each["callback"].report for each in (going_on, ended)]
    for report in reports:
        assert [finding.cause.kind for finding in report.findings] == ["detach"]
        assert report.findings[0].cause.source.line == line_of(Path("train.py").read_text(), ".detach()")
    assert [report.count for report in reports] == [12, 1]


@pytest.mark.parametrize(
    ("name", "call", "step"),
    [
        ("transformers", "inner.lm_head(hidden)", "self.state.global_step"),
        ("lightning", "self.encoder(batch)", "index"),
    ],
)
def test_a_callback_names_the_operation_of_a_gradient_that_is_infinite(name: str, call: str, step: str) -> None:
    fault = (call, f"({call} * float({step} != 3)).abs().sqrt()")
    with pytest.warns(gradir.GradirWarning, match="sqrt"):
        seen = trained(name, fault, callback=lambda library: library.WatchCallback(stop=True))
    (finding,) = (each for each in seen["callback"].report.findings if each.cause.level == "error")
    assert (finding.cause.op, finding.how) == ("sqrt", "found by computing the loss of this step once more")
    assert finding.cause.source.line == line_of(Path("train.py").read_text(), ".sqrt()")
    assert finding.step == 4


def test_the_callback_of_lightning_explains_a_training_that_raises(capsys: Read) -> None:
    pytest.importorskip("lightning")
    from gradir.integrations.lightning import WatchCallback

    callback = WatchCallback()
    text = LIGHTNING.replace("decoder(code)", "decoder(batch)")
    _, old, new = CALLBACKS["lightning"]
    Path("train.py").write_text(text.replace(old, new))
    with pytest.raises(RuntimeError, match="shapes"), pytest.warns(gradir.GradirWarning, match="raised"):
        exec(compile(Path("train.py").read_text(), "train.py", "exec"), {"__name__": "__main__", "callback": callback})
    assert callback.report is not None
    assert [finding.cause.kind for finding in callback.report.findings] == ["raised"]
    assert callback.report.findings[0].cause.source is not None
    assert callback.report.findings[0].cause.source.line == line_of(text, "decoder(batch)")
    assert callback.report.verdict in capsys.readouterr().out


def test_an_optimizer_that_nobody_named_is_known_from_its_first_step() -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with gradir.watch(net) as w:
        for _ in range(6):
            optimizer.zero_grad()
            net(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
    assert w.report().findings == ()


def test_tensorboard_shows_the_numbers_and_the_findings() -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-untyped]
    from torch.utils.tensorboard import SummaryWriter

    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    writer = SummaryWriter("runs")
    with pytest.warns(gradir.GradirWarning, match="is never cleared"), gradir.watch(net, optimizer) as w:  # noqa: PT031
        w.log_to(writer)
        for _ in range(6):
            net(torch.ones(3, 4)).square().mean().backward()
            optimizer.step()
    writer.close()
    read = event_accumulator.EventAccumulator("runs")
    read.Reload()
    steps = w.report().steps
    for name, values in {
        "loss": [step.loss for step in steps],
        "gradient": [step.norm for step in steps],
        "memory": [step.memory for step in steps],
        "gradient/model": [step.norms[0] for step in steps],
        "update/model": [step.ratios[0] for step in steps],
    }.items():
        scalars = read.Scalars(f"gradir/{name}")
        assert [scalar.step for scalar in scalars] == [1, 2, 3, 4, 5, 6]
        assert [scalar.value for scalar in scalars] == pytest.approx(values)
    (found,) = read.Tensors("gradir/finding/text_summary")
    assert found.step == 4
    assert b"is never cleared" in found.tensor_proto.string_val[0]


SHARDED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
encoder, middle, head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)
net = nn.Sequential(encoder, nn.Tanh(), middle, nn.Tanh(), head)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in (encoder, middle, head, net):
    fully_shard(layer, mesh=mesh)
outer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)
inner = torch.optim.SGD(middle.parameters(), lr=0.0)
torch.manual_seed(dist.get_rank())
for step in range(12):
    outer.zero_grad()
    inner.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    outer.step()
    inner.step()
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no processes here")
def test_a_sharded_training_is_watched_on_each_rank() -> None:
    # The single row of the head is on the first rank, so the second has parameters without values.
    if not hasattr(importlib.import_module("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("torch has no fully_shard")
    Path("train.py").write_text(SHARDED)
    done = command_on_ranks(["watch", "-o", "watch.{rank}.jsonl", "train.py"], 2, Path.cwd())
    by_rank = [[json.loads(line) for line in Path(f"watch.{rank}.jsonl").read_text().splitlines()] for rank in range(2)]
    # torchrun may end one rank when the other exits with status 1.
    whole = [lines for lines in by_rank if lines[-1]["type"] == "end"]
    assert whole, done.stdout
    for lines in whole:
        found = [(line["kind"], line["source"]["line"]) for line in lines if line["type"] == "finding"]
        assert found == [("lr_zero", line_of(SHARDED, "inner = "))], done.stdout
        assert lines[-1]["steps"] == 24
