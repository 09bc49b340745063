"""Joint graphs of forward and backward, beside the autograd graph of the same model."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from exported_models import MODELS, export_model  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.passes import fold  # noqa: E402

NAMES = ("mlp", "tied", "written", "gpt", "unet")


@cache
def joint(name: str) -> gradir.Graph:
    model, inputs = MODELS[name]()
    return gradir.capture(model, *inputs, graph="joint")


def reached(graph: gradir.Graph) -> set[str]:
    return {each.names[0] for each in graph.nodes.values() if each.role == "parameter"}


@pytest.mark.parametrize("name", NAMES)
def test_gradients_come_to_the_parameters_of_the_autograd_graph(name):
    model, inputs = MODELS[name]()
    eager = gradir.capture(model, *inputs)
    gradients = {each.id.partition(".")[2] for each in joint(name).outputs if each.id.startswith("output:grad.")}
    assert gradients == reached(eager)
    assert {cut.names[0] for cut in joint(name).cuts} == {cut.names[0] for cut in eager.cuts}
    assert gradir.loads(gradir.dumps(joint(name))) == joint(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_backward_node_names_the_forward_node_of_its_module(name):
    nodes = joint(name).nodes
    told = [each for each in nodes.values() if each.ext.get("phase") == "backward" and "differentiates" in each.ext]
    assert told
    # A part for the forward, and one for the backward.
    assert not any("#3" in node_id for node_id in fold(joint(name), 2).nodes)
    for each in told:
        forward = nodes[each.ext["differentiates"]]
        assert forward.scope == each.scope
        assert "phase" not in forward.ext


def test_a_joint_graph_reports_saved_bytes_and_recomputed_values():
    slots = [(node.id, slot) for node in joint("mlp").nodes.values() for slot in node.saved]
    held = {name: slot.bytes for name, slot in slots if slot.state == "held" and not slot.storage}
    assert held == {"layers.1/relu:1": 96, "layers.3/relu:1": 96}
    assert "saved for backward: 192 bytes" in gradir.export(joint("mlp"), "summary")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a program, and returns what names a function of it."""
    monkeypatch.chdir(tmp_path)
    # Dynamo looks up the globals of a function in the module of that name.
    monkeypatch.delitem(sys.modules, "train", raising=False)

    def write(body: str, attribute: str = "loss") -> str:
        Path("train.py").write_text(f"import torch\nfrom exported_models import Mlp, Written\n\n{body}", "utf-8")
        return f"train.py:{attribute}"

    return write


def kept(graph: gradir.Graph) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, _, size in graph.producer.options["savings"]:
        found[name] += size
    return found


@pytest.mark.parametrize("name", ["gpt", "unet"])
def test_bytes_that_each_partitioner_keeps_are_those_of_a_real_run(name):
    model, inputs = MODELS[name]()
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}

    def saved(call) -> int:
        met: dict[int, torch.Tensor] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            met.setdefault(tensor.untyped_storage().data_ptr(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            call(*inputs)
        return sum(tensor.untyped_storage().nbytes() for place, tensor in met.items() if place not in own)

    real = {"eager": saved(model)}
    for partitioner, backend in (("default", "aot_eager_default_partitioner"), ("min-cut", "aot_eager")):
        torch.compiler.reset()
        compiled = torch.compile(model, backend=backend)
        compiled(*inputs)
        # The call that compiles saves tensors without data.
        real[partitioner] = saved(compiled)
    assert kept(joint(name)) == real
    assert f"saved for backward by eager {real['eager']:,}, default" in gradir.export(joint(name), "summary")


@pytest.mark.parametrize(("returned", "start"), [("", ""), ("torch.nn.ModuleList([model]), ", "0.")])
def test_a_loss_that_makes_its_model_is_traced_with_the_names_of_eager(returned, start, program):
    name = program(f"def loss():\n    model = Mlp()\n    return {returned}model(torch.randn(3, 4)).square().mean()\n")
    assert main(["capture", name, "--graph", "joint", "-o", "loss.gir"]) == 0
    found = gradir.load("loss.gir")
    gradients = {f"output:grad.{start}{each}" for each in reached(joint("mlp"))}
    assert {each.id for each in found.outputs} == {"output:0", *gradients}
    assert found.scopes[f"{start}layers.0"].detail == "in_features=4, out_features=8, bias=True"
    assert {node.source.line for node in found.nodes.values() if node.op in {"pow", "mean"}} == {6}
    assert main(["capture", name, "--graph", "joint", "--fake"]) == 2
    assert main(["capture", program("loss = 3"), "--graph", "joint"]) == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize(
    "line", ["torch.cuda.synchronize()", "torch.cuda.current_device()", "x.cuda()", "x.to('cuda')"]
)
def test_a_module_for_a_missing_device_is_traced_without_data(line, program):
    name = program(
        f"class Net(Mlp):\n    def forward(self, x):\n        {line}\n        return self.layers(x)\n", "Net"
    )
    assert main(["capture", name, "--input", "float32[3,4]", "--graph", "joint", "--fake", "-o", "net.gir"]) == 0
    assert reached(gradir.load("net.gir")) == reached(joint("mlp"))


def test_a_function_is_traced_with_its_arguments():
    model, inputs = MODELS["mlp"]()
    found = gradir.capture(lambda x, scale: (model(x) * scale).sum(), *inputs, graph="joint", kwargs={"scale": 2.0})
    assert reached(found) == reached(joint("mlp"))
    assert "x" in found.nodes


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


def test_the_backward_of_a_custom_function_is_of_the_backward():
    model, inputs = MODELS["mlp"]()
    nodes = gradir.capture(lambda x: Square.apply(model(x)).sum(), *inputs, graph="joint").nodes
    (taking,) = (each for each in nodes.values() if any(ref and ref.id.startswith("expand:") for ref in each.inputs))
    assert (taking.op, taking.ext["phase"]) == ("mul", "backward")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("y = y * 2 if y.sum().item() > 0 else y", "breaks this one at train.py:7 (Unsupported Tensor.item() call"),
        ("y = y.detach()", "train.py:loss: the output has no graph"),
        ("y = torch._dynamo.graph_break() or y", "breaks this one at train.py:7 ("),
    ],
)
def test_a_loss_that_is_not_one_graph_is_one_line(line, words, program, capsys):
    name = program(
        "model = Mlp()\ndef loss():\n    y = model(torch.randn(3, 4))\n    " + line + "\n    return y.square().mean()\n"
    )
    assert main(["capture", name, "--graph", "joint"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert words in told


BROKEN = """class Broken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = torch.nn.Linear(4, 4), Mlp(), torch.nn.Linear(2, 2)

    def forward(self, x):
        y = self.a(x).relu()
        print("between")
        y = self.b(y)
        if y.sum().item() > 1e9:
            y = y * 2
        return self.head(y)

model = torch.compile(Broken())

def loss():
    return model(torch.ones(3, 4)).sum()

def twice():
    return model(torch.ones(3, 4)).sum() + model(torch.ones(5, 4)).sum()

def plain():
    return Mlp()(torch.ones(3, 4)).sum()

@torch.compile
def step(x):
    return Mlp.shared(x).square().mean()

Mlp.shared = Mlp()

def function():
    return step(torch.ones(3, 4))
"""


def test_graphs_of_compiled_code_are_one_document_with_their_breaks(program, capsys):
    name = program(BROKEN)
    assert main(["capture", name, "--graph", "compiled", "-o", "loss.gir"]) == 0
    found = gradir.load("loss.gir")
    assert [(cut.kind, cut.op.partition(" ")[0], cut.source.line) for cut in found.cuts] == [
        ("graph_break", "Failed", 11),
        ("graph_break", "Unsupported", 13),
    ]
    assert "`print`" in found.cuts[0].op
    assert main(["explain", "loss.gir"]) == 0
    assert "breaks the graph here, and gradients continue in the next one: Failed to trace" in capsys.readouterr().out
    gradients = {each.id.partition(".")[2] for each in found.outputs if each.id.startswith("output:grad.")}
    assert {"a.weight", "b.layers.0.weight", "head.bias"} <= gradients
    assert found.nodes["a/addmm:1"].ext["region"] == 1
    assert found.nodes["b.layers.0/addmm:1"].ext["region"] == 2
    # The backward of the first graph takes what that of the second gives.
    (made,) = (
        node for node in found.nodes.values() if node.scope == "b.layers.0" and node.op == "mm" and node.shape == (3, 4)
    )
    assert any(
        ref.id == made.id for node in found.nodes.values() if node.ext.get("region") == 1 for ref in node.inputs if ref
    )
    assert gradir.loads(gradir.dumps(found)) == found


def test_a_new_shape_is_reported_as_a_recompilation(program):
    assert main(["capture", program(BROKEN, "twice"), "--graph", "compiled", "-o", "twice.gir"]) == 0
    found = gradir.load("twice.gir")
    again = [cut for cut in found.cuts if cut.kind == "recompile"]
    assert again
    assert "size mismatch at index 0. expected 3, actual 5" in again[0].op
    assert any(isinstance(size, str) for node in found.nodes.values() for size in node.shape or ())


def test_a_compiled_function_is_captured_and_code_that_is_not_compiled_refused(program, capsys):
    name = program(BROKEN, "function")
    assert main(["capture", name, "--graph", "compiled", "-o", "function.gir"]) == 0
    found = gradir.load("function.gir")
    assert not found.cuts
    assert kept(found)["inductor"]
    assert main(["check", name, "--against", "function.gir"]) == 0
    assert main(["capture", program(BROKEN, "plain"), "--graph", "compiled"]) == 2
    assert "no compiled code ran" in capsys.readouterr().err


def test_an_lstm_has_a_joint_graph_with_its_parameters(program, monkeypatch):
    # As torch's own test helpers leave it: flags may only change within a block.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", False)
    name = program("def loss():\n    return torch.nn.LSTM(3, 4)(torch.ones(2, 1, 3))[0].sum()\n")
    assert main(["capture", name, "--graph", "joint", "-o", "lstm.gir"]) == 0
    assert reached(gradir.load("lstm.gir")) == {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}
    assert torch.backends.mkldnn.enabled


def test_a_program_that_was_exported_has_a_joint_graph_on_its_example_inputs():
    assert reached(gradir.capture(export_model("mlp"), graph="joint")) == reached(joint("mlp"))


LOSING = """class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.lost = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.kept(x) + self.lost(x).detach()

def exported():
    return torch.export.export(Net(), (torch.ones(3, 4),))

program, traced = exported(), torch.fx.symbolic_trace(Net())
"""


@pytest.mark.parametrize("name", ["exported", "program"])
def test_an_exported_program_is_explained_by_its_joint_graph(name, program, capsys):
    named = program(LOSING, name)
    assert main(["explain", named]) == 0
    told = capsys.readouterr().out
    assert told.startswith("2 of 4 parameters are in the graph; 2 get no gradient")
    assert "all of lost" in told.splitlines()[0]
    assert main(["capture", named, "--graph", "joint", "-o", "joint.gir"]) == 0
    assert main(["explain", "joint.gir"]) == 0
    assert capsys.readouterr().out.startswith("2 of 4 parameters are in the graph; 2 get no gradient")


def test_a_graph_module_is_explained_where_it_runs_on_inputs(program, capsys):
    assert main(["explain", program(LOSING, "traced")]) == 2
    assert "needs a function, or a module and its inputs" in capsys.readouterr().err
    assert main(["explain", "train.py:traced", "--input", "float32[3,4]"]) == 1
    assert "detach() cuts all of lost" in capsys.readouterr().out


def test_the_command_traces_a_class_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import exported_models

    monkeypatch.chdir(tmp_path)
    arguments = ["capture", f"{exported_models.__file__}:Mlp", "--input", "float32[3,4]", "--graph", "joint"]
    assert main([*arguments, "-o", "joint.gir"]) == 0
    assert gradir.load("joint.gir").nodes.keys() == joint("mlp").nodes.keys()
    pictures = [gradir.export(gradir.load("joint.gir"), exporter) for exporter in ("html", "dot", "mermaid", "tree")]
    assert "Joint graph of Mlp" in pictures[2]
    assert all("mm (backward)" in picture for picture in pictures[1:3])


def test_a_target_without_a_joint_graph_is_refused_in_one_line():
    with pytest.raises(CaptureError, match="a joint graph is traced of a function or a module"):
        gradir.capture(torch.ones(2, requires_grad=True).exp(), graph="joint")
    with pytest.raises(CaptureError, match="needs a function, or a module and its inputs, and Mlp has none"):
        gradir.capture(torch.fx.symbolic_trace(MODELS["mlp"]()[0]), graph="joint")


def test_an_old_torch_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.9.1"))
    for target in (MODELS["mlp"]()[0], export_model("mlp")):
        with pytest.raises(CaptureError, match=r"need torch 2\.10 or later, and this is 2\.9\.1"):
            gradir.capture(target, graph="joint")


def test_a_check_captures_a_joint_graph_for_a_joint_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    import exported_models

    monkeypatch.chdir(tmp_path)
    program = [f"{exported_models.__file__}:Mlp", "--input", "float32[3,4]"]
    assert main(["capture", *program, "--graph", "joint", "-o", "joint.gir"]) == 0
    assert main(["check", *program, "--against", "joint.gir"]) == 0
    assert capsys.readouterr().out == "no difference in the joint graph\n"
    assert main(["capture", *program, "--graph", "joint", "--verify"]) == 2
    assert "verifying needs an autograd graph, which --graph joint does not capture" in capsys.readouterr().err
