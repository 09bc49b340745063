"""What ``gradir run`` records of a rank up to the optimizer's step, on torch's group that sends nothing."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import forked  # noqa: E402
from torch import distributed, nn  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402
from gradir.frontends.pytorch import private  # noqa: E402
from gradir.frontends.pytorch.reading.tensors import checksum  # noqa: E402

if not distributed.is_available():
    pytest.skip("needs a torch built with distributed", allow_module_level=True)

SCRIPT = """\
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook as compress
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
body, head = DDP(nn.Linear(3, 4)), nn.Linear(4, 2)
every = [*body.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(every, 0.1)


def by_hand():
    with torch.no_grad():
        for parameter in every:
            parameter -= parameter.grad


def step(reduce=lambda: None, step=optimizer.step):
    head(body(torch.ones(2, 3))).sum().backward()
    reduce()
    step()


def reduce_each():
    for parameter in head.parameters():
        dist.all_reduce(parameter.grad)


inner = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 4))
ignore = DDP._set_params_and_buffers_to_ignore_for_model


def wrapped(change):
    global body
    body = DDP(inner)
    change()
    optimizer.param_groups[0]["params"] = [*inner.parameters(), *head.parameters()]
    return body


def reduce_every():
    for parameter in every:
        dist.all_reduce(parameter.grad)


def sum_on_other():
    for parameter in every:
        dist.reduce(parameter.grad, 1)


def reduce_flat():
    flat = torch.cat([parameter.grad.flatten() for parameter in head.parameters()])
    dist.all_reduce(flat)
    return flat


def reduce_and_copy():
    head.weight.grad.copy_(reduce_flat()[:8].view(2, 4))
    head.bias.grad = torch.ones(2)


"""


BODY = {"body.module.bias", "body.module.weight"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in, as rank 0 of two that a launcher started."""
    monkeypatch.chdir(tmp_path)
    # A process group puts its rank before every traceback.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for name, number in {"RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, number)
    yield tmp_path
    if distributed.is_initialized():
        distributed.destroy_process_group()


def ran(last: str, folder: Path, *options: str) -> gradir.Graph:
    (folder / "train.py").write_text(SCRIPT + last)
    assert main(["run", "-o", "run.{rank}.gir", *options, "train.py"]) == 0
    return gradir.load(folder / "run.0.gir")


@pytest.mark.parametrize(
    ("last", "unreduced", "after"),
    [
        ("step()", ("head.weight", "head.bias"), 0),
        ("step(step=by_hand)", ("head.weight", "head.bias"), 0),
        ("step(reduce_each)", (), 2),
        ("step(reduce_flat)", ("head.weight", "head.bias"), 1),
        ("step(reduce_and_copy)", (), 1),
        ("step(reduce_flat, step=by_hand)", (), 1),
        # No step shows which parameters are trained.
        ("step(step=lambda: None); step()", (), 0),
        ("head.requires_grad_(False); step()", (), 0),
        ("optimizer.param_groups[0]['params'] = [*body.parameters()]; step()", (), 0),
        ("body.require_backward_grad_sync = False; step()", ("body.module.weight", "body.module.bias"), 0),
        ("body.require_backward_grad_sync = False; step(reduce_every)", (), 4),
        # Without a wrapper, the gradients that the program sums show what it means to sum.
        ("body = body.module; step()", (), 0),
        ("body = body.module; step(reduce_each)", ("body.weight", "body.bias"), 2),
        ("body = body.module; step(sum_on_other)", ("body.weight", "body.bias", "head.weight", "head.bias"), 0),
        # The gradient of the other part of a gathered tensor comes from other ranks.
        (
            "plain = body.module; body = lambda x: torch.cat(differentiable.all_gather(plain(x))); step(reduce_each)",
            ("plain.weight", "plain.bias"),
            2,
        ),
        # A compressed gradient is smaller than the parameter.
        ("body = body.module; step(lambda: [reduce_each(), dist.all_reduce(body.weight.grad[:, :2].clone())])", (), 2),
        # Each rank has another part of the input that the ranks gather.
        (
            "plain = body.module; body = lambda x: torch.cat(differentiable.all_gather(plain(x))); step()",
            ("plain.weight", "plain.bias"),
            0,
        ),
        # An operation before the messages is no copy.
        ("body = body.module; step(lambda: (torch.ones(2) * 2, reduce_every()))", (), 4),
        # The gradients of these passed through a message.
        ("plain = body.module; body = lambda x: differentiable.all_reduce(plain(x)); step(reduce_each)", (), 2),
        # A wrapper reduces what it was made with.
        ("wrapped(inner.requires_grad_); step(reduce_each)", ("body.module.0.weight", "body.module.0.bias"), 2),
        (
            "wrapped(lambda: inner.append(nn.Linear(4, 4))); step(reduce_each)",
            ("body.module.2.weight", "body.module.2.bias"),
            2,
        ),
        ("ignore(inner, ['0.weight', '0.bias']); wrapped(inner.requires_grad_); step(reduce_each)", (), 2),
        # What a hook sends may be any of them.
        ("wrapped(inner.requires_grad_).register_comm_hook(None, compress); step(reduce_each)", (), 2),
        # A sparse gradient has no storage.
        ("sparse = DDP(nn.Embedding(9, 4, sparse=True)); sparse(torch.arange(3)).sum().backward(); step()", (), 0),
    ],
)
def test_a_gradient_that_nothing_exchanges_before_the_step_is_recorded(
    last: str, unreduced: tuple[str, ...], after: int, folder: Path
) -> None:
    graph = ran(last, folder)
    assert graph.rank is not None
    assert graph.rank.unreduced == unreduced
    assert [each.op for each in graph.collectives if each.source and each.source.function.startswith("reduce")] == [
        "all_reduce"
    ] * after


def test_checksums_differ_where_values_do_and_not_where_strides_do() -> None:
    one = torch.arange(12.0).view(3, 4)
    others = [one.flip(0), -one, one.roll(1, 1), one + 1, torch.nextafter(one, one + 1)]
    several = [one, *others, *(torch.full((2**20,), value) for value in (0.0, 1.0, 2.0))]
    assert len({checksum(each) for each in several}) == len(several)
    padded = torch.zeros(13)[1:].view(3, 4).copy_(one)
    assert {checksum(one), checksum(padded), checksum(one.t().contiguous().t())} == {checksum(nn.Parameter(one))}
    mirrored = torch.complex(one, one).conj()
    assert checksum(mirrored) == checksum(mirrored.resolve_conj())
    assert [checksum(each) for each in (one.to_sparse(), one.to("meta"))] == [None, None]


@pytest.mark.parametrize(
    ("last", "field", "expected"),
    [
        ("step()", "wrappers", {"body": ()}),
        # One that is not called has the place of what it wraps.
        ("hidden = DDP(inner); body = inner; step()", "wrappers", {"body": ("uncalled",)}),
        # A class with an order of its own has no hash.
        ("Own = type('Own', (DDP,), {'__hash__': None}); body = Own(inner); step()", "wrappers", {"body": ()}),
        ("step(lambda: dist.all_reduce(head.bias.grad, dist.ReduceOp.MAX))", "values", BODY),
        # Copies that are averaged part between.
        ("with torch.no_grad(): dist.all_reduce(head.bias)\nstep(reduce_each)", "values", {*BODY, "head.weight"}),
        ("step(reduce_each)", "values", {*BODY, "head.bias", "head.weight"}),
        # A hook may send anything of the parameters whose gradients came.
        ("body.register_comm_hook(None, compress); step()", "values", {"body.module.weight"}),
    ],
)
def test_states_of_wrappers_and_values_of_parameters_are_recorded(
    last: str, field: str, expected: object, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "NOT_SENDING", "")
    found = getattr(ran(last, folder).rank, field)
    assert (found if field == "wrappers" else {*found}) == expected


@pytest.mark.parametrize(
    ("flat", "is_known"),
    [
        ("torch.cat(gradients)", True),
        ("torch.cat([each.clone() for each in gradients]).to(torch.float16) / 2", True),
        ("torch.zeros(10).copy_(torch.cat(gradients)).div_(2)", True),
        ("fill(torch.zeros(10), [(0, 8), (8, 10)])", True),
        ("fill(torch.zeros(11), [(0, 8), (8, 10)])", False),
        ("torch.cat(gradients)[1:]", False),
        ("torch.cat([each * each for each in gradients])", False),
        ("torch.stack([each.norm() for each in gradients])", False),
        ("(torch.cat(gradients).sum(), torch.zeros(10))[1]", False),
        ("torch.nn.utils.parameters_to_vector(head.parameters()).detach()", False),
    ],
)
def test_the_gradients_in_a_flat_tensor_are_its_operands(flat: str, is_known: bool, folder: Path) -> None:
    reduce = f"""\
def fill(bucket, places):
    for (start, end), each in zip(places, gradients):
        bucket[start:end].copy_(each)
    return bucket


def reduce():
    global gradients
    gradients = [parameter.grad.flatten() for parameter in head.parameters()]
    dist.all_reduce({flat})


step(reduce)
"""
    (issued,) = (each for each in ran(reduce, folder).collectives if each.source and each.source.function == "reduce")
    assert issued.operands == (("head.weight", "head.bias") if is_known else ())


@pytest.mark.parametrize(
    ("last", "step", "accumulates", "offsets"),
    [
        ("step()", 1, False, {}),
        ("step(step=lambda: None); step()", 1, True, {}),
        ("step(reduce_each, step=lambda: None)", 1, False, {}),
        # Those of the constructor are before the second step, which begins behind the first backward.
        ("body.require_backward_grad_sync = False; step(reduce_each); step()", 2, False, {"world": 3}),
    ],
)
def test_accumulation_and_earlier_steps_are_recorded(
    last: str, step: int, accumulates: bool, offsets: dict[str, int], folder: Path
) -> None:
    graph = ran(last, folder, "--step", str(step))
    assert graph.rank is not None
    assert (graph.rank.accumulates, dict(graph.rank.offsets)) == (accumulates, offsets)


PADDED = """
x = torch.ones(2, 3)
sizes = [torch.tensor([0])] * 2
body(x)
dist.all_gather(sizes, torch.tensor([2]))
dist.all_reduce(torch.ones(max(size.item() for size in sizes)))
step()
"""


@pytest.mark.parametrize(("options", "shape"), [((), "float32[2]"), (("--dry",), "float32[?]")])
def test_no_size_is_recorded_behind_integers_that_a_dry_step_does_not_receive(
    options: tuple[str, ...], shape: str, folder: Path
) -> None:
    told = [str(each.tensors[0]) for each in ran(PADDED, folder, *options).collectives]
    assert (shape in told, told[-1]) == (True, "float32[16]")


PIPED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
stage = nn.Linear(3, 3)
{wrap}
optimizer = torch.optim.SGD(stage.parameters(), 0.1)
x, gradient = torch.ones(2, 3), torch.ones(2, 3)
dist.recv(x, 1)
outputs = [stage(x), stage(x)]
for y in outputs:
    dist.recv(gradient, 1)
    y.backward(gradient)
print("received", gradient.sum().item())
optimizer.step()
"""


@pytest.mark.parametrize(
    ("wrap", "options", "received"),
    [
        # torch's group leaves the tensor as it is, and a captured step fills it with zeros.
        ("", (), "received 6.0"),
        ("", ("--dry",), ""),
        ("stage = nn.parallel.DistributedDataParallel(stage)", (), ""),
    ],
)
def test_a_stage_by_hand_runs_all_microbatches_of_its_step(
    wrap: str, options: tuple[str, ...], received: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(PIPED.format(wrap=wrap))
    assert main(["run", "-o", "run.{rank}.gir", *options, "train.py"]) == 0
    assert capsys.readouterr().out.strip() == received
    rank = gradir.load(folder / "run.0.gir").rank
    assert rank is not None
    # A second backward before the step looks like accumulation.
    assert rank.accumulates is not bool(received)


AGAIN = """
dist.send(gradient, 1)
optimizer.step()
dist.recv(x, 1)
stage(x).sum().backward()
optimizer.step()
"""


def test_a_step_by_hand_begins_after_the_one_of_the_optimizer(folder: Path) -> None:
    steps = PIPED.format(wrap="").replace("optimizer.step()\n", AGAIN)
    (folder / "train.py").write_text(steps)
    assert main(["run", "-o", "run.{rank}.gir", "--step", "3", "train.py"]) == 0
    assert [each.op for each in gradir.load(folder / "run.0.gir").collectives] == ["recv"]


OBJECTS = """
def gather():
    dist.all_reduce(torch.ones(3, dtype=torch.uint8))
    dist.all_gather_object([None, None], "x" * 99)

step(gather)
"""


def test_the_sizes_of_gathered_objects_are_not_recorded(folder: Path) -> None:
    told = [str(each.tensors[0]) for each in ran(OBJECTS, folder).collectives[-3:]]
    assert told == ["uint8[3]", "int64[1]", "uint8[?]"]


REFUSED = """
body = DDP(nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(3, 4)}))
body.module.forward = body.module["a"].forward
step(step=lambda: None)
step()
"""


def test_a_collective_that_torch_refuses_is_an_error_of_the_program(folder: Path) -> None:
    (folder / "train.py").write_text(SCRIPT + REFUSED)
    with pytest.raises(SystemExit) as ended:
        main(["run", "-o", "run.{rank}.gir", "--step", "2", "train.py"])
    assert ended.value.code == 1
    left = gradir.load(folder / "run.0.gir").rank
    assert left is not None
    assert left.stopped == "raises"


@pytest.mark.parametrize("end", ["", "dist.destroy_process_group()", "dist.destroy_process_group(dist.group.WORLD)"])
def test_a_rank_that_ends_before_its_step_leaves_a_file(end: str, folder: Path) -> None:
    left = ran(f"head(torch.ones(2, 4)).sum().backward()\n{end}", folder, "--step", "2")
    assert left.rank is not None
    assert (left.rank.stopped, left.rank.world, left.nodes) == ("ends", 2, {})


def test_a_process_that_aborts_in_a_step_leaves_a_file(folder: Path) -> None:
    abort = "import os\nhead.register_forward_hook(lambda *_: [dist.all_reduce(torch.ones(2)), os.abort()])\nstep()"
    (folder / "train.py").write_text(SCRIPT + abort)
    done = forked.run(
        [sys.executable, "-m", "gradir", "run", "-o", "run.{rank}.gir", "train.py"], cwd=folder, text=True
    )
    assert done.returncode == -signal.SIGABRT
    assert "rank 0 failed after forward all_reduce float32[2] on world (train.py:" in done.stderr
    left = gradir.load(folder / "run.0.gir")
    assert left.rank is not None
    assert (left.rank.stopped, left.collectives[-1].op) == ("fails", "all_reduce")


@pytest.mark.parametrize("value", ["x", "-5", "0.5"])
def test_patience_is_a_whole_number(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--patience", value, "-o", "run.gir", "train.py"])
    assert f"argument --patience: expected integer, 0 to 1,000,000,000, not '{value}'" in capsys.readouterr().err
