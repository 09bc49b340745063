"""The layer table and the module listing of real models, against torchinfo, torch's own print, and the modules."""

from __future__ import annotations

import inspect
import json
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
torchinfo = pytest.importorskip("torchinfo")
pytest.importorskip("transformers")

from example_files import GRAPHS, attribute, run  # noqa: E402
from real_models import MODELS  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import gradir  # noqa: E402

PRINT_THEMSELVES = {"Conv1D"}
"""Classes of these models that have a __repr__ of their own."""

CALLED = {
    "mlp_critic.py:Critic": lambda: (torch.randn(4, 3), torch.randn(4, 2)),
    "policy.py:Policy": lambda: (torch.randn(4, 4),),
    "lstm_cell.py:LSTMCell": lambda: (torch.randn(2, 4), torch.randn(2, 6), torch.randn(2, 6)),
    "resnet.py:ResNet": lambda: (torch.randn(2, 3, 32, 32),),
    "gpt.py:GPT": lambda: (torch.randint(0, 60, (2, 16)),),
}

COLLECTED = {"Mixtral": {(14, 4)}, "Qwen2-MoE": {(14, 4)}}
"""What leaves a module without being returned: here a hook of the model collects what routers returned."""

# What torchinfo takes for the output of the other models is the last entry of a dict, a cache or a list of states.
AGREED = (
    "DistilBERT",
    "ViT",
    "Swin",
    "ConvNeXt",
    "RWKV",
    "CLIP",
    "nn.Transformer",
    "nn.TransformerEncoder",
    "nn.LSTM",
    "nn.GRU",
)


class Seen(NamedTuple):
    """A model that ran in a recorder, with what each of its modules was called with and returned."""

    model: nn.Module
    graph: gradir.Graph
    arguments: tuple[Any, Any]
    returned: dict[str, set[tuple[int, ...]]]

    @property
    def table(self) -> dict[str, Any]:
        table: dict[str, Any] = json.loads(self.graph.to("summary", style="json"))
        return table


def tensors(nesting: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(nesting) if isinstance(leaf, torch.Tensor)]


def watch(model: nn.Module, call: Callable[[], Any]) -> Seen:
    returned: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    arguments: list[tuple[Any, Any]] = []
    hooks = [
        model.register_forward_pre_hook(lambda _, args, kwargs: arguments.append((args, kwargs)), with_kwargs=True)
    ]
    for path, module in model.named_modules():
        hooks.append(
            module.register_forward_hook(
                lambda *call, path=path: returned[path].update(tuple(tensor.shape) for tensor in tensors(call[2]))
            )
        )
    with gradir.record(model) as recorder:
        outputs = call()
    for hook in hooks:
        hook.remove()
    return Seen(model, recorder.capture(outputs), arguments[0], returned)


@cache
def seen(name: str) -> Seen:
    if name in MODELS:
        real = MODELS[name]()
        return watch(real.model, real.loss)
    torch.manual_seed(0)
    model, inputs = attribute(name)(), CALLED[name]()
    return watch(model, lambda: model(*inputs))


@pytest.mark.parametrize("name", [*MODELS, *CALLED])
def test_every_shape_is_one_that_the_module_returned(name: str) -> None:
    case = seen(name)
    rows = {row["path"]: row for row in case.table["layers"]}
    for path, row in rows.items():
        if row["output_shapes"] is not None:
            found = {tuple(shape) for shape in row["output_shapes"]}
            assert found - COLLECTED.get(name, set()) <= returned(case, path), path
    if case.graph.producer.options.get("callers"):
        assert rows[""]["output_shapes"] is not None
    # A module is known unless it only passes on what it was given.
    known = sum(row["output_shapes"] is not None for row in rows.values())
    called = [row for row in rows.values() if row["calls"] and row["class"] not in {"Dropout", "Identity"}]
    assert known >= len(called) - 2


def returned(case: Seen, path: str) -> set[tuple[int, ...]]:
    """What a module returned, or the modules in one that was not called, such as a list."""
    inside = [
        case.returned[name]
        for name, _ in case.model.get_submodule(path).named_children()
        for name in [f"{path}.{name}"]
    ]
    return case.returned[path] or {shape for shapes in inside for shape in shapes}


@pytest.mark.parametrize("name", [*AGREED, *CALLED])
def test_it_agrees_with_torchinfo(name: str) -> None:
    case = seen(name)
    table = case.table
    rows = {row["path"]: row for row in table["layers"]}
    args, kwargs = case.arguments
    if kwargs:
        kwargs = {**dict(zip(inspect.signature(case.model.forward).parameters, args, strict=False)), **kwargs}
    theirs = torchinfo.summary(case.model, input_data=kwargs or list(args), depth=99, mode="train", verbose=0)
    names: dict[int, list[str]] = defaultdict(list)
    for parameter_name, parameter in case.model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(parameter_name)
    # torchinfo counts a parameter once for each layer that has it.
    again = sum((len(names[id(parameter)]) - 1) * parameter.numel() for parameter in case.model.parameters())
    assert table["totals"]["parameters"] == theirs.total_params - again
    assert table["totals"]["trainable"] == theirs.trainable_params - again
    paths = {module: path for path, module in reversed(list(case.model.named_modules()))}
    compared = 0
    for layer in theirs.summary_list:
        row = rows[paths[layer.module]]
        assert layer.is_recursive or row["parameters"] == layer.num_params
        if layer.executed and row["output_shapes"] is not None and row["path"]:
            assert list(layer.output_size) in row["output_shapes"], row["path"]
            compared += 1
    assert compared >= 2


# The others have nodes that backward does not reach, recompute, or save constants, which torch shows to no hook.
PACKED = (
    "BERT",
    "DistilBERT",
    "DeBERTa-v2",
    "LLaMA",
    "Mamba",
    "ViT",
    "ConvNeXt",
    "nn.Transformer",
    "nn.LSTM",
    "nn.GRU",
    "ResNet (examples/resnet.py)",
)


@pytest.mark.parametrize("name", PACKED)
def test_saved_bytes_are_those_that_torch_packs_while_the_module_runs(name: str) -> None:
    real = MODELS[name]()
    running, kept, sizes = ["outside"], [], {}
    owned = {tensor.untyped_storage().data_ptr() for tensor in [*real.model.parameters(), *real.model.buffers()]}
    packed: dict[str, int] = defaultdict(int)
    for path, module in real.model.named_modules():
        module.register_forward_pre_hook(lambda *call, path=path: running.append(path))
        module.register_forward_hook(lambda *call: (running.pop(), None)[1])

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept.append(tensor)
        if storage.data_ptr() not in owned and storage.data_ptr() not in sizes:
            sizes[storage.data_ptr()] = storage.nbytes()
            packed[running[-1]] += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        real.loss()
    table = seen(name).table
    rows = {row["path"]: row["own_saved_bytes"] for row in table["layers"]}
    rows["outside"] = table["totals"]["outside_bytes"]
    assert {path: size for path, size in rows.items() if size} == dict(packed)
    assert sum(rows.values()) == sum(sizes.values()) > 10_000


@pytest.mark.parametrize("name", MODELS)
def test_modules_equals_the_output_of_print(name: str) -> None:
    case = seen(name)
    ours, theirs = case.graph.to("modules").splitlines(), str(case.model).splitlines()
    classes = {type(module).__name__ for module in case.model.modules()}
    if not classes & PRINT_THEMSELVES:
        assert ours == theirs
        return
    assert len(ours) == len(theirs)
    for mine, printed in zip(ours, theirs, strict=True):
        assert mine == printed or re.sub(r"\(nf=\d+, nx=\d+\)$", "()", printed) == mine


@pytest.mark.parametrize("spec", GRAPHS)
def test_modules_equals_the_output_of_print_for_the_examples(spec: str) -> None:
    with gradir.record() as recorder:
        model, outputs = run(spec)
    if model is None:
        assert recorder.capture(outputs).to("modules") == "(no nodes to show)\n"
        return
    assert recorder.capture(outputs, model=model).to("modules") == f"{model}\n"


def printed(model: nn.Module) -> str:
    return gradir.capture(torch.ones(1, requires_grad=True).exp(), model=model).to("modules")


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Sequential(), nn.Linear(4, 1, bias=False)),
        nn.Transformer(16, 2, 3, 3, 32),
        nn.LSTM(3, 4, num_layers=2, bidirectional=True),
        nn.ModuleList(),
        nn.ModuleDict({"a": nn.ModuleList([nn.Tanh(), nn.Tanh(), nn.GELU()]), "b": nn.Conv2d(1, 2, 3, padding=1)}),
        nn.Linear(2, 2),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_modules_of_torch(model: nn.Module) -> None:
    assert printed(model) == f"{model}\n"


def test_limits_of_the_table() -> None:
    shared = nn.Linear(1, 1)
    twice = nn.Sequential(shared, nn.Tanh(), shared)
    detail = "(in_features=1, out_features=1, bias=True)"
    assert printed(twice) == f"Sequential(\n  (0): Linear{detail}\n  (1): Tanh()\n)\n"
    assert f"  (2): Linear{detail}" in str(twice)
    absent = nn.Sequential(nn.Tanh())
    absent.register_module("1", None)
    assert printed(absent) == "Sequential(\n  (0): Tanh()\n)\n"
    assert "(1): None" in str(absent)
    several = nn.ParameterList([torch.ones(1), torch.ones(2)])
    assert printed(several) == f"ParameterList({' '.join(several.extra_repr().split())})\n"
    assert "\n" in several.extra_repr()


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "summary.md").read_text(encoding="utf-8")
    using = (Path(__file__).resolve().parents[1] / "docs" / "using.md").read_text(encoding="utf-8")
    namespace: dict[str, Any] = {}
    exec(using.partition("With this model in `critic.py`,\n\n```python\n")[2].partition("```")[0], namespace)
    model = namespace["Critic"]()
    with gradir.record(model) as recorder:
        loss = model(torch.ones(2, 4)).sum()
    assert page.partition("```text\n")[2].partition("```")[0] == recorder.capture(loss).to("summary")
