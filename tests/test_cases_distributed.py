"""The cases of docs/cases.md that need a process group."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch")

from example_files import live  # noqa: E402
from wiring import tensor_roles, wiring  # noqa: E402

import gradir  # noqa: E402
from gradir.ir import TensorMeta  # noqa: E402

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("needs a torch built with distributed", allow_module_level=True)

nn = torch.nn


@pytest.fixture(autouse=True)
def _hook_of_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch puts the rank before what Python prints of an error, and leaves it there.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of this process only."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def two() -> Iterator[None]:
    """A group that says to be of two processes, and communicates nothing."""
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 (registers the backend)

    dist.init_process_group("fake", rank=0, world_size=2)
    yield
    dist.destroy_process_group()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.unused = nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return self.b(self.a(x).tanh())


def verified(model: nn.Module) -> gradir.Verification:
    with gradir.record(model) as rec:
        y = model(torch.ones(1, 2))
    return rec.verify(y)


@pytest.mark.usefixtures("alone")
def test_ddp_keeps_its_sink_and_prefixes_names() -> None:
    model = nn.parallel.DistributedDataParallel(Model(), find_unused_parameters=True)
    graph = gradir.capture(model, torch.ones(1, 2))
    assert wiring(graph) == {
        "module.a/t:1": ("module.a.weight",),
        "module.a/mm:1": (None, "module.a/t:1"),
        "module/tanh:1": ("module.a/mm:1",),
        "module.b/t:1": ("module.b.weight",),
        "module.b/mm:1": ("module/tanh:1", "module.b/t:1"),
        "_ddp_sink:1": ("module.b/mm:1",),
        "output": ("_ddp_sink:1",),
    }
    assert graph.nodes["_ddp_sink:1"].native == "_DDPSinkBackward"
    assert tensor_roles(graph) == {"module.a.weight": "parameter", "module.b.weight": "parameter"}
    assert [(cut.kind, cut.names) for cut in graph.cuts] == [("unreached", ("module.unused.weight",))]


@pytest.mark.usefixtures("alone")
def test_ddp_agrees_with_the_engine() -> None:
    model = nn.parallel.DistributedDataParallel(Model(), find_unused_parameters=True)
    found = verified(model)
    assert (found.mismatches, found.executed) == ((), found.nodes)


def fully_sharded() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Model()
    for module in (model.a, model.b, model):
        fully_shard(module, mesh=mesh)
    return model


@pytest.mark.parametrize("group", ["alone", "two"])
def test_fsdp2_parameters_have_their_names(group: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(group)
    model = fully_sharded()
    graph = gradir.capture(model, torch.ones(1, 2))
    assert wiring(graph) == {
        "a/t:1": ("a.weight",),
        "a/mm:1": (None, "a/t:1"),
        "tanh:1": ("a/mm:1",),
        "b/register_post_backward_function:1": ("tanh:1",),
        "b/t:1": ("b.weight",),
        "b/mm:1": ("b/register_post_backward_function:1", "b/t:1"),
        "output": ("b/mm:1",),
    }
    assert tensor_roles(graph) == {"a.weight": "parameter", "b.weight": "parameter"}
    assert {graph.nodes[name].scope for name in ("a.weight", "b.weight")} == {"a", "b"}
    placed = TensorMeta("float32", (2, 2), placements=("0:Shard(0)",))
    assert {graph.nodes[name].outputs for name in ("a.weight", "b.weight")} == {(placed,)}
    assert [cut.tensor for cut in graph.cuts] == [placed]
    assert [(cut.kind, cut.names) for cut in graph.cuts] == [("unreached", ("unused.weight",))]
    assert graph.scopes["a"].total == 4


@pytest.mark.usefixtures("alone")
def test_fsdp2_agrees_with_the_engine() -> None:
    found = verified(fully_sharded())
    assert (found.mismatches, found.executed) == ((), found.nodes)


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore:FSDP is switching:UserWarning")
@pytest.mark.parametrize("original", [False, True])
def test_fsdp1_is_one_flat_leaf_split_and_viewed(original: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(Model(), device_id=torch.device("cpu"), use_orig_params=original)
    graph = gradir.capture(model, torch.ones(1, 2))
    (flat,) = tensor_roles(graph)
    inner = "_fsdp_wrapped_module"
    assert wiring(graph) == {
        "split_with_sizes:1": (flat,),
        "view:1": ("split_with_sizes:1",),
        f"{inner}.a/t:1": ("view:1",),
        f"{inner}.a/mm:1": (None, f"{inner}.a/t:1"),
        f"{inner}/tanh:1": (f"{inner}.a/mm:1",),
        "view:2": ("split_with_sizes:1#1",),
        f"{inner}.b/t:1": ("view:2",),
        f"{inner}.b/mm:1": (f"{inner}/tanh:1", f"{inner}.b/t:1"),
        "output": (f"{inner}.b/mm:1",),
    }
    assert graph.nodes[flat].shape == (12,)
    assert graph.nodes[flat].names == (() if original else (f"{inner}._flat_param",))
    assert graph.cuts == ()


@pytest.mark.usefixtures("two")
def test_distributed_tensors_have_their_global_shape() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    weight = distribute_tensor(torch.ones(4, 3), mesh, [Shard(0)]).requires_grad_()
    assert weight.to_local().shape == (2, 3)
    y = (weight * weight).redistribute(mesh, [Replicate()]).to_local().sum()
    graph = gradir.capture(y, params={"weight": weight})
    assert wiring(graph) == {
        "mul:1": ("weight", "weight"),
        "redistribute:1": ("mul:1",),
        "_to_torch_tensor:1": ("redistribute:1",),
        "sum:1": ("_to_torch_tensor:1",),
        "output": ("sum:1",),
    }
    assert graph.nodes["redistribute:1"].native == "RedistributeBackward"
    assert {graph.nodes[name].shape for name in ("weight", "mul:1", "redistribute:1")} == {(4, 3)}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(2, 2, bias=False)
        self.inner = nn.Sequential(nn.Linear(2, 2, bias=False))
        self.one.weight = self.inner[0].weight

    def forward(self, x):
        return self.inner(self.one(x))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("resharded", [False, True])
def test_fsdp2_keeps_every_name_of_a_tied_parameter(resharded: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    plain = gradir.capture(Tied(), torch.ones(1, 2))
    graph = gradir.capture(fully_shard(Tied(), reshard_after_forward=resharded), torch.ones(1, 2))
    assert graph.nodes["one.weight"].names == ("one.weight", "inner.0.weight")
    assert (wiring(graph), graph.cuts) == (wiring(plain), ())


def test_a_parameter_that_moved_has_the_name_that_it_has_now() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    with gradir.record(model) as rec:
        y = model["a"](torch.ones(1, 2))
    model["b"].weight, model["a"].weight = model["a"].weight, model["b"].weight
    graph = rec.capture(y)
    assert tensor_roles(graph) == {"b.weight": "parameter"}
    assert [cut.names for cut in graph.cuts] == [("a.weight",)]


def test_a_parameter_that_was_replaced_since_has_its_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    with gradir.record(model) as rec:
        y = model(torch.ones(1, 2))
    model[0].weight = nn.Parameter(torch.zeros(2, 2))
    graph = rec.capture(y)
    assert tensor_roles(graph) == {"0.weight": "parameter"}


def checkpointed() -> nn.Module:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Model):
        def forward(self, x):
            return checkpoint(self.b, self.a(x), use_reentrant=True)

    return Checkpointed()


def delayed() -> nn.Module:
    model = Model()
    return nn.parallel.DistributedDataParallel(
        model,
        delay_all_reduce_named_params=[("b.weight", model.b.weight)],
        param_to_hook_all_reduce=model.a.weight,
    )


def flat() -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(Model(), device_id=torch.device("cpu"))


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore:FSDP is switching:UserWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (checkpointed, r"^a reentrant checkpoint adds up .*: use checkpoint\(\.\.\., use_reentrant=False\), or "),
        (delayed, "^DistributedDataParallel with delay_all_reduce_named_params .*; verify the module without it$"),
        (flat, "^FullyShardedDataParallel runs one backward .*: verify the module without it, or under fully_shard$"),
    ],
)
def test_verify_refuses_what_no_second_backward_leaves_alone(make, message: str) -> None:
    model = make()
    with gradir.record(model) as rec:
        y = model(torch.ones(1, 2))
    with pytest.raises(gradir.CaptureError, match=message):
        rec.verify(y)
    y.sum().backward()


def parallel() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    return parallelize_module(Model(), mesh["tp"], {"a": ColwiseParallel(), "b": RowwiseParallel()})


def replicated() -> nn.Module:
    return nn.parallel.DistributedDataParallel(Model(), find_unused_parameters=True)


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("make", [replicated, fully_sharded, parallel])
def test_a_model_built_for_several_processes_is_the_same_without_data(make) -> None:
    def target() -> object:
        model = make()
        return model, model(torch.ones(1, 2)).sum()

    real, fake = live(target), live(target, fake=True)
    # All but the head, which says that there were no data.
    assert msgspec.structs.replace(fake.graph, producer=real.graph.producer) == real.graph
    assert len(fake.graph.nodes) > 8
    assert fake.verify().mismatches == ()
    assert "init_sync" in inspect.signature(nn.parallel.DistributedDataParallel.__init__).parameters


@pytest.mark.usefixtures("two")
def test_groups_with_the_same_label_are_numbered_as_they_are_met() -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([0]), dist.new_group([0]), dist.new_group([0], group_desc="mine")]

    class Sends(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, group, rank):
            ctx.group, ctx.rank = group, rank
            ctx.group_name = getattr(group, "group_name", "no group of torch")
            ctx.reduce = (dist.ReduceOp.MAX, dist.ReduceOp(dist.ReduceOp.AVG))
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None, None

    x = torch.ones(2, requires_grad=True)
    for group in [*groups, groups[1], None]:
        x = Sends.apply(x, group, 0)
    graph = gradir.capture(x)
    told = [dict(node.attrs) for node in graph.nodes.values() if node.op == "sends"]
    assert [attrs["group"] for attrs in told] == ["world", "group", "group:2", "mine", "group", None]
    assert [attrs["group_name"] for attrs in told] == [
        *("world", "group", "group:2", "mine", "group"),
        "no group of torch",
    ]
    assert {attrs["reduce"] for attrs in told} == {("max", "avg")}
    # Without a group beside it, it may be the rank of anything.
    assert ["rank" in attrs for attrs in told] == [False] * 5 + [True]


@pytest.mark.usefixtures("two")
def test_groups_that_are_exchanged_in_are_numbered_as_they_were_made() -> None:
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    model = nn.Linear(2, 2)
    with gradir.record(model, collectives=True) as rec:
        y = model(torch.ones(1, 2))
        for group in reversed(groups):
            dist.all_reduce(y.detach(), group=group)
        graph = rec.capture(y)
    # The group of all processes that torch makes is the first.
    assert [each.group for each in graph.collectives] == ["world:3", "world:2"]


@pytest.mark.usefixtures("alone")
def test_the_state_of_wrappers_is_recorded() -> None:
    def state_of(within=lambda model: nullcontext(), called=lambda model: model, hook=None, **options) -> object:
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2), **options)
        if hook is not None:
            model.register_comm_hook(None, hook)
        with gradir.record(model, collectives=True) as rec, within(model):
            graph = rec.capture(called(model)(torch.ones(1, 2)))
        assert graph.rank is not None
        return dict(graph.rank.wrappers)

    def compress(state, bucket):
        raise NotImplementedError

    assert state_of() == {"": ()}
    assert state_of(within=lambda model: model.no_sync()) == {"": ("no_sync",)}
    assert state_of(called=lambda model: model.module) == {"": ("uncalled",)}
    assert state_of(find_unused_parameters=True, hook=compress) == {"": ("unused", "hook:compress")}
    sharded = fully_sharded()
    sharded.set_requires_gradient_sync(False)
    with gradir.record(sharded, collectives=True) as rec:
        graph = rec.capture(sharded(torch.ones(1, 2)))
    assert graph.rank is not None
    assert {*graph.rank.wrappers.values()} == {("no_sync",)}
