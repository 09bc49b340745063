"""Ranks captured without the others, beside what the same program is under torchrun."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import forked  # noqa: E402
from command_line import fails, runner  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from torchrun import command_on_ranks  # noqa: E402

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("needs a torch built with distributed and gloo", allow_module_level=True)

ALL_KINDS = """
import os
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def layers(inner):
    return nn.Sequential(nn.Linear(4, inner), nn.Linear(inner, 4))


def loss():
    distributed.init_process_group("gloo")
    assert distributed.get_rank() == int(os.environ["RANK"]) == int(os.environ["LOCAL_RANK"])
    assert distributed.get_world_size() == int(os.environ["WORLD_SIZE"])
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    even = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    uneven = {"0": ColwiseParallel(use_local_output=False), "1": RowwiseParallel()}
    model = nn.ModuleDict(
        {
            "ddp": nn.parallel.DistributedDataParallel(layers(4)),
            "fsdp": fully_shard(layers(4), mesh=mesh["dp"]),
            "tp": parallelize_module(layers(4), mesh["tp"], even),
            "both": fully_shard(parallelize_module(layers(4), mesh["tp"], even), mesh=mesh["dp"]),
            "uneven": parallelize_module(layers(5), mesh["tp"], uneven),
        }
    )
    x = torch.ones(2, 4)
    return model, sum(part(x).exp().sum() for part in model.values())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the loopback interface has another name")
def test_a_rank_without_the_others_is_the_one_under_torchrun(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "spec.py").write_text(ALL_KINDS)
    done = command_on_ranks(["capture", "spec.py:loss", "-o", "real.{rank}.gir", "--collectives"], 4, tmp_path)
    assert done.returncode == 0, done.stdout
    run = runner(tmp_path, clean_environment)
    alone = run("capture", "spec.py:loss", "--ranks", "all", "--world", "4", "-o", "alone.{rank}.gir", "--collectives")
    assert alone.returncode == 0, alone.stderr
    assert "wrote alone.{rank}.gir for 4 of 4 ranks, all\n" in alone.stderr
    values: list[Mapping[str, int]] = []
    for rank in range(4):
        real, found = (gradir.load(tmp_path / f"{name}.{rank}.gir") for name in ("real", "alone"))
        assert real.rank is not None
        assert found.rank is not None
        assert (real.rank.rank, real.rank.backend, found.rank.backend) == (rank, "gloo", "fake")
        issued = Counter((each.phase, each.op, each.group) for each in real.collectives)
        assert set(issued) >= {
            ("backward", "all_reduce", "world"),
            ("backward", "reduce_scatter", "dp"),
            ("forward", "all_reduce", "tp"),
        }
        # What DistributedDataParallel agrees on while it is built: how many parameters, their sizes, and their values.
        agreed = real.collectives[:3]
        assert [(each.op, each.group, str(each.tensors[0])) for each in agreed] == [
            ("all_gather", "world", "int64[1]"),
            ("broadcast", "world", "int64[12]"),
            ("broadcast", "world", "float32[40]"),
        ]
        # Only a real process has values: copies have the same ones, and shards their own.
        values.append(real.rank.values)
        # Beside it, what carries the messages, and that there were no data, all is the same.
        assert found.producer.options == {**real.producer.options, "fake": True}
        alike = replace(found, producer=real.producer, rank=replace(found.rank, backend="gloo", values=values[-1]))
        same = replace(real, collectives=real.collectives[3:])
        assert gradir.dumps(alike).decode().splitlines() == gradir.dumps(same).decode().splitlines()
    ranks = run("ranks", *(f"alone.{rank}.gir" for rank in range(4)))
    assert ranks.returncode == 0, ranks.stdout
    assert "up to sizes" in ranks.stdout


MESHES = """
import os, sys
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def loss():
    world = int(os.environ["WORLD_SIZE"])
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(4, 10), nn.Linear(10, 4))
    plan = {"0": ColwiseParallel(use_local_output=False), "1": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    if distributed.get_rank() == int((sys.argv[1:] or ["-1"])[0]):
        raise RuntimeError(f"this one\\ncannot")
    return model, model(torch.ones(2, 4)).exp().sum()


def without():
    return torch.ones(2, requires_grad=True).exp().sum()


def other():
    distributed.init_process_group("gloo", rank=0, world_size=3)
    return without()


def given():
    distributed.init_process_group("nccl", init_method="tcp://10.0.0.1:1", rank=5, world_size=64, device_id=None)
    distributed.new_group([4, 5], backend="gloo")
    return without()
"""


def test_a_sample_is_the_corners_of_the_mesh_and_where_shards_are_uneven(
    tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    (tmp_path / "spec.py").write_text(MESHES)
    run = runner(tmp_path, clean_environment)
    done = run("capture", "spec.py:loss", "--ranks=sample", "--world", "8", "-o", "run.{rank}-of-{world}.gir")
    assert done.returncode == 0, done.stderr
    # Ten columns on four are 3, 3, 3 and 1.
    written = sorted(path.name for path in tmp_path.glob("*.gir"))
    assert written == [f"run.{rank}-of-8.gir" for rank in (0, 2, 3, 4, 6, 7)]
    assert "wrote run.{rank}-of-{world}.gir for 6 of 8 ranks, a sample\n" in done.stderr
    graphs = {path.name: gradir.load(path) for path in tmp_path.glob("*.gir")}
    assert all(graph.rank is None for graph in graphs.values())
    bytes_of = {name: (tmp_path / name).read_bytes() for name in graphs}
    assert bytes_of["run.0-of-8.gir"] == bytes_of["run.4-of-8.gir"] != bytes_of["run.3-of-8.gir"]
    # Alone it has the same bytes as among others.
    one = run("capture", "spec.py:loss", "--rank", "3", "--world", "8", "-o", "one.gir")
    assert (one.returncode, (tmp_path / "one.gir").read_bytes()) == (0, bytes_of["run.3-of-8.gir"])


def test_a_rank_that_fails_is_named_and_nothing_is_written(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "spec.py").write_text(MESHES)
    (tmp_path / "run.0.gir").write_text("of before")
    run = runner(tmp_path, clean_environment)
    done = run("capture", "spec.py:loss", "--ranks", "all", "--world", "2", "-o", "run.{rank}.gir", "--", "1")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gradir: rank 1: spec.py:loss: loss raised RuntimeError: this one cannot")
    assert last.endswith("; no file is written of any rank")
    assert 'raise RuntimeError(f"this one' in done.stderr
    assert {path.name: path.read_text() for path in tmp_path.glob("*.gir")} == {"run.0.gir": "of before"}


def test_a_rank_alone_sees_its_process_groups(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "spec.py").write_text(MESHES)
    run = runner(tmp_path, clean_environment)
    done = run("capture", "spec.py:given", "--rank", "5", "--world", "64", "--collectives", "-o", "{rank}.gir")
    assert done.returncode == 0, done.stderr
    rank = gradir.load(tmp_path / "5.gir").rank
    assert rank is not None
    assert (rank.rank, rank.world, rank.backend) == (5, 64, "fake")
    asked = run("capture", "spec.py:other", "--rank", "0", "--world", "4", "-o", "x.gir")
    fails(
        asked, "calls init_process_group with world_size=3, and --rank 0 --world 4 says 4: leave it to the environment"
    )
    none = run("capture", "spec.py:without", "--rank", "0", "--world", "4", "-o", "x.gir")
    fails(none, "--world 4: the program has made no process group")
    assert not (tmp_path / "x.gir").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rank 1", "--rank 1 needs --world W, the number of ranks"),
        ("--ranks all", "--ranks all needs --world W"),
        ("--world 4", "--world 4 needs --rank R, --ranks sample or --ranks all"),
        ("--rank 4 --world 4", "--rank 4 is out of range: --world 4 has the ranks 0 to 3"),
        ("--ranks all --world 4 -o x.gir", "--ranks all writes a file for each rank: put {rank} into -o"),
        ("--ranks all --world 4", "--ranks all writes a file for each rank"),
        ("--ranks sample --world 4 --verify -o {rank}.gir", "use --rank or --ranks all"),
        ("--collectives --verify", "verifying needs an autograd graph, which --collectives frees; choose one"),
        (
            "--collectives --graph forward",
            "--collectives needs an autograd graph, which --graph forward does not capture; choose one",
        ),
    ],
)
def test_incomplete_rank_options_are_refused(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The program is not run: there is none.
    assert main(["capture", "spec.py:loss", *words.split()]) == 2
    assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_two_ranks_in_one_process_are_refused(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "spec.py").write_text(MESHES)
    (tmp_path / "both.py").write_text(
        "from gradir.cli.main import main\n"
        "for rank in '03':\n"
        "    words = ['--rank', rank, '--world', '8', '-o', f'{rank}.gir']\n"
        "    print(main(['capture', 'spec.py:loss', *words]), flush=True)\n"
    )
    done = forked.run([sys.executable, "both.py"], cwd=tmp_path, env=clean_environment, text=True)
    assert done.stdout == "0\n2\n"
    said = "gradir: --rank 3: this process has been rank 0, and torch remembers its mesh: use another process\n"
    assert done.stderr.endswith(said)
    assert not (tmp_path / "3.gir").exists()


def test_one_rank_and_several_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["capture", "spec.py:loss", "--rank", "1", "--ranks", "all", "--world", "4"])
    assert "argument --ranks: not allowed with argument --rank" in capsys.readouterr().err
