"""Read a ``torch.export`` program or an FX GraphModule into the records of a program."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from operator import getitem
from typing import Any, Final

import torch
from torch import fx, nn

from gradir.frontends.export.assemble import WRAPPERS, flatten_argument
from gradir.frontends.export.operators import METHOD, Operation, operation_of
from gradir.frontends.export.program import Body, Call, Input, Module, Named, Part, Program, modules_of
from gradir.frontends.export.sizes import size_text
from gradir.frontends.pytorch.reading.attributes import bare_name, device_name, plain_value
from gradir.frontends.pytorch.reading.members import iter_module_tensors, modules_at
from gradir.frontends.pytorch.recording.steps import name_arguments
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import join_paths
from gradir.ir import TensorMeta
from gradir.ir.frozen import NOTHING
from gradir.ir.memo import group_by_key

_ROLES: Final = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "buffer", "USER_INPUT": "input"}
_UNKNOWN: Final = object()
_SCALARS: Final = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def program_of(target: Any, prefix: str = "") -> Program:
    """Read an ExportedProgram or a GraphModule of any origin. ``prefix`` is the prefix of the names of its values."""
    version = str(torch.__version__)
    if isinstance(target, fx.GraphModule):
        reader = _Reader(target, prefix=prefix)
        return Program(reader.part, reader.inputs, version=version)
    signature = target.graph_signature
    arguments = {spec.arg.name if spec.target is None else spec.target: spec.arg.name for spec in signature.input_specs}
    reader = _Reader(target.graph_module, describe_inputs(target))
    # The input that each output is written to, or None.
    targets = (
        arguments.get(spec.target, "") if spec.kind.name.endswith("_MUTATION") else None
        for spec in signature.output_specs
    )
    pairs = [*zip(chain(targets, repeat(None)), reader.part.outputs, strict=False)]
    writes = [(name, value.name) for name, value in pairs if name and type(value) is Named]
    outputs = [value for name, value in pairs if name is None]
    return Program(reader.part._replace(outputs=outputs), reader.inputs, writes, version)


def describe_inputs(target: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the role and the names of each input of an exported program. A tied tensor has all of its names."""
    tensors = {**target.state_dict, **target.constants}
    names = group_by_key((id(tensor), name) for name, tensor in tensors.items())
    known: dict[str, tuple[str, tuple[str, ...]]] = {}
    for spec in target.graph_signature.input_specs:
        role = _ROLES.get(spec.kind.name)
        if role == "input":
            known[spec.arg.name] = role, (spec.arg.name,)
        elif role is not None:
            tied = names[id(tensors[spec.target])] if spec.target in tensors else [spec.target]
            known[spec.arg.name] = role, tuple(tied)
    return known


class _Reader:
    """Reads the graph of a module and of the modules that its operations run."""

    def __init__(
        self, root: fx.GraphModule, known: Mapping[str, tuple[str, tuple[str, ...]]] = NOTHING, prefix: str = ""
    ) -> None:
        """``known`` has the role and the names of inputs by the name of their placeholder."""
        self.inputs: dict[str, Input] = {}
        self._prefix, self._known = prefix, known
        self._tensors = {name: (tensor, is_own) for name, tensor, is_own in iter_module_tensors(modules_at(root))}
        self._names = group_by_key((id(tensor), name) for name, (tensor, _) in self._tensors.items())
        self._values: dict[fx.Node, Any] = {}
        self._waiting: list[tuple[fx.GraphModule, str, Part]] = []
        self.part = self._body(root, "").part
        while self._waiting:
            self._module, self._path, part = self._waiting.pop()
            self._read(part)

    def _body(self, module: fx.GraphModule, path: str) -> Body:
        """Return a body with an empty part, which `_read` fills later."""
        body = Body(path.rpartition(".")[2], Part([], [], []))
        self._waiting.append((module, path, body.part))
        return body

    def _read(self, part: Part) -> None:
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                name, value = self._prefix + node.name, _value_of(node)
                part.inputs.append(name)
                is_scalar = isinstance(value, _SCALARS) or value is None
                self._values[node] = _scalar(value) if is_scalar else Named(name)
                if part is self.part and not is_scalar:
                    role, names = self._known.get(name, ("input", (name,)))
                    tensor = value if isinstance(value, torch.Tensor) else None
                    is_trainable = tensor is not None and tensor.requires_grad
                    self.inputs[name] = Input(role, names, meta_of(tensor), is_trainable)
            elif node.op == "get_attr":
                self._values[node] = self._attribute(node)
            elif node.op == "output":
                part.outputs.extend(flatten_argument(self._argument(node.args[0])))
            elif (call := self._call(node)) is not None:
                part.calls.append(call)

    def _attribute(self, node: fx.Node) -> Any:
        value: Any = self._module
        for name in str(node.target).split("."):
            value = getattr(value, name, None)
        path = join_paths(self._path, str(node.target))
        if isinstance(value, fx.GraphModule):
            return self._body(value, path)
        return self._add_tensor(path, value) if isinstance(value, torch.Tensor) else plain_value(value)

    def _add_tensor(self, path: str, value: torch.Tensor) -> Named:
        tensor, is_parameter = self._tensors.get(path, (value, isinstance(value, nn.Parameter)))
        names = tuple(self._names.get(id(tensor), [path]))
        role = "parameter" if is_parameter else "buffer"
        self.inputs[self._prefix + path] = Input(role, names, meta_of(tensor), tensor.requires_grad)
        return Named(self._prefix + path)

    def _weights(self, path: str) -> list[str]:
        pairs = [(name, tensor) for name, (tensor, _) in self._tensors.items() if name.startswith(f"{path}.")]
        return [self._add_tensor(name, tensor).name for name, tensor in pairs]

    def _call(self, node: fx.Node) -> Call | None:
        value, name = _value_of(node), self._prefix + node.name
        if node.target is getitem and (item := self._item(node)) is not None:
            self._values[node] = item
            return None
        operation, arguments, module = self._operation(node)
        makes = list[tuple[str, Any]]()
        self._values[node] = _name_outputs(name, value, makes)
        if isinstance(value, _SCALARS) and not operation.reads_values:
            return None
        # An operation without an output, a write and a body is an assertion.
        if (
            value is None
            and "inplace" not in operation.kinds.values()
            and not any(type(each) is Body for _, argument in arguments for each in flatten_argument(argument))
        ):
            return None
        names, tensors = [name for name, _ in makes], [meta_of(tensor) for _, tensor in makes]
        stack = [*modules_of(stack_of(node))] + ([] if module is None else [module])
        trace = node.meta.get("stack_trace") or ""
        is_opaque = module is not None and operation.op not in WRAPPERS
        weights = self._weights(module.path) if is_opaque and module is not None else ()
        if is_opaque and not weights and not node.users:
            return None
        op, native, _, kinds, _ = operation
        return Call(op, native, arguments, names, tensors, kinds, stack, trace, is_opaque, weights)

    def _operation(self, node: fx.Node) -> tuple[Operation, list[tuple[str, Any]], Module | None]:
        args, module = [self._argument(each) for each in node.args], None
        kwargs = {name: self._argument(each) for name, each in node.kwargs.items()}
        if node.op == "call_module":
            path = join_paths(self._path, str(node.target))
            found = self._module.get_submodule(str(node.target))
            kind = type(found)
            module = Module(path, f"{kind.__module__}.{kind.__qualname__}")
            if isinstance(found, fx.GraphModule):
                operation = Operation("wrap", "wrap")
                args = [self._body(found, path), *args]
            else:
                operation = Operation(plain_text(kind.__name__.lower()), module.kind)
        else:
            operation = operation_of(METHOD.format(node.target) if node.op == "call_method" else node.target)
        return operation, [*name_arguments(operation.names, args, kwargs)], module

    def _item(self, node: fx.Node) -> Any:
        """Return the output of an operation that ``getitem`` selects, or None if it indexes a tensor."""
        source, key = node.args
        values = self._values.get(source) if isinstance(source, fx.Node) else None
        if isinstance(values, (list, tuple)) and isinstance(key, int) and -len(values) <= key < len(values):
            return values[key]
        return None

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self._values.get(value)
        if isinstance(value, (list, tuple)):
            entries = [self._argument(each) for each in value]
            is_plain = not any(isinstance(each, (Named, Body, list)) for each in entries)
            return plain_value(tuple(entries), _symbol) if is_plain else entries
        if isinstance(value, dict):
            return [self._argument(each) for each in value.values()]
        if isinstance(value, slice):
            bounds = [self._argument(each) for each in (value.start, value.stop, value.step)]
            bounds = ["*" if isinstance(each, (Named, list)) else each for each in bounds]
            return ":".join("" if each is None else str(each) for each in bounds)
        is_function = callable(value) and not isinstance(value, type)
        return operation_of(value).native if is_function else plain_value(value, _symbol)


def stack_of(node: fx.Node) -> Mapping[str, Any]:
    """Return torch's record of the modules that a node runs in, or for a backward node, that it differentiates."""
    return node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}


def _value_of(node: fx.Node) -> Any:
    return next((node.meta[key] for key in ("val", "example_value", "tensor_meta") if key in node.meta), _UNKNOWN)


def _name_outputs(name: str, value: Any, makes: list[tuple[str, Any]]) -> Any:
    """Return the outputs of a node in their lists, and append each with its name to ``makes``."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "dtype"):
        return [_name_outputs(f"{name}[{number}]", each, makes) for number, each in enumerate(value)]
    if isinstance(value, (*_SCALARS, type(None))):
        return _scalar(value)
    makes.append((name, value))
    return Named(name)


def meta_of(value: Any) -> TensorMeta:
    """Return the metadata of a tensor, which may be a fake tensor or torch's record of one."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return TensorMeta(device=None)
    shape = tuple(size if type(size) is int and size >= 0 else str(_scalar(size)) for size in value.shape)
    device = device_name(value.device) if isinstance(value, torch.Tensor) else "cpu"
    layout = bare_name(value.layout) if isinstance(value, torch.Tensor) else "strided"
    return TensorMeta(bare_name(value.dtype), shape, device, layout)


def _scalar(value: Any) -> Any:
    return _symbol(value) if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else plain_value(value)


def _symbol(value: Any) -> str:
    expression = getattr(value.node, "expr", None) if hasattr(value, "node") else None
    if expression is None:
        return plain_text(str(value))
    from sympy import srepr

    return plain_text(size_text(srepr(expression)))
