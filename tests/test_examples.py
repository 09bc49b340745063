"""Examples from Python and from the command line. test_torch_releases compares their whole graphs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import forked
import pytest

pytest.importorskip("torch")

from example_files import EXAMPLES, GRAPHS, attribute, capture_example, ids

import gradir

ACCUMULATOR = "/accumulate_grad:1"


def command(
    *arguments: str | Path, hash_seed: str | None = None, cwd: Path | None = None, executable: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **({"PYTHONHASHSEED": hash_seed} if hash_seed else {})}
    return forked.run([sys.executable, *arguments], env=environment, cwd=cwd, executable=executable)


def capture_to(file: Path, spec: str, *inputs: str) -> bytes:
    options = [word for text in inputs for word in ("--input", text)]
    done = command("-m", "gradir", "capture", spec, *options, "-o", file)
    assert done.returncode == 0, done.stderr.decode()
    return file.read_bytes()


@pytest.mark.parametrize("spec", GRAPHS)
def test_accumulators(spec: str) -> None:
    graph = capture_example(spec)
    leaves = [*ids(graph, "leaf"), *ids(graph, "parameter")]
    accumulators = {node.id: node for node in graph.nodes.values() if node.op == "accumulate_grad"}
    assert {leaf + ACCUMULATOR for leaf in leaves} == set(accumulators)
    assert all(node.inputs == (gradir.Ref(name.removesuffix(ACCUMULATOR), 0),) for name, node in accumulators.items())
    consumed = Counter(edge.src for edge in graph.edges)
    assert all(consumed[leaf] == 1 for leaf in leaves)


@pytest.mark.parametrize(
    "spec", ["arithmetic.py:product", "dcgan.py:generator_step", "recurrent.py:loss", "gpt.py:loss"]
)
def test_the_command_line_writes_the_same_bytes(spec: str, tmp_path: Path) -> None:
    assert capture_to(tmp_path / "a.gir", f"{EXAMPLES / spec}") == gradir.dumps(capture_example(spec))


CAPTURES = """
import sys
from gradir.cli.main import main
folder, target = sys.argv[1:]
for spec in ("gpt.py:loss", "resnet.py:loss", "lstm_cell.py:step"):
    for graph in ("autograd", "forward"):
        words = [f"{folder}{spec}", "--graph", graph, "-o", f"{target}/{spec.partition('.')[0]}-{graph}.gir"]
        assert main(["capture", *words]) == 0
"""


def test_hash_seed_and_directory_leave_no_trace(tmp_path: Path) -> None:
    written = []
    # A fork has the hash seed of the process that it comes from, which is a random one.
    for seed, folder, cwd in ((None, "", EXAMPLES), ("4242", "examples/", EXAMPLES.parent)):
        target = tmp_path / (seed or "random")
        target.mkdir()
        done = command("-c", CAPTURES, folder, target, hash_seed=seed, cwd=cwd)
        assert done.returncode == 0, done.stderr.decode()
        # The forward has the lines of the program, told from the working directory.
        lines = f'"file":"{folder}'.encode()
        written.append({path.name: path.read_bytes().replace(lines, b'"file":"') for path in target.iterdir()})
    assert written[0] == written[1]
    assert len(written[0]) == 6


@pytest.mark.parametrize(
    ("spec", "inputs", "shape", "scopes"),
    [
        ("mlp_critic.py:Critic", ["float32[4,3]", "float32[4,2]"], (4,), 7),
        ("resnet.py:ResNet", ["float32[2,3,32,32]"], (2, 10), 72),
        ("gpt.py:GPT", ["int64[2,16]"], (2, 16, 64), 126),
    ],
)
def test_module_classes_run_on_inputs(
    spec: str, inputs: list[str], shape: tuple[int, ...], scopes: int, tmp_path: Path
) -> None:
    graph = gradir.loads(capture_to(tmp_path / "a.gir", f"{EXAMPLES / spec}", *inputs))
    assert [(node.id, node.shape) for node in graph.outputs] == [("output", shape)]
    assert len(graph.scopes) == scopes
    assert all(scope.calls for scope in graph.scopes.values() if scope.class_name != "ModuleList")
    assert not graph.cuts


def test_a_sample_has_no_graph_and_the_error_says_why(tmp_path: Path) -> None:
    done = command("-m", "gradir", "capture", EXAMPLES / "policy.py:sampled", "-o", tmp_path / "a.gir")
    assert done.returncode == 2
    assert not done.stdout
    assert list(tmp_path.iterdir()) == []
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("gradir: ")
    assert "its dtype int64 carries no gradient (samples, indices and comparisons never do)" in line


def test_names_given_in_python() -> None:
    named = attribute("arithmetic.py:tensors")()
    graph = gradir.capture(named["d"], params=named)
    assert {node.id: node.names for node in graph.nodes.values() if node.names} == {
        "a": ("a",),
        "b": ("b",),
        "add:1": ("c",),
        "mul:1": ("d",),
        "output": ("d",),
    }


def test_a_leaf_keeps_its_role_and_a_parameter_gets_its_own() -> None:
    graph = capture_example("gradient_penalty.py:penalty")
    assert ids(graph, "leaf") == ["leaf:1"]
    assert ids(graph, "parameter") == ["2.weight", "0.bias", "0.weight"]
    # A constant added to a function has no part in its slope.
    assert [(cut.kind, cut.names) for cut in graph.cuts] == [("unreached", ("2.bias",))]


def test_the_discriminator_step_cuts_the_generator_off() -> None:
    gan = attribute("dcgan.py:GAN")()
    cut = [cut.names[0] for cut in capture_example("dcgan.py:discriminator_step").cuts]
    assert cut == [f"generator.{name}" for name, _ in gan.generator.named_parameters()]
    assert capture_example("dcgan.py:generator_step").cuts == ()


def test_resnet() -> None:
    graph = capture_example("resnet.py:loss")
    counts = Counter(node.op for node in graph.nodes.values() if node.role == "function")
    assert counts == {
        "accumulate_grad": 62,
        "convolution": 20,
        "native_batch_norm": 20,
        "relu": 17,
        "add": 8,
        "mean": 1,
        "view": 1,
        "t": 1,
        "addmm": 1,
        "log_softmax": 1,
        "nll_loss": 1,
    }
    model, _ = attribute("resnet.py:loss")()
    assert sorted(ids(graph, "parameter")) == sorted(name for name, _ in model.named_parameters())
    # num_batches_tracked is counted, not differentiated through.
    statistics = [name for name, _ in model.named_buffers() if not name.endswith("num_batches_tracked")]
    assert ids(graph, "buffer") == statistics
    for stage in range(1, 5):
        for block in range(2):
            assert shortcut(graph, stage, block) == expected_shortcut(stage, block)


def shortcut(graph: gradir.Graph, stage: int, block: int) -> list[str]:
    return [ref.id for ref in graph.nodes[f"layer{stage}.{block}/add:1"].inputs if ref]


def expected_shortcut(stage: int, block: int) -> list[str]:
    before = f"layer{stage}.0" if block else f"layer{stage - 1}.1"
    identity = f"{before}.relu/relu:2" if (stage, block) != (1, 0) else "relu/relu:1"
    projected = f"layer{stage}.0.downsample.1/native_batch_norm:1"
    second = projected if block == 0 and stage > 1 else identity
    return [f"layer{stage}.{block}.bn2/native_batch_norm:1", second]


def taken(graph: gradir.Graph, consumer: str) -> list[str]:
    """The ids of what a node takes from."""
    return [ref.id for ref in graph.nodes[consumer].inputs if ref]


def test_a_level_up_of_the_unet_reads_the_level_down_that_it_mirrors() -> None:
    graph = capture_example("unet.py:loss")
    for level, mirrored in enumerate((2, 1, 0)):
        assert taken(graph, f"cat:{level + 1}") == [f"widen.{level}/convolution:1", f"down.{mirrored}/relu:2"]
        assert f"cat:{level + 1}" in taken(graph, f"up.{level}.conv1/convolution:1")
    assert not graph.cuts


def test_the_recurrent_cell_is_called_fifty_times_with_the_same_weights() -> None:
    graph = capture_example("recurrent.py:loss")
    assert graph.scopes["cell"].calls == 50
    counts = Counter(node.op for node in graph.nodes.values() if node.scope == "cell")
    assert counts["unsafe_split"] == 50
    assert counts["addmm"] == 100
    for weight in ("weight_ih", "weight_hh"):
        users = [graph.nodes[edge.dst].op for edge in graph.edges if edge.src == f"cell.{weight}{ACCUMULATOR}"]
        assert users == ["t"] * 50


def test_every_expert_reads_the_trunk_and_is_weighed_by_the_gate() -> None:
    graph = capture_example("mixture.py:loss")
    (stack,) = (node for node in graph.nodes.values() if node.op == "stack")
    assert len(stack.inputs) == 24
    for expert, ref in enumerate(stack.inputs):
        assert ref is not None
        weight, answer = taken(graph, ref.id)
        assert answer == f"experts.{expert}/addmm:1"
        assert graph.nodes[weight].op == "unsqueeze"
        assert "tanh:1" in taken(graph, answer)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_import_a_framework_and_nothing_else_outside_the_standard_library(path: Path) -> None:
    allowed = {"jax"} if path.name.startswith("jax_") else {"torch", "gradir"}
    allowed |= {"transformers"} if path.name in {"llama.py", "t5.py"} else set()
    allowed |= {"equinox", "flax"} if path.name == "jax_modules.py" else set()
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - sys.stdlib_module_names <= allowed


@pytest.mark.parametrize(
    ("script", "names"), [("arithmetic.py", "abcd"), ("branches.py", "xh"), ("linear_regression.py", "wb")]
)
def test_scripts_print_their_graph_with_names(script: str, names: str) -> None:
    done = command(EXAMPLES / script)
    assert done.returncode == 0, done.stderr.decode()
    words = re.findall(r"[\w.]+", done.stdout.decode())
    assert set(names) <= set(words)


def test_the_readme_and_the_docstrings_name_what_exists() -> None:
    documents = [EXAMPLES / "README.md", *EXAMPLES.glob("*.py")]
    named = set()
    for document in documents:
        text = document.read_text(encoding="utf-8")
        named |= set(re.findall(r"examples/(\w+\.py:\w+)", text))
    for row in re.findall(r"^\| (`.*?) \|", documents[0].read_text(encoding="utf-8"), re.MULTILINE):
        file = ""
        for spec in re.findall(r"`([\w.]*:\w+)`", row):
            file = spec.partition(":")[0] or file
            named.add(f"{file}:{spec.partition(':')[2]}")
    assert named >= {*GRAPHS, "policy.py:sampled"}
    assert all(callable(attribute(spec)) for spec in named if not spec.startswith("jax_"))


def test_the_demo_runs_and_lists_what_it_wrote(tmp_path: Path) -> None:
    python = tmp_path / "python"
    forked.program(python, ())
    done = command(EXAMPLES / "demo.py", "out", cwd=tmp_path, executable=python)
    output = done.stdout.decode()
    assert done.returncode == 0, output + done.stderr.decode()
    expected = [
        "model.gir",
        "model.html",
        "model.mmd",
        "model.dot",
        "model.svg",
        "model.tree.txt",
        "model.txt",
        "edited.gir",
    ]
    expected.append("review.html")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(expected)
    listed = re.findall(r"^  out/(\S+) +([\d,]+) bytes$", output.replace(os.sep, "/"), re.MULTILINE)
    sizes = {name: int(size.replace(",", "")) for name, size in listed}
    assert sizes == {name: (tmp_path / "out" / name).stat().st_size for name in expected}
    assert output.count("\n$ gradir ") == 11
    assert (tmp_path / "out" / "review.html").resolve().as_uri() in output
    assert "h.3.mlp.adapter" in output


def test_the_demo_fails_when_a_command_does(tmp_path: Path) -> None:
    (tmp_path / "model.gir").mkdir()
    done = command(EXAMPLES / "demo.py", tmp_path)
    assert done.returncode == 1
    assert "status 2, not 0" in done.stderr.decode()
