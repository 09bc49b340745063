"""What an exported program holds, read from its FX graph without gradir: operations, their tensors, what they take.

It knows nothing of writes: an operation takes the value that the FX graph names, whoever wrote to its memory since.
"""

from __future__ import annotations

from collections import Counter
from operator import getitem
from types import FunctionType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph", "tag_activation_checkpoint")


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


def _graphs(module: torch.fx.GraphModule) -> list[torch.fx.GraphModule]:
    used = {getattr(module, node.target) for node in module.graph.nodes if node.op == "get_attr"}
    inner = [each for each in used if isinstance(each, torch.fx.GraphModule)]
    return [module, *(deeper for each in inner for deeper in _graphs(each))]


def operations(program: torch.export.ExportedProgram) -> Counter[tuple[str, tuple[tuple[Any, ...], ...]]]:
    """How often there is an operation of each name with outputs of these dtypes and shapes."""
    buffers = program.graph_signature.inputs_to_buffers
    found: Counter[Any] = Counter()
    for module in _graphs(program.graph_module):
        for node in module.graph.nodes:
            if node.op != "call_function" or str(node.target) in WRAPPERS:
                continue
            if node.target is getitem and isinstance(node.args[0].meta.get("val"), (list, tuple)):
                continue
            if not _counts(node, buffers) and (_tensors(node) or str(node.target) == "aten.item.default"):
                shapes = tuple((str(each.dtype), *map(str, each.shape)) for each in _tensors(node))
                found[_name(node.target), shapes] += 1
    return found


def _name(target: Any) -> str:
    # The text of a function has its address.
    return f"{target.__module__}.{target.__name__}" if isinstance(target, FunctionType) else str(target)


def _counts(node: torch.fx.Node, buffers: dict[str, str]) -> bool:
    """Whether an operation is that by which a batch norm counts, of which nothing is made."""
    if str(node.target) != "aten.add_.Tensor" or node.users or _is_node(node.args[1]):
        return False
    return node.args[0].name in buffers and len(node.args[0].users) == 1


def parameters(program: torch.export.ExportedProgram) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter that an operation takes, by its first name."""
    names = program.graph_signature.inputs_to_parameters
    state, first = program.state_dict, {}
    for name in state:
        first.setdefault(id(state[name]), name)
    return {
        first[id(state[names[node.name]])]: tuple(state[names[node.name]].shape)
        for node in program.graph.nodes
        if node.name in names and node.users
    }


def edges(program: torch.export.ExportedProgram) -> int:
    """How many tensors its operations take that run no body, and how many come out."""
    found, buffers = 0, program.graph_signature.inputs_to_buffers
    for module in _graphs(program.graph_module):
        for node in module.graph.nodes:
            if (
                node.op != "call_function"
                or _counts(node, buffers)
                or not (_tensors(node) or str(node.target) == "aten.item.default")
            ):
                continue
            if node.target is not getitem and not isinstance(node.target, torch._ops.HigherOrderOperator):
                found += sum(bool(_tensors(each)) for each in tree_leaves((node.args, node.kwargs)) if _is_node(each))
    return found


def _is_node(value: object) -> bool:
    return isinstance(value, torch.fx.Node)
