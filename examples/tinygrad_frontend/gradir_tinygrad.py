"""Captures the graph behind the gradient of a tinygrad tensor. Importing this module imports no tinygrad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from importlib.metadata import version
from math import isfinite
from typing import Any, ClassVar, NamedTuple

from gradir import __version__
from gradir.errors import CaptureError
from gradir.ir import Builder, Cut, Graph, Producer, Scope, TensorMeta
from gradir.protocols import CaptureRequest, Verification


class Captured(NamedTuple):
    """A graph, and the UOps of its outputs, parameters and functions."""

    graph: Graph
    roots: Iterable[Any]
    parameters: Mapping[Any, str]
    functions: Set[Any]


class TinygradFrontend:
    """Captures tensors of tinygrad, named by a model that is passed or returned with them."""

    framework: ClassVar[str] = "tinygrad"
    takes: ClassVar[str] = "a tensor, or a model with its loss"
    install: ClassVar[str] = "pip install gradir-tinygrad"
    features: ClassVar[Set[str]] = frozenset({"names", "verify"})

    @classmethod
    def claims(cls, value: object) -> bool:
        """Return whether a value is a tensor."""
        from tinygrad import Tensor

        return isinstance(value, Tensor)

    def capture(self, request: CaptureRequest) -> Captured:
        """Return the graph between the tensors and the parameters."""
        from tinygrad import nn

        outputs, parameters, models, left = {}, {}, [request.model], [("", request.target)]
        for path, part in left:
            if self.claims(part):
                outputs[path] = part.uop
            elif isinstance(part, (tuple, list, dict)):
                entries = part.items() if isinstance(part, dict) else enumerate(part)
                left += [(f"{path}.{key}".lstrip("."), entry) for key, entry in entries]
            else:
                models.append(part)
        named = {name: tensor for model in models for name, tensor in nn.state.get_state_dict(model).items()}
        named.update(request.params or {})
        for name, tensor in named.items():
            if tensor.is_param and tensor.is_floating_point():
                parameters.setdefault(tensor.uop, name)  # Tied parameters are one UOp.
        if not outputs or not parameters:
            raise CaptureError("expected a tensor and its parameters; pass model= or params=, or return (model, loss)")
        return _captured(outputs, parameters)

    def verify(self, live: Captured, *, keep_graph: bool = True) -> Verification:  # noqa: ARG002 (nothing is freed)
        """Compare a graph with the gradients that tinygrad builds."""
        from tinygrad.mixin.gradient import compute_gradient

        engine = set().union(*(compute_gradient(root, root.const_like(1.0), {*live.parameters}) for root in live.roots))
        theirs = {name for uop, name in live.parameters.items() if uop in engine}
        wrong = theirs ^ {node.names[0] for node in live.graph.nodes.values() if node.role == "parameter"}
        mismatches = tuple(f"{name}: only one of both has a gradient" for name in sorted(wrong))
        return Verification(len(live.functions), len(live.graph.edges), len(engine & live.functions), mismatches)


def _captured(outputs: Mapping[str, Any], parameters: Mapping[Any, str]) -> Captured:
    order = list(dict.fromkeys(uop for root in outputs.values() for uop in root.toposort(enter_calls=False)))
    slots, stops = _flow(order, outputs.values(), parameters.keys())
    builder, values, own, total = Builder(), {}, Counter(), Counter()
    for uop, name in parameters.items():
        scope, stop = name.rpartition(".")[0], stops.get(uop)
        values[uop] = builder.tensor(name, _meta(uop), role="parameter", scope=scope)
        own[scope] += uop.numel()
        total.update({name[:end]: uop.numel() for end, letter in enumerate(name) if letter == "."})
        if stop is not None:
            kind = "stop_gradient" if stop.op.name == "DETACH" else "nondifferentiable"
            builder.cut(Cut(kind, (name,), scope, _meta(uop), op=stop.op.name.lower()))
    for uop in order:
        inputs = [values.get(source) if slot in slots.get(uop, ()) else None for slot, source in enumerate(uop.src)]
        if any(inputs):
            values[uop] = _function(builder, uop, inputs)
    for path, uop in outputs.items():
        if uop not in values:
            raise CaptureError(f"output {path!r} has no gradient for any parameter")
        builder.output(values[uop], path)
    scopes = [Scope(path, own=own[path], total=total[path], trainable=total[path]) for path in total]
    producer = Producer(__version__, "tinygrad", version("tinygrad"), {"flow": True})
    graph = builder.build(scopes=scopes, producer=producer)
    return Captured(graph, outputs.values(), parameters, values.keys() - parameters)


def _flow(order: Sequence[Any], outputs: Iterable[Any], ends: Set[Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return by UOp the slots by which the gradient leaves it, and what stops the gradient before it, or None."""
    behind = {*ends}
    for uop in order:
        if not behind.isdisjoint(uop.src):
            behind.add(uop)
    slots, stops = {}, dict.fromkeys(outputs)
    for uop in reversed(order):
        if uop in stops and uop in behind and uop not in ends:
            stop = stops[uop]
            slots[uop] = _slots(uop) if stop is None else frozenset()
            for slot, source in enumerate(uop.src):
                if slot in slots[uop]:
                    stops[source] = None
                else:
                    stops.setdefault(source, uop if stop is None else stop)
    return slots, stops


def _slots(uop: Any) -> Set[int]:
    """Return the input slots that get a gradient by tinygrad's own rules."""
    from tinygrad.mixin.gradient import pm_gradient

    if uop.op.name in {"CALL", "FUNCTION", "GETTUPLE"}:
        return {*range(len(uop.src))}
    gradients = None if uop.op.name == "DETACH" else pm_gradient.rewrite(uop, ctx=uop.const_like(1))
    return {slot for slot, gradient in enumerate(gradients or ()) if gradient is not None}


def _function(builder: Builder, uop: Any, inputs: Sequence[Any]) -> Any:
    op = uop.op.name.lower()
    arg = uop.marg if op in {"pad", "shrink"} else uop.arg if isinstance(uop.arg, (int, tuple)) else None
    if op == "reduce":
        op, arg = f"reduce_{arg[0].name.lower()}", arg[1]
    attrs = {f"in{slot}": _plain(source.arg) for slot, source in enumerate(uop.src) if source.op.name == "CONST"}
    attrs |= {} if arg is None else {"arg": _plain(arg)}
    ext = {"called": uop.metadata[0].name} if uop.metadata else None
    return builder.function(op, inputs, [_meta(uop)], attrs=attrs, ext=ext, opaque=op in {"call", "function"})


def _meta(uop: Any) -> TensorMeta:
    dtype = {"half": "float16", "__bf16": "bfloat16", "float": "float32", "double": "float64"}.get(uop.dtype.name)
    shape = None if uop._shape is None else _plain(uop._shape)  # noqa: SLF001 (shape raises where there is none)
    return TensorMeta(dtype or uop.dtype.name, shape, str(uop.device).lower() if uop.device else None)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    is_number = isinstance(value, (int, float)) and isfinite(value)
    return value + 0 if is_number else getattr(value, "render", value.__str__)()
