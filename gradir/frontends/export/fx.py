"""Read a ``torch.export`` program or an FX GraphModule into the records of a program."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from operator import getitem
from typing import Any, Final

import torch
from torch import fx, nn

from gradir.frontends.export.assemble import WRAPPERS, flat
from gradir.frontends.export.operators import METHOD, Operation, operation_of
from gradir.frontends.export.program import Body, Call, Input, Module, Named, Part, Program, modules_of
from gradir.frontends.export.sizes import size_text
from gradir.frontends.pytorch.reading.attributes import bare_name, device_name, plain_value
from gradir.frontends.pytorch.reading.members import modules_at, named_tensors_at
from gradir.frontends.pytorch.recording.steps import named
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import grouped
from gradir.ir import TensorMeta
from gradir.ir.frozen import NOTHING

_ROLES: Final = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "buffer", "USER_INPUT": "input"}
_WRITES: Final = frozenset({"BUFFER_MUTATION", "PARAMETER_MUTATION", "USER_INPUT_MUTATION"})
_UNKNOWN: Final = object()
_SCALARS: Final = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def program_of(target: Any, start: str = "") -> Program:
    """Read an ExportedProgram or a GraphModule, whatever made it; ``start`` is put before the names of its values."""
    version = str(torch.__version__)
    if isinstance(target, fx.GraphModule):
        reader = _Reader(target, start=start)
        return Program(reader.part, reader.inputs, version=version)
    signature = target.graph_signature
    arguments = {spec.arg.name if spec.target is None else spec.target: spec.arg.name for spec in signature.input_specs}
    reader = _Reader(target.graph_module, known_inputs(target))
    specs = ((each.kind.name in _WRITES, each.target) for each in signature.output_specs)
    # By output the input that it is written to.
    written = (arguments.get(target, "") if is_write else None for is_write, target in specs)
    pairs = [*zip(chain(written, repeat(None)), reader.part.outputs, strict=False)]
    writes = [(name, value.name) for name, value in pairs if name and type(value) is Named]
    outputs = [value for name, value in pairs if name is None]
    return Program(reader.part._replace(outputs=outputs), reader.inputs, writes, version)


def known_inputs(target: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The role and the names of each input of an exported program; what is held has those of the same tensor too."""
    held = {**target.state_dict, **target.constants}
    owners = grouped((id(tensor), name) for name, tensor in held.items())
    known = {}
    for spec in target.graph_signature.input_specs:
        role = _ROLES.get(spec.kind.name)
        if role is not None:
            is_held = role != "input" and spec.target in held
            name = spec.arg.name if role == "input" else spec.target
            known[spec.arg.name] = role, tuple(owners[id(held[spec.target])]) if is_held else (name,)
    return known


class _Reader:
    """Reads the graph of a module and of the modules that its operations run."""

    def __init__(
        self, root: fx.GraphModule, known: Mapping[str, tuple[str, tuple[str, ...]]] = NOTHING, start: str = ""
    ) -> None:
        """``known`` has the role and the names of inputs by the name of their placeholder."""
        self.start = start
        self.inputs: dict[str, Input] = {}
        self._known = known
        self._held = {name: (tensor, is_own) for name, tensor, is_own in named_tensors_at(modules_at(root))}
        self._owners = grouped((id(tensor), name) for name, (tensor, _) in self._held.items())
        self._waiting: list[tuple[fx.GraphModule, str, Part]] = []
        self.part = self._part(root, "")
        while self._waiting:
            module, path, part = self._waiting.pop()
            _PartReader(self, module, path).read(part, is_top=part is self.part)

    def _part(self, module: fx.GraphModule, path: str) -> Part:
        part = Part([], [], [])
        self._waiting.append((module, path, part))
        return part

    def body(self, module: fx.GraphModule, path: str) -> Body:
        """A module that an operation runs, which is read later."""
        return Body(path.rpartition(".")[2], self._part(module, path))

    def declare(self, name: str, value: object) -> None:
        role, names = self._known.get(name, ("input", (name,)))
        tensor = value if isinstance(value, torch.Tensor) else None
        self.inputs[name] = Input(role, names, meta_of(tensor), tensor is not None and tensor.requires_grad)

    def attribute(self, path: str, value: torch.Tensor) -> Named:
        tensor, is_parameter = self._held.get(path, (value, isinstance(value, nn.Parameter)))
        names = tuple(self._owners.get(id(tensor), [path]))
        role = "parameter" if is_parameter else "buffer"
        self.inputs[self.start + path] = Input(role, names, meta_of(tensor), tensor.requires_grad)
        return Named(self.start + path)

    def weights(self, path: str) -> list[str]:
        names = [name for name in self._held if name.startswith(f"{path}.")]
        return [self.attribute(name, self._held[name][0]).name for name in names]


class _PartReader:
    def __init__(self, reader: _Reader, module: fx.GraphModule, path: str) -> None:
        self._reader, self._module, self._path = reader, module, path
        self._values: dict[fx.Node, Any] = {}

    def read(self, part: Part, *, is_top: bool) -> None:
        inputs, calls, outputs = part  # lists, as `_Reader` makes them
        for node in self._module.graph.nodes:
            name = self._reader.start + node.name
            if node.op == "placeholder":
                inputs.append(name)
                value = _value_of(node)
                is_text = isinstance(value, _SCALARS) or value is None
                self._values[node] = _scalar(value) if is_text else Named(name)
                if is_top and not is_text:
                    self._reader.declare(name, value)
            elif node.op == "get_attr":
                self._values[node] = self._attribute(node)
            elif node.op == "output":
                outputs.extend(flat(self._argument(node.args[0])))
            elif (call := self._call(node)) is not None:
                calls.append(call)

    def _attribute(self, node: fx.Node) -> Any:
        value: Any = self._module
        for name in str(node.target).split("."):
            value = getattr(value, name, None)
        path = f"{self._path}.{node.target}" if self._path else str(node.target)
        if isinstance(value, fx.GraphModule):
            return self._reader.body(value, path)
        return self._reader.attribute(path, value) if isinstance(value, torch.Tensor) else plain_value(value)

    def _call(self, node: fx.Node) -> Call | None:
        value, name = _value_of(node), self._reader.start + node.name
        if node.target is getitem and (taken := self._item(node)) is not None:
            self._values[node] = taken
            return None
        operation, arguments, module = self._operation(node)
        makes = list[tuple[str, Any]]()
        if isinstance(value, _SCALARS):
            self._values[node] = _scalar(value)
            if not operation.reads_numbers:
                return None
        elif value is None and "inplace" not in operation.kinds.values():
            self._values[node] = None
            if not any(type(each) is Body for _, argument in arguments for each in flat(argument)):
                # It states what has to hold, and makes nothing.
                return None
        else:
            self._values[node] = _shaped(name, value, makes)
        names, tensors = [name for name, _ in makes], [meta_of(tensor) for _, tensor in makes]
        stack = [*modules_of(stack_of(node))] + ([] if module is None else [module])
        trace = node.meta.get("stack_trace") or ""
        is_opaque = module is not None and operation.op not in WRAPPERS
        weights = self._reader.weights(module.path) if is_opaque and module is not None else ()
        if is_opaque and not weights and not node.users:
            return None
        op, native, _, kinds, _ = operation
        return Call(op, native, arguments, names, tensors, kinds, stack, trace, is_opaque, weights)

    def _operation(self, node: fx.Node) -> tuple[Operation, list[tuple[str, Any]], Module | None]:
        taken = [self._argument(each) for each in node.args]
        by_name = {name: self._argument(each) for name, each in node.kwargs.items()}
        if node.op == "call_module":
            path = f"{self._path}.{node.target}" if self._path else str(node.target)
            found = self._module.get_submodule(str(node.target))
            kind = type(found)
            module = Module(path, f"{kind.__module__}.{kind.__qualname__}")
            if isinstance(found, fx.GraphModule):
                operation = Operation("wrap", "wrap")
                taken = [self._reader.body(found, path), *taken]
            else:
                operation = Operation(plain_text(kind.__name__.lower()), module.kind)
            return operation, [*named((), taken, by_name)], module
        operation = operation_of(METHOD.format(node.target) if node.op == "call_method" else node.target)
        return operation, [*named(operation.names, taken, by_name)], None

    def _item(self, node: fx.Node) -> Any:
        """The output of an operation that ``getitem`` takes, and nothing where it indexes a tensor."""
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
            ends = (self._argument(each) for each in (value.start, value.stop, value.step))
            return ":".join(
                "" if each is None else "*" if isinstance(each, (Named, list)) else str(each) for each in ends
            )
        is_function = callable(value) and not isinstance(value, type)
        return operation_of(value).native if is_function else plain_value(value, _symbol)


def stack_of(node: fx.Node) -> Mapping[str, Any]:
    """Return the modules that a node runs in, or of a backward that it is for, as torch states them."""
    return node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}


def _value_of(node: fx.Node) -> Any:
    return next((node.meta[key] for key in ("val", "example_value", "tensor_meta") if key in node.meta), _UNKNOWN)


def _shaped(name: str, value: Any, makes: list[tuple[str, Any]]) -> Any:
    """Return the outputs of a node in the lists that they are in; ``makes`` gets each with its name."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "dtype"):
        return [_shaped(f"{name}[{number}]", each, makes) for number, each in enumerate(value)]
    if isinstance(value, (*_SCALARS, type(None))):
        return _scalar(value)
    makes.append((name, value))
    return Named(name)


def meta_of(value: Any) -> TensorMeta:
    """What is known of a tensor that has no data, or of what was noted of one."""
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
