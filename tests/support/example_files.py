"""The examples of the repository, as the tests reach them."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradir
from gradir import CaptureRequest, registry

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

GPT_SPECS = ("gpt.py:loss", "gpt.py:edited", "gpt.py:swapped")

GRAPHS = (
    "arithmetic.py:product",
    "arithmetic.py:whole",
    "arithmetic.py:cut",
    "branches.py:joined",
    "branches.py:detached",
    "linear_regression.py:squared_loss",
    "mlp_critic.py:values",
    "policy.py:relaxed",
    "gradient_penalty.py:penalty",
    "lstm_cell.py:step",
    "dcgan.py:discriminator_step",
    "dcgan.py:generator_step",
    "resnet.py:loss",
    "unet.py:loss",
    "recurrent.py:loss",
    "mixture.py:loss",
    *GPT_SPECS,
)
"""Every attribute of an example that is called for something with a graph."""


def attribute(spec: str) -> Any:
    """What ``FILE:NAME`` names in the examples, from a freshly run module."""
    file, _, name = spec.partition(":")
    module_name = f"gradir_example_{Path(file).stem}"
    location = importlib.util.spec_from_file_location(module_name, EXAMPLES / file)
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    # A dataclass looks its module up while it is made.
    sys.modules[module_name] = module
    location.loader.exec_module(module)
    return getattr(module, name)


def run(spec: str) -> tuple[Any, Any]:
    """The model, ``None`` where there is none, and the outputs of an example."""
    returned = attribute(spec)()
    return returned if isinstance(returned, tuple) else (None, returned)


def live(target: object, *inputs: str, **options: Any) -> Any:
    """Run a target, as ``gradir capture`` does what its PROGRAM names."""
    request = CaptureRequest(target=target, inputs=inputs, is_program=True, **options)
    return registry.frontend("torch").capture(request)


@cache
def capture_example(spec: str) -> gradir.Graph:
    return live(attribute(spec)).graph


@cache
def record_example(spec: str, *options: str) -> gradir.Graph:
    """The graph of an example as the command captures it."""
    from gradir.cli import main

    with TemporaryDirectory() as folder:
        path = Path(folder, "example.gir")
        # A forward that raised is status 1, and its graph ends there.
        assert main(["capture", f"{EXAMPLES}/{spec}", *options, "-o", str(path)]) < 2
        return gradir.load(path)


def ids(graph: gradir.Graph, role: str) -> list[str]:
    return [node.id for node in graph.nodes.values() if node.role == role]
