"""``gradir diff --run``: both programs with equal weights and inputs, and what differs of loss and gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked_python")

from unseen_edits import MODEL, edit_model  # noqa: E402

from gradir import capturing, claims  # noqa: E402
from gradir.cli.main import main  # noqa: E402
from gradir.frontends.pytorch.diff_run import run_alike  # noqa: E402
from gradir.protocols import Distance  # noqa: E402
from gradir.request import CaptureRequest  # noqa: E402

nn = torch.nn
Read = pytest.CaptureFixture[str]
WIDER = MODEL.replace("nn.Linear(8, 3))", "nn.Linear(8, 3), nn.Linear(3, 3))")
RENAMED = MODEL.replace("self.qkv", "self.both")


def program(make: Callable[[], nn.Module], scale: float = 1.0, draws: int = 0) -> Callable[[], Any]:
    def loss() -> Any:
        torch.rand(draws)
        model = make()
        return model, (model(torch.rand(4, 3)) * scale).sum()

    return loss


def alike(a: Callable[[], Any], b: Callable[[], Any], folder: Path, **pairs: str) -> Any:
    path = str(folder / "run")
    run_alike(CaptureRequest(target=a, is_program=True), path)
    return run_alike(CaptureRequest(target=b, is_program=True), path, pairs)


def test_equal_programs_compute_the_same_however_they_were_initialized(tmp_path: Path) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2))

    found = alike(program(make), program(make, draws=7), tmp_path)
    assert (found.paired, found.left, found.own) == (6, (), ())
    assert found.outputs == (Distance(0.0, 0.0),)
    assert {*found.gradients.values()} == {Distance(0.0, 0.0)}
    assert len(found.gradients) == 6


def test_the_differences_are_those_of_the_values(tmp_path: Path) -> None:
    found = alike(program(lambda: nn.Linear(3, 2)), program(lambda: nn.Linear(3, 2), scale=1.5), tmp_path)
    assert found.outputs[0].relative == pytest.approx(0.5)
    assert found.gradients["bias"] == Distance(pytest.approx(2.0), pytest.approx(0.5))


def test_a_gradient_that_one_program_lacks_is_named(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self, cut: bool) -> None:
            super().__init__()
            self.enc, self.head, self.cut = nn.Linear(3, 3), nn.Linear(3, 1), cut

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.enc(x)
            return self.head(hidden.detach() if self.cut else hidden)

    whole, cut = program(lambda: Net(False)), program(lambda: Net(True))
    there, back = alike(whole, cut, tmp_path), alike(cut, whole, tmp_path)
    assert (there.lost, there.gained) == (("enc.bias", "enc.weight"), ())
    assert (back.lost, back.gained) == ((), ("enc.bias", "enc.weight"))
    assert sorted(there.gradients) == ["head.bias", "head.weight"]


def test_unpaired_parameters_are_named(tmp_path: Path) -> None:
    found = alike(program(lambda: nn.Linear(3, 2)), program(lambda: nn.Linear(3, 5)), tmp_path)
    assert (found.paired, found.left, found.own) == (0, ("bias", "weight"), ("bias", "weight"))
    assert found.gradients == {}


def test_a_number_that_is_nan_in_one_alone_is_no_small_difference(tmp_path: Path) -> None:
    found = alike(program(lambda: nn.Linear(3, 2)), program(lambda: nn.Linear(3, 2), scale=float("nan")), tmp_path)
    assert found.outputs[0].absolute != found.outputs[0].absolute
    both = alike(*[program(lambda: nn.Linear(3, 2), scale=float("nan"))] * 2, tmp_path)
    assert both.outputs == (Distance(0.0, 0.0),)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    hooks = torch.nn.modules.module._global_forward_pre_hooks, torch.nn.modules.module._global_forward_hooks
    before = [len(each) for each in hooks]
    alike(program(lambda: nn.Linear(3, 2)), program(lambda: nn.Linear(3, 2)), tmp_path)
    assert [len(each) for each in hooks] == before


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (RENAMED, ["4 of 4 parameters of b.py:loss paired", "  output: equal", "  gradients of 4 parameters: equal"]),
        (
            edit_model("the diagonal of the mask"),
            ["4 of 4 parameters of b.py:loss paired", "  output: differs by up to "],
        ),
        (WIDER, ["4 of 6 parameters of b.py:loss paired", "  2 of b.py:loss keep their own values: 2.bias, 2.weight"]),
    ],
)
def test_the_command_names_the_difference(
    other: str, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(MODEL)
    Path("b.py").write_text(other)
    main(["diff", "--run", "a.py:loss", "b.py:loss"])
    out, err = capfd.readouterr()
    lines = out.partition("\n\nrun with equal weights, inputs and seed: ")[2].splitlines()
    assert len(lines) >= len(said)
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=False)), out
    assert err == ""


def test_files_and_programs_that_cannot_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(MODEL)
    assert main(["capture", "a.py:loss", "-o", "a.gir"]) == 0
    capfd.readouterr()
    assert main(["diff", "--run", "a.gir", "a.py:loss"]) == 2
    assert "gradir: --run runs two programs and prints: name both" in capfd.readouterr().err
    kind = claims.kinds()["torch"]
    monkeypatch.setattr(kind, "features", kind.features - {"run_alike"})
    request = CaptureRequest(target=program(lambda: nn.Linear(3, 2)), is_program=True)
    with pytest.raises(capturing.CaptureError, match=r"cannot run with the weights of another program .*\(--run\)"):
        capturing.run_alike(request, "run")
