"""``gradir watch``: trainings with one fault each, healthy ones, and what a watched training leaves as it is."""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim import Optimizer  # noqa: E402
from torchrun import command_on_ranks  # noqa: E402
from watched_trainings import errors, watched  # noqa: E402

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402
from gradir.frontends.pytorch.watching import old_graphs  # noqa: E402
from gradir.markdown import code_span  # noqa: E402

TRAININGS = Path(__file__).parent / "trainings"
FAULTS = sorted(TRAININGS.glob("fault_*.py"))
HEALTHY = sorted(TRAININGS.glob("healthy_*.py"))
MARK = "  # <- "

pytest_plugins = ["pytester", "watched_trainings"]
pytestmark = pytest.mark.usefixtures("watched_folder")

Read = pytest.CaptureFixture[str]


@pytest.mark.parametrize("script", FAULTS, ids=lambda script: script.stem)
def test_a_training_with_one_fault_has_it_reported_at_its_line(script: Path, capfd: Read) -> None:
    text = script.read_text()
    line, kind = next((number, part.split(MARK)[1]) for number, part in enumerate(text.splitlines(), 1) if MARK in part)
    status, lines = watched(str(script))
    assert status == 1, capfd.readouterr().err
    found = errors(lines)
    assert (kind, line) in {(each["kind"], each["source"]["line"]) for each in found}
    assert len(found) <= 2
    assert lines[-1]["level"] == "error"
    assert lines[-1]["verdict"] in capfd.readouterr().err


@pytest.mark.parametrize("script", HEALTHY, ids=lambda script: script.stem)
def test_a_healthy_training_has_no_error_and_stays_as_it_is(script: Path, capfd: Read) -> None:
    def state(names: dict[str, Any]) -> str:
        digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
        for name in sorted(names):
            values = names[name].state_dict() if isinstance(names[name], (nn.Module, Optimizer)) else {}
            waiting: list[Any] = [values]
            while waiting:
                each = waiting.pop()
                waiting += each.values() if isinstance(each, dict) else each if isinstance(each, list) else []
                if isinstance(each, torch.Tensor):
                    digest.update(each.detach().contiguous().float().numpy().tobytes())
        return digest.hexdigest()

    ending = "\nimport gradir_state\ngradir_state.seen.append(gradir_state.of(globals()))\n"
    Path("train.py").write_text(script.read_text() + ending)
    seen: list[str] = []
    sys.modules["gradir_state"] = type(sys)("gradir_state")
    vars(sys.modules["gradir_state"]).update(seen=seen, of=state)
    try:
        runpy.run_path("train.py")
        alone = capfd.readouterr().out
        status, lines = watched("train.py")
        outputs = [capfd.readouterr().out]
        # In a program, which has to name something, all is noted from which a loss could be computed once more.
        with gradir.watch(nn.Identity()) as w:
            runpy.run_path("train.py")
        outputs.append(capfd.readouterr().out)
    finally:
        del sys.modules["gradir_state"]
    assert (status, errors(lines), bool(w.report())) == (0, [], False)
    assert seen[1:] == [seen[0]] * 2
    assert outputs == [alone] * 2


def test_a_mended_training_is_healthy() -> None:
    mends = {
        "fault_in_function": ("append(loss)", "append(loss.item())"),
        "fault_sum_in_function": ("running + loss", "running + loss.item()"),
        "fault_nozero": ("loss.backward()", "opt.zero_grad(); loss.backward()"),
        "fault_manual_broadcast": ("net(x) - y", "net(x).squeeze(1) - y"),
        "fault_bf16": ("lr=1e-6", "lr=1e-1"),
        "fault_clip0": ("parameters(), 0.0)", "parameters(), 1.0)"),
        "fault_softmax_ce": (", nn.Softmax(dim=1)", ""),
        "fault_explode": ("lr=5.0", "lr=0.01"),
        "fault_opt_before_change": ("net[2] = nn.Linear(8, 5)", "net[2].weight.data.mul_(2)"),
    }
    for name, (old, new) in mends.items():
        text = (TRAININGS / f"{name}.py").read_text()
        if name == "fault_sum_in_function":
            text = text.replace(".item())\n", ")\n")
        assert old in text
        text = text.replace(old, new).replace("torch.randint(0, 5", "torch.randint(0, 3")
        Path("mended.py").write_text(text)
        status, lines = watched("mended.py")
        assert (name, status, errors(lines)) == (name, 0, [])


def test_a_step_is_counted_and_its_numbers_are_those_of_the_training() -> None:
    Path("train.py").write_text(
        "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Linear(2, 1, bias=False)\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.5)\n"
        "for epoch in range(2):\n    for step in range(3):\n"
        "        opt.zero_grad()\n        net(torch.ones(1, 2)).sum().backward()\n        opt.step()\n"
    )
    _, lines = watched("train.py")
    steps = [line for line in lines if line["type"] == "step"]
    assert [line["number"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert all(line["norm"] == pytest.approx(2**0.5) and line["norms"] == [line["norm"]] for line in steps)
    first, second = (line["loss"] for line in steps[:2])
    assert second == pytest.approx(first - 1)
    assert all(line["memory"] > 0 for line in steps)
    assert lines[-1]["verdict"] == "Nothing wrong was found in 6 steps."


def test_owners_of_graphs_are_searched_only_at_counted_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    causes = old_graphs.GraphCounter.causes

    def counted(self: old_graphs.GraphCounter, *words: Any) -> Any:
        looked.append(1)
        return causes(self, *words)

    monkeypatch.setattr(old_graphs.GraphCounter, "causes", counted)
    # Behind the method is a list that is in no variable.
    Path("train.py").write_text(
        "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Linear(2, 1)\nkeep = [].append\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)\n"
        "for step in range(100):\n    loss = net(torch.randn(4, 2)).abs().mean()\n"
        "    opt.zero_grad()\n    loss.backward()\n    opt.step()\n    keep(loss)\n"
    )
    assert watched("train.py")[0] == 0
    assert 1 < len(looked) < 8


def test_an_interrupted_training_has_its_verdict(capfd: Read) -> None:
    text = (TRAININGS / "fault_nozero.py").read_text()
    Path("train.py").write_text(f"{text}\nraise KeyboardInterrupt\n")
    status, lines = watched("train.py")
    assert status == 130
    assert [found["kind"] for found in errors(lines)] == ["not_zeroed"]
    assert (lines[-1]["type"], lines[-1]["ended"]) == ("end", "the script was interrupted")
    assert lines[-1]["verdict"] in capfd.readouterr().err


def test_arguments_and_the_status_of_a_script_that_fails_are_its_own(capfd: Read) -> None:
    Path("train.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(7)\n")
    status, _ = watched("train.py", "--lr", "1")
    assert (status, capfd.readouterr().out) == (7, "['--lr', '1']\n")
    Path("train.py").write_text("raise KeyError('x')\n")
    status, _ = watched("--no-replay", "train.py")
    assert status == 1
    assert "KeyError" in capfd.readouterr().err
    assert main(["watch", "absent.py"]) == 2
    assert main(["watch", "-o", "watch.txt", "train.py"]) == 2
    assert "name a file that ends in .html, .jsonl or .md" in capfd.readouterr().err


def test_a_training_in_a_program_is_watched_and_warned_of() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scalars: dict[str, list[float]] = {}
    texts: list[str] = []

    class Writer:
        def add_scalar(self, tag: str, value: float, step: int) -> None:
            scalars.setdefault(tag, []).append(value)

        def add_text(self, tag: str, text: str, step: int) -> None:
            texts.append(text)

    with pytest.warns(gradir.GradirWarning, match="is never cleared"), gradir.watch(model, optimizer) as w:  # noqa: PT031
        w.log_to(Writer())
        for _ in range(6):
            model(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()
    report = w.report()
    assert report
    assert [finding.cause.kind for finding in report.findings] == ["not_zeroed"]
    assert report.modules == ("",)
    assert len(scalars["gradir/loss"]) == len(scalars["gradir/gradient"]) == report.count == 6
    assert set(scalars) == {
        f"gradir/{name}" for name in ("loss", "gradient", "memory", "gradient/model", "update/model")
    }
    assert len(texts) == 1
    assert str(report).startswith(report.verdict)
    assert report.to("markdown").startswith(f"**{report.verdict_as(code_span)}**")


def test_the_fixture_fails_with_the_verdict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch

        def trained(gradir_watch, clears):
            model = torch.nn.Linear(3, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with gradir_watch(model, optimizer):
                for _ in range(6):
                    if clears:
                        optimizer.zero_grad()
                    model(torch.ones(2, 3)).square().mean().backward()
                    optimizer.step()

        def test_good(gradir_watch):
            trained(gradir_watch, True)

        def test_bad(gradir_watch):
            trained(gradir_watch, False)
        """
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*is never cleared*"])


def test_a_fault_of_gradir_leaves_the_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradir.frontends.pytorch.watching.parameters import Parameters

    def fails(*_: object) -> None:
        raise ZeroDivisionError("of gradir's own")

    monkeypatch.setattr(Parameters, "sample", fails)
    monkeypatch.delenv("GRADIR_DEBUG", raising=False)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    with pytest.warns(gradir.GradirWarning, match="not watched"), gradir.watch(model, optimizer) as w:  # noqa: PT031
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()
    assert not torch.equal(model.weight, before)
    assert w.report().count == 0


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no processes here")
def test_a_training_on_several_ranks_is_watched() -> None:
    Path("train.py").write_text(
        "import torch, torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"
        "dist.init_process_group('gloo')\ntorch.manual_seed(dist.get_rank())\n"
        "net = DistributedDataParallel(torch.nn.Linear(4, 1))\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for step in range(6):\n    opt.zero_grad()\n"
        "    net(torch.randn(8, 4)).square().mean().backward()\n    opt.step()\n"
        "dist.destroy_process_group()\n"
    )
    done = command_on_ranks(["watch", "-o", "watch.{rank}.jsonl", "train.py"], 2, Path.cwd())
    assert done.returncode == 0, done.stdout
    norms = []
    for rank in range(2):
        lines = [json.loads(line) for line in Path(f"watch.{rank}.jsonl").read_text().splitlines()]
        assert lines[-1]["verdict"] == "Nothing wrong was found in 6 steps."
        norms.append([line["norm"] for line in lines if line["type"] == "step"])
    assert norms[0] == pytest.approx(norms[1])


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no processes here")
@pytest.mark.parametrize(
    ("seed", "wrap", "kinds"), [("0", "", ["parted"]), ("dist.get_rank()", "", []), ("0", "DDP", [])]
)
def test_replicas_that_part_are_reported(seed: str, wrap: str, kinds: list[str]) -> None:
    Path("train.py").write_text(
        "import torch, torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
        f"dist.init_process_group('gloo')\ntorch.manual_seed({seed})\nnet = {wrap}(torch.nn.Linear(4, 1))\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\ntorch.manual_seed(dist.get_rank())\n"
        "for step in range(9):\n    opt.zero_grad()\n    net(torch.randn(8, 4)).square().mean().backward()\n"
        "    opt.step()\n    dist.barrier()\ndist.destroy_process_group()\n"
    )
    done = command_on_ranks(["watch", "-o", "watch.{rank}.jsonl", "train.py"], 2, Path.cwd())
    lines = [json.loads(line) for line in Path("watch.0.jsonl").read_text().splitlines()]
    assert [each["kind"] for each in errors(lines)] == kinds, done.stdout
    if kinds:
        assert "after step 1 rank 1 differs from rank 0" in errors(lines)[0]["text"]
        assert errors(lines)[0]["source"]["line"] == 10


def test_the_graph_of_a_step_with_a_finding_is_captured_and_linked(capfd: Read) -> None:
    script = str(TRAININGS / "fault_bad_data.py")
    assert main(["watch", "-o", "watch.html", "--capture-on-finding", "graphs", script]) == 1
    graph = gradir.load("graphs/step-12.gir")
    assert {name for node in graph.nodes.values() for name in node.names} >= {"weight", "bias"}
    assert 'href="graphs/step-12.html"' in Path("watch.html").read_text()
    assert Path("graphs/step-12.html").read_text().startswith("<!")
    assert main(["watch", "--no-replay", "--capture-on-finding", "graphs", script]) == 2
    assert "runs the script again" in capfd.readouterr().err
