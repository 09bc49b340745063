"""Trace forward and backward of a module as one graph, and what is kept between the two under ``torch.compile``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from math import prod
from operator import getitem
from typing import Any, Final

import torch
from torch import fx

from gradir.errors import CaptureError
from gradir.frontends.export.fx import program_of, shared_names
from gradir.frontends.export.program import Call, Kept, Named, Program
from gradir.frontends.pytorch.target import Joint
from gradir.ir import Cut
from gradir.spec import called

_ROLES: Final = {"ParamAOTInput": "parameter", "BufferAOTInput": "buffer", "TangentAOTInput": "input"}
_GRADIENT: Final = "GradAOTOutput"
_WRITE: Final = "InputMutationAOTOutput"


def joint_program(target: Any) -> Program:
    """Read the joint graph of a module with its inputs, or of an exported program on its example inputs.

    Raises:
        CaptureError: there are no inputs, or torch cannot trace the module.
    """
    name = type(target.module if isinstance(target, Joint) else target).__name__
    if not isinstance(target, Joint) and getattr(target, "example_inputs", None) is None:
        raise CaptureError(f"a joint graph needs a module and its inputs, and {name} has none: give the module")
    graph, shared = called(lambda: _traced(target), name)
    return _with_kept(graph, _named(graph, program_of(graph), shared))


def _traced(target: Any) -> tuple[fx.GraphModule, Mapping[str | None, tuple[str, ...]]]:
    """The joint graph, for which nothing is computed, and all names of what the module holds."""
    try:
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    except ImportError as error:
        raise CaptureError(f"a joint graph needs a later torch than {torch.__version__}: update it") from error
    if isinstance(target, Joint):
        target = torch.export.export(target.module, target.args, target.kwargs)
    args, kwargs = target.example_inputs
    with ExitStack() as stack:
        found = aot_export_joint_with_descriptors(stack, target.module(), args, kwargs)
        return found.graph_module, shared_names(target)


def _named(graph: fx.GraphModule, program: Program, shared: Mapping[str | None, tuple[str, ...]]) -> Program:
    """The program with the names that torch's descriptions give to its inputs and outputs."""
    placeholders = {node.meta["desc"]: node.name for node in graph.graph.nodes if node.op == "placeholder"}
    (returned,) = (node for node in graph.graph.nodes if node.op == "output")
    inputs = dict(program.inputs)
    writes, outputs, paths, reached = [], [], list[str](), set[Any]()
    for value, what in zip(program.part.outputs, returned.meta["desc"], strict=True):
        kind = type(what).__name__
        if not isinstance(value, Named):
            continue
        if kind == _WRITE:
            writes.append((placeholders[what.mutated_input], value.name))
            continue
        of = getattr(getattr(what, "grad_of", None), "target", None)
        owners = shared.get(of, (of,))
        reached.add(owners)
        outputs.append(value)
        paths.append(str(len(paths)) if of is None else f"grad.{owners[0]}")
    cuts = []
    for what, name in placeholders.items():
        role = _ROLES.get(type(what).__name__, "input")
        names = (
            shared.get(what.target, (what.target,))
            if role != "input"
            else (name,)
            if "Tangent" in type(what).__name__
            else ()
        )
        inputs[name] = known = inputs[name]._replace(role=role, names=names, trainable=names in reached)
        if role == "parameter" and names not in reached:
            cuts.append(Cut("unreached", names, names[0].rpartition(".")[0], known.tensor))
    part = program.part._replace(outputs=outputs)
    return program._replace(part=part, inputs=inputs, writes=writes, kind="joint", paths=paths, cuts=cuts)


def _with_kept(graph: fx.GraphModule, program: Program) -> Program:
    """The program with what the partitioner of ``torch.compile`` keeps for the backward, and what it computes anew."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    places = dict(_places(graph))
    numbers = {node.name: node.meta.get("seq_nr") for node in graph.graph.nodes}
    is_backward = {node.name for node in graph.graph.nodes if node.meta.get("partitioner_tag") == "is_backward"}
    (returned,) = (node for node in graph.graph.nodes if node.op == "output")
    count = sum(type(what).__name__ != _GRADIENT and what is not None for what in returned.meta["desc"])
    forward, backward = min_cut_rematerialization_partition(graph, None, num_fwd_outputs=count)
    (ends,) = (node.args[0] for node in forward.graph.nodes if node.op == "output")
    states = {node.name: "held" for node in ends[count:] if isinstance(node, fx.Node)}
    again = {node.name for node in backward.graph.nodes if node.op == "call_function"} - is_backward
    states |= {name: "recomputed" for name in again if name in places and name not in states}
    kept: dict[str, dict[int, str]] = {}
    for name, state in states.items():
        if name in places:
            call, number = places[name]
            kept.setdefault(call, {})[number] = state
    calls = [
        call._replace(
            number=numbers.get(name),
            is_backward=name in is_backward,
            kept=[_kept(call, number, state) for number, state in sorted(kept.get(name, {}).items())],
        )
        for call in program.part.calls
        for name in [call.makes[0].partition("[")[0] if call.makes else ""]
    ]
    return program._replace(part=program.part._replace(calls=calls))


def _places(graph: fx.GraphModule) -> Iterator[tuple[str, tuple[str, int]]]:
    """By the name of a node the operation that makes its value, and which of its outputs that is."""
    for node in graph.graph.nodes:
        if node.op == "call_function":
            source, number = node.args if node.target is getitem else [node, 0]
            yield node.name, (source.name, number)


def _kept(call: Call, number: int, state: str) -> Kept:
    tensor = call.tensors[number]
    sizes, dtype = [size for size in tensor.shape or () if isinstance(size, int)], getattr(torch, tensor.dtype or "", 0)
    if not isinstance(dtype, torch.dtype) or len(sizes) < len(tensor.shape or ()) or state != "held":
        return Kept(number, None, state)
    return Kept(number, prod(sizes) * dtype.itemsize, state)
