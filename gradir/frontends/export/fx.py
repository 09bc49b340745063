"""Read a ``torch.export`` program or an FX GraphModule into the records of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, Final

import torch
from torch import fx, nn

from gradir.errors import CaptureError
from gradir.frontends.export import reading
from gradir.frontends.export.program import Body, Call, Input, Module, Named, Part, Program, flatten_argument
from gradir.frontends.export.reading import Operation, make_call, make_program, modules_of, operation_of, size_text
from gradir.frontends.pytorch.private import Operator, schema_of
from gradir.frontends.pytorch.reading.attributes import bare_name, device_name, plain_value, shape_of
from gradir.frontends.pytorch.reading.members import iter_module_tensors, modules_at
from gradir.frontends.pytorch.recording.steps import name_arguments
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import join_paths
from gradir.ir import TensorMeta
from gradir.ir.frozen import NOTHING
from gradir.ir.memo import group_by_key
from gradir.ir.text import excerpt

_ROLES: Final = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "buffer", "USER_INPUT": "input"}
_UNKNOWN: Final = object()
# A module nested deeper seems to run itself.
_DEEPEST: Final = 500
_WRAP: Final = Operation("wrap", "wrap")
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
    targets = (
        arguments.get(spec.target, "") if spec.kind.name.endswith("_MUTATION") else None
        for spec in signature.output_specs
    )
    return make_program(reader.part, reader.inputs, targets, version)


def describe_inputs(target: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the role and all names of each input of an exported program."""
    tensors = {**target.state_dict, **target.constants}
    names = group_by_key((id(tensor), name) for name, tensor in tensors.items())
    known: dict[str, tuple[str, tuple[str, ...]]] = {}
    for spec in target.graph_signature.input_specs:
        if spec.kind.name in _ROLES:
            tied = names[id(tensors[spec.target])] if spec.target in tensors else [spec.target or spec.arg.name]
            known[spec.arg.name] = _ROLES[spec.kind.name], tuple(tied)
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
        if path.count(".") > _DEEPEST:
            raise CaptureError(f"the modules of the program are nested more than {_DEEPEST} times: {excerpt(path)}")
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
                if not node.args:
                    raise CaptureError("the output of the program has no value")
                part.outputs.extend(flatten_argument(self._argument(node.args[0])))
            elif (call := self._call(node)) is not None:
                part.calls.append(call)

    def _attribute(self, node: fx.Node) -> Any:
        value = self._find(node)
        path = join_paths(self._path, str(node.target))
        if isinstance(value, fx.GraphModule):
            return self._body(value, path)
        return self._add_tensor(path, value) if isinstance(value, torch.Tensor) else plain_value(value)

    def _find(self, node: fx.Node) -> Any:
        """Return the attribute or the module that a node names."""
        value: Any = self._module
        for name in str(node.target).split("."):
            value = getattr(value, name, _UNKNOWN)
        if value is _UNKNOWN or (node.op == "call_module" and not isinstance(value, nn.Module)):
            kind = "module" if node.op == "call_module" else "attribute"
            raise CaptureError(f"the program takes the {kind} {excerpt(node.target)}, which it does not have")
        return value

    def _add_tensor(self, path: str, value: torch.Tensor) -> Named:
        tensor, is_parameter = self._tensors.get(path, (value, isinstance(value, nn.Parameter)))
        names = tuple(self._names.get(id(tensor), [path]))
        role = "parameter" if is_parameter else "buffer"
        self.inputs[self._prefix + path] = Input(role, names, meta_of(tensor), tensor.requires_grad)
        return Named(self._prefix + path)

    def _call(self, node: fx.Node) -> Call | None:
        value, name, modules = _value_of(node), self._prefix + node.name, [*self._modules(node)]
        found: Any = self._find(node) if node.op == "call_module" else None
        ends = found.graph.find_nodes(op="output") if isinstance(found, fx.GraphModule) else ()
        if value is _UNKNOWN:
            value = next((fx.map_arg(end.args[0], _value_of) for end in ends), _UNKNOWN)
        if node.target is getitem and (item := self._item(node)) is not None:
            self._values[node] = item
            return None
        args = [self._argument(each) for each in node.args]
        kwargs = {key: self._argument(each) for key, each in node.kwargs.items()}
        if found is None:
            operation = operation_of(f"Tensor.{node.target}" if node.op == "call_method" else node.target)
        else:
            kind, path = type(found), join_paths(self._path, str(node.target))
            modules.append(Module(path, f"{kind.__module__}.{kind.__qualname__}"))
            operation = Operation(plain_text(kind.__name__.lower()), modules[-1].kind)
            if isinstance(found, fx.GraphModule):
                operation, args, kwargs = _WRAP, [self._body(found, path), *_bind_arguments(found, args, kwargs)], {}
        makes = dict[str, TensorMeta]()
        self._values[node] = _name_outputs(name, value, makes)
        trace, gives_number = node.meta.get("stack_trace") or "", isinstance(value, _SCALARS)
        arguments = [*name_arguments(operation.names, args, kwargs)]
        call = make_call(operation, arguments, makes, modules, trace, gives_number=gives_number)
        if call is None or found is None or operation is _WRAP:
            return call
        weights = [
            self._add_tensor(join_paths(path, name), tensor).name
            for name, tensor, _ in iter_module_tensors(modules_at(found))
        ]
        return call._replace(opaque=True, weights=weights) if weights or node.users else None

    def _modules(self, node: fx.Node) -> Iterator[Module]:
        """Yield the modules of a node, with whole paths if a submodule was traced by itself."""
        path = join_paths(self._path, str(node.target))
        for each in modules_of(stack_of(node)):
            is_within = self._path and hasattr(self._module, each.path.partition(".")[0])
            module = each._replace(path=join_paths(self._path, each.path)) if is_within else each
            # A part of a split module has other paths than the module.
            if node.op != "call_module" or f"{path}.".startswith(f"{module.path}." if module.path else ""):
                yield module

    def _item(self, node: fx.Node) -> Any:
        """Return the output of an operation that ``getitem`` selects, or None if it indexes a tensor."""
        source, key = node.args
        values: Any = self._values.get(source) if isinstance(source, fx.Node) else None
        if isinstance(values, dict):
            return values.get(key)
        is_within = type(values) in (list, tuple) and isinstance(key, int) and -len(values) <= key < len(values)
        return values[key] if is_within else None

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            # The graph of a hand-made module may take a value before it makes it, which `assemble` reports.
            return self._values.get(value, Named(self._prefix + value.name))
        if isinstance(value, dict):
            value = [*value.values()]
        if isinstance(value, (list, tuple)):
            return reading.join_entries([self._argument(each) for each in value])
        if isinstance(value, slice):
            bounds = [self._argument(each) for each in (value.start, value.stop, value.step)]
            bounds = ["*" if isinstance(each, (Named, list)) else each for each in bounds]
            return ":".join("" if each is None else str(each) for each in bounds)
        is_function = callable(value) and not isinstance(value, type)
        return operation_of(value).native if is_function else plain_value(value, _symbol)


def _bind_arguments(module: fx.GraphModule, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the arguments of a module's call, or defaults, in the order of its inputs."""
    for number, place in enumerate(module.graph.find_nodes(op="placeholder")):
        default = plain_value(place.args[0]) if place.args else None
        yield args[number] if number < len(args) else kwargs.get(place.target, default)


def stack_of(node: fx.Node) -> Mapping[str, Any]:
    """Return torch's record of the modules that a node runs in, or for a backward node, that it differentiates."""
    return node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}


def _value_of(node: fx.Node) -> Any:
    # A decomposition leaves no metadata at an operation without outputs, such as an assertion.
    default = None if isinstance(node.target, Operator) and not schema_of(node.target).returns else _UNKNOWN
    return next((node.meta[key] for key in ("val", "example_value", "tensor_meta") if key in node.meta), default)


def _name_outputs(name: str, value: Any, makes: dict[str, TensorMeta]) -> Any:
    """Return the outputs of a node in their lists, and add the metadata of each by its name to ``makes``."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "dtype"):
        return [_name_outputs(f"{name}[{number}]", each, makes) for number, each in enumerate(value)]
    if isinstance(value, dict):
        return {key: _name_outputs(f"{name}[{key!r}]", each, makes) for key, each in value.items()}
    if isinstance(value, (*_SCALARS, type(None))):
        return _scalar(value)
    makes[name] = meta_of(value)
    return Named(name)


def meta_of(value: Any) -> TensorMeta:
    """Return the metadata of a tensor, which may be a fake tensor or torch's record of one."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return TensorMeta(device=None)
    is_tensor = isinstance(value, torch.Tensor)
    device, layout = (device_name(value.device), bare_name(value.layout)) if is_tensor else ("cpu", "strided")
    shape = shape_of(value, _symbol)
    # torch also states known sizes as expressions.
    known = shape and tuple(int(size) if str(size).isdecimal() else size for size in shape)
    return TensorMeta(bare_name(value.dtype), known, device, layout)


def _scalar(value: Any) -> Any:
    return _symbol(value) if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else plain_value(value)


def _symbol(value: Any) -> str:
    expression = getattr(value.node, "expr", None) if hasattr(value, "node") else None
    if expression is None:
        return plain_text(str(value))
    from sympy import srepr

    return plain_text(size_text(srepr(expression)))
