"""Captures of exported programs and FX GraphModules, against another reading of the FX graph."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.8")

import fx_oracle  # noqa: E402
from exported_models import MODELS, export_model  # noqa: E402
from torch.fx.passes.split_module import split_module  # noqa: E402

import gradir  # noqa: E402
from gradir import claims  # noqa: E402
from gradir.cli import main  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.frontends.export.assemble import Assembly  # noqa: E402
from gradir.frontends.export.program import Body, Call, Input, Named, Part, Program  # noqa: E402
from gradir.ir import TensorMeta  # noqa: E402
from gradir.ir.model import NonFinite  # noqa: E402
from gradir.ir.validate import check_all  # noqa: E402

program = cache(export_model)
BODIES = frozenset({"cond", "scan", "while_loop"})


@cache
def graph(name: str) -> gradir.Graph:
    return gradir.capture(program(name))


@pytest.mark.parametrize("name", MODELS)
def test_operations_shapes_parameters_and_edges_are_those_of_the_fx_graph(name):
    found, functions = graph(name), [each for each in graph(name).nodes.values() if each.role == "function"]
    check_all(found)
    made = Counter(
        (node.native, tuple((f"torch.{each.dtype}", *map(str, each.shape)) for each in node.outputs))
        for node in functions
    )
    assert made == fx_oracle.operations(program(name))
    parameters = [each for each in found.nodes.values() if each.role == "parameter"]
    assert {each.names[0]: each.shape for each in parameters} == fx_oracle.parameters(program(name))
    assert sum(len(each.inputs) for each in functions if each.op not in BODIES) == fx_oracle.edges(program(name))


@pytest.mark.parametrize("name", MODELS)
def test_a_capture_is_kept_by_a_file_and_by_every_exporter(name):
    found = graph(name)
    assert gradir.loads(gradir.dumps(found)) == found
    for exporter in ("dot", "mermaid", "tree", "summary", "plain", "html"):
        assert gradir.export(found, exporter)


def test_modules_have_the_classes_calls_and_parameters_of_the_model():
    scopes = graph("gpt").scopes
    assert (scopes[""].class_name, scopes["h.1.qkv"].class_name, scopes["h.1.qkv"].total) == ("Gpt", "Linear", 216)
    assert scopes[""].total == sum(each.numel() for each in {*program("gpt").state_dict.values()})
    assert (graph("tied").scopes["a"].calls, graph("tied").scopes["spare"].calls) == (2, 0)
    assert graph("tied").nodes["a.weight"].names == ("a.weight", "b.weight")


def test_lines_are_those_of_the_model_and_not_of_torch():
    sources = {each.source.file for each in graph("gpt").nodes.values() if each.source is not None}
    assert {source.rpartition("/")[2] for source in sources} == {"exported_models.py"}
    assert all(each.source for each in graph("gpt").nodes.values() if each.role == "function")


def test_symbolic_sizes_are_kept_as_they_are_called():
    (symbol,) = map(str, program("mlp").range_constraints)
    assert graph("mlp").nodes["x"].shape == (symbol, 4)
    assert graph("mlp").nodes["output"].shape == (symbol, 2)
    assert f"float32[{symbol}, 8]" in gradir.export(graph("mlp"), "tree")


class _Halved(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] // 2, 2, -1).mean((0, 2))


def test_a_size_that_torch_computes_from_symbols_is_a_number_if_it_is_known():
    sizes = ({0: 2 * torch.export.Dim("half")},)
    found = gradir.capture(torch.export.export(_Halved(), (torch.ones(4, 6),), dynamic_shapes=sizes))
    assert found.nodes["output"].shape == (2,)
    assert found.nodes["view:1"].shape[1:] == (2, 6)


def test_a_size_that_is_read_from_a_tensor_is_an_attribute_of_what_takes_it():
    functions = {each.op: each for each in graph("number").nodes.values() if each.role == "function"}
    assert functions["item"].outputs == ()
    assert functions["expand"].attrs["size"] == ("u0", 4)


def test_the_branches_of_a_conditional_are_modules_whose_results_it_joins():
    nodes = graph("cond").nodes
    (node,) = (each for each in nodes.values() if each.op == "cond")
    assert [nodes[each.id].op for each in node.inputs] == ["gt", "add", "mul"]
    assert [nodes[each.id].scope for each in node.inputs[1:]] == ["true_graph_0", "false_graph_0"]
    assert graph("cond").scopes["true_graph_0"].class_name == "cond"


class Branch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda a: self.inner(a).sin(), lambda a: a * 2, (x,))


def test_a_body_has_its_own_operations_and_modules_of_the_model_theirs():
    found = gradir.capture(torch.export.export(Branch(), (torch.ones(3, 4),), strict=True))
    places = {node.op: node.scope for node in found.nodes.values() if node.role == "function"}
    assert places == {"sum": "", "gt": "", "linear": "inner", "sin": "true_graph_0", "mul": "false_graph_0", "cond": ""}
    assert set(found.scopes) == {"", "inner", "true_graph_0", "false_graph_0"}


def test_the_body_of_a_scan_shows_its_rounds():
    assert [each.rounds for each in graph("scan").scopes.values() if each.class_name == "scan"] == [5]


def test_reads_after_an_in_place_write_use_the_written_value():
    nodes = graph("written").nodes
    (fill,) = (each for each in nodes.values() if each.op == "fill_")
    (sin,) = (each for each in nodes.values() if each.op == "sin")
    assert (fill.kinds[0], sin.inputs[0].id) == ("inplace", fill.id)


def test_mutations_of_a_functional_program_are_writes():
    functional = gradir.capture(program("written").run_decompositions({}))
    writes = [each for each in functional.nodes.values() if each.op == "copy_"]
    assert {each.inputs[0].id for each in writes} >= {"seen", "norm.running_mean", "norm.running_var"}
    assert {each.kinds for each in writes} == {("inplace", "data")}
    assert [each.id for each in functional.outputs] == ["output:0", "output:1"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mlp", "6 of 6 parameters and 7 of 8 operations"),
        ("gpt", "26 of 26 parameters and 39 of 39 -> 40 operations"),
        ("resnet", "18 of 18 parameters and 26 of 26 operations"),
        ("unet", "8 of 8 parameters and 12 of 12 operations"),
    ],
)
def test_in_shared_words_a_program_is_the_forward_of_its_model(name, told, tmp_path, monkeypatch, capsys):
    model, inputs = MODELS[name]()
    monkeypatch.chdir(tmp_path)
    gradir.save(gradir.capture(model, *inputs, graph="forward"), "eager.gir")
    gradir.save(gradir.capture(torch.export.export(model, inputs)), "exported.gir")
    main(["diff", "eager.gir", "exported.gir", "--vocabulary"])
    assert f"{told} in common" in capsys.readouterr().out


def test_another_process_writes_the_same_bytes(tmp_path):
    code = (
        "import sys, gradir; sys.path.insert(0, sys.argv[1]); from exported_models import export_model\n"
        "for name in ('number', 'cond'): gradir.save(gradir.capture(export_model(name)), f'{sys.argv[2]}/{name}.gir')"
    )
    support = str(Path(__file__).parent / "support")
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, support, str(tmp_path)], check=True, env=environment)
    for name in ("number", "cond"):
        assert (tmp_path / f"{name}.gir").read_text() == gradir.dumps(graph(name)).decode()


def test_a_traced_module_has_its_modules_as_operations():
    found = gradir.capture(torch.fx.symbolic_trace(MODELS["mlp"]()[0]))
    operations = [each for each in found.nodes.values() if each.role == "function"]
    assert [(each.op, each.scope) for each in operations[:2]] == [("linear", "layers.0"), ("relu", "layers.1")]
    assert found.scopes[""].total == 130
    assert found.nodes["layers.0/linear:1"].native == "torch.nn.modules.linear.Linear"


class _Parts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))

    def forward(self, x):
        first, second = self.first(x).chunk(2, -1)
        return torch.cat([second, first], -1).sin()


def _split() -> torch.fx.GraphModule:
    traced = torch.fx.symbolic_trace(_Parts())
    return split_module(traced, traced, lambda node: int(node.name in {"cat", "sin"}))


def _nested() -> torch.fx.GraphModule:
    graph, inner = torch.fx.Graph(), torch.fx.symbolic_trace(_Parts())
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    return torch.fx.GraphModule({"inner": inner}, graph)


@pytest.mark.parametrize(
    ("make", "scopes"),
    [
        (_split, {"", "submod_0", "submod_0.first_0", "submod_0.first_1", "submod_1"}),
        (_nested, {"", "inner", "inner.first", "inner.first.0", "inner.first.1"}),
    ],
)
def test_parts_that_were_traced_by_themselves_are_modules_and_joined_by_their_results(make, scopes):
    found = gradir.capture(make())
    functions = {node.id: node for node in found.nodes.values() if node.role == "function"}
    assert [node.op for node in functions.values()] == ["linear", "relu", "chunk", "getitem", "getitem", "cat", "sin"]
    (cat,) = (node for node in functions.values() if node.op == "cat")
    assert [functions[ref.id].attrs["1"] for ref in cat.inputs] == [1, 0]
    assert {*found.scopes} == scopes


@pytest.mark.parametrize("takes", ["cos", "sin"])
def test_a_graph_that_takes_a_value_before_it_is_made_is_refused(takes):
    graph = torch.fx.Graph()
    sin = graph.call_function(torch.sin, (graph.placeholder("x"),))
    cos = graph.call_function(torch.cos, (sin,))
    graph.output(cos)
    sin.args = ({"sin": sin, "cos": cos}[takes],)
    with pytest.raises(CaptureError, match=f"takes '{takes}', which nothing before it makes"):
        gradir.capture(torch.fx.GraphModule({}, graph))


def test_the_module_of_a_program_is_the_graph_of_the_program():
    module = gradir.capture(program("resnet").module())
    assert not gradir.diff(module, graph("resnet"), ignore=["order", "scopes", "names"])


@pytest.mark.parametrize("place", [0, -1, 1])
def test_an_index_of_a_value_without_metadata_is_an_operation_on_it(place):
    found = gradir.capture(torch.fx.symbolic_trace(lambda x: x.sin()[place].cos()))
    assert [(edge.src, edge.dst) for edge in found.edges] == [
        ("x", "sin:1"),
        ("sin:1", "getitem:1"),
        ("getitem:1", "cos:1"),
        ("cos:1", "output"),
    ]


def test_a_program_may_export_strictly_while_it_is_recorded():
    model, inputs = MODELS["mlp"]()
    with gradir.record(model) as recording:
        exported = torch.export.export(model, inputs, strict=True)
        result = model(*inputs)
    assert "linear" in {each.op for each in gradir.capture(exported).nodes.values()}
    assert recording.capture(result).scopes["layers.0"].calls == 1


def test_a_graph_module_with_inputs_is_run():
    found = gradir.capture(torch.fx.symbolic_trace(MODELS["mlp"]()[0]), torch.ones(1, 4))
    assert "addmm" in {each.op for each in found.nodes.values()}


def test_an_infinity_in_a_list_keeps_its_value():
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.tensor, ([1.0, float("-inf")],)))
    found = gradir.capture(torch.fx.GraphModule({}, graph))
    assert found.nodes["tensor:1"].attrs == {"0": (1.0, NonFinite("-inf"))}


def test_requests_that_an_exported_program_cannot_answer_are_refused_in_one_line():
    with pytest.raises(CaptureError, match="front-end 'export' cannot record every operation of a forward"):
        gradir.capture(program("mlp"), flow=True)


class _Indexed(torch.nn.Module):
    def __init__(self, *index: object) -> None:
        super().__init__()
        self.index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[tuple(torch.tensor([2, 0, 1]) if each is Ellipsis else each for each in self.index)] * 2


@pytest.mark.parametrize("kind", [torch.export.export, lambda module, _: torch.fx.symbolic_trace(module)])
def test_the_dimension_that_an_index_takes_is_compared(kind):
    rows, columns = (kind(_Indexed(*index), (torch.ones(3, 3),)) for index in ((..., slice(None)), (slice(None), ...)))
    edited = gradir.diff(*map(gradir.capture, (rows, columns)))
    assert edited
    assert "computes the same" not in str(edited)


class _WrittenOut(torch.nn.Module):
    def __init__(self, first: float, *, scales_input: bool) -> None:
        super().__init__()
        self.first, self.scales_input = first, scales_input

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.tensor([[self.first, 2.0], [3.0, 4.0]])
        return (x * 2.0) @ weight if self.scales_input else (x @ weight) * 2.0


def test_programs_with_tensors_written_out_compute_the_same_if_these_are_equal():
    modules = _WrittenOut(1.0, scales_input=True), _WrittenOut(9.0, scales_input=False)
    programs = (torch.export.export(module, (torch.ones(3, 2),)).run_decompositions({}) for module in modules)
    found = gradir.diff(*map(gradir.capture, programs))
    assert "computes the same" in str(found)
    assert "if" in str(found).splitlines()[0]


class _NamedAsItsInput(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.x


def test_an_input_with_the_name_of_a_parameter_is_another_tensor():
    found = gradir.capture(torch.export.export(_NamedAsItsInput(), (torch.ones(3),)))
    one, other = found.nodes["mul:1"].inputs
    assert {found.nodes[ref.id].role for ref in (one, other)} == {"input", "parameter"}


def test_a_frontend_for_a_part_of_another_is_neither_blamed_nor_installed_twice():
    assert not any("export" in text for text in claims.describe_lacking("watching"))
    assert claims.advice(ModuleNotFoundError("no torch", name="torch")) == "; pip install 'gradir[torch]'"


def test_a_torch_too_old_says_so(monkeypatch):
    from gradir.frontends.export.frontend import ExportFrontend

    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.7.1"))
    with pytest.raises(CaptureError, match=r"needs torch 2.8 or later, and this is 2.7.1"):
        ExportFrontend()


def test_an_operation_with_a_body_states_which_input_it_writes_to():
    tensor, x = TensorMeta("float32", (2,)), Named("x")
    body = Part(["a"], [Call("relu", "aten.relu", [("self", Named("a"))], ["b"], [tensor], {})], [Named("b")])
    arguments = [("0", x), ("1", Body("body", body)), ("2", x)]
    call = Call("run_", "run_", arguments, ["y"], [tensor], {"0": "inplace"})
    program = Program(Part([], [call], [Named("y")]), {"x": Input("input", ("x",), tensor, False)})
    made = Assembly(program, {"": None}).graph
    node = made.nodes["run_:1"]
    assert [ref and ref.id for ref in node.inputs] == ["x", "body/relu:1"]
    assert node.kinds == ("inplace", "data")
