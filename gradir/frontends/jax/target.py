"""Trace the target that PROGRAM names: a function, the result of a factory, or a module; compare graphs with JAX."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import jax
import numpy as np
from jax import tree_util

from gradir.errors import CaptureError, SpecError, warn
from gradir.frontends.jax.arguments import are_known, callable_name, compute_gradients, draw_leaves
from gradir.frontends.jax.live import LiveGraph, Trace, trace
from gradir.frontends.jax.modules import find_call, find_parameters
from gradir.frontends.jax.reading.jaxprs import bytes_of, elements_of, is_inexact, make_abstract
from gradir.frontends.jax.reading.probe import Traced, trace_pullback
from gradir.ir import Graph
from gradir.ir.saved import SavedBytes
from gradir.protocols import Verification
from gradir.spec import called, parse_described

_OPTIONS = frozenset({"argnums", "has_aux"})


def trace_target(target: object, inputs: Sequence[str], seed: int) -> Trace:
    """Trace a target without data, except for the data that the program makes itself."""
    name = callable_name(target)
    parsed = [_parse_input(text) for text in inputs]
    positional = [value for word, value in parsed if word is None]
    named = {word: value for word, value in parsed if word is not None}
    if (module := _find_module(target, seed)) is not None:
        return _trace_module(module, positional, named, seed)
    if not callable(target):
        raise SpecError(f"PROGRAM names an object of type {type(target).__name__}; JAX traces functions and modules")
    if _needs_arguments(target):
        if not parsed:
            raise SpecError(
                f"{name} takes arguments: describe them, such as --input 'float32[4,8]', or name a function without "
                "any that returns (fn, args)"
            )
        try:
            # Positional arguments can be differentiated, even if the user names them.
            bound = inspect.signature(target).bind(*positional, **named)
        except TypeError as error:
            raise SpecError(f"{name} does not take these inputs: {error}") from error
        return called(partial(trace, target, bound.args, bound.kwargs), name)
    made: object = called(target, name)
    if (module := _find_module(made, seed)) is not None:
        return _trace_module(module, positional, named, seed)
    fn, args, options = _read_factory_result(made, name)
    if parsed:
        raise SpecError(f"--input is for a module or for a function with arguments; {name} has arguments of its own")
    call = find_call(fn, args)
    return called(partial(trace, call.fn, call.args, {}, **options), callable_name(fn))


def _read_factory_result(made: object, name: str) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]:
    """Return the function, its arguments and the options of `gradir.capture` that a factory returned."""
    if isinstance(made, tuple) and len(made) in (2, 3) and callable(made[0]) and isinstance(made[1], (tuple, list)):
        options = made[2] if len(made) == 3 else {}
        if isinstance(options, dict) and options.keys() <= _OPTIONS:
            return made[0], made[1], options
    raise SpecError(
        f"{name} returned an object of type {type(made).__name__}; expected a module, (fn, args), or "
        "(fn, args, {'argnums': …, 'has_aux': …})"
    )


def _parse_input(text: str) -> tuple[str | None, jax.ShapeDtypeStruct]:
    name, dtype, shape = parse_described(text)
    try:
        return name, jax.ShapeDtypeStruct(shape, jax.numpy.dtype(dtype))
    except TypeError as error:
        raise CaptureError(f"--input {text!r}: JAX has no dtype {dtype!r}") from error


def _needs_arguments(target: Callable[..., Any]) -> bool:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(each.default is each.empty and each.kind not in variable for each in find_parameters(target) or ())


def _trace_module(module: Any, positional: Sequence[Any], named: Mapping[str, Any], seed: int) -> Trace:
    name = type(module).__name__
    if not positional and not named:
        raise SpecError(f"{name} is a module; describe its input with --input 'float32[1,3]'")
    linen, has_aux = sys.modules.get("flax.linen"), False
    if linen is not None and isinstance(module, linen.Module):
        key = jax.random.key(seed)
        init = partial(jax.eval_shape, module.init, key, *positional, **named)
        variables: Mapping[str, Any] = called(init, f"{name}.init")
        positional = [variables, *positional]
        # A dropout draws from the key, and the module returns its changed collections beside the output.
        mutable = [collection for collection in variables if collection != "params"]
        has_aux = bool(mutable)
        named = {**named, "rngs": {"params": key}, "mutable": mutable or False}
    call = find_call(module, positional)
    return called(partial(trace, call.fn, call.args, named, has_aux=has_aux), name)


def _find_module(target: Any, seed: int) -> Any:
    """Return the module of a target, a new one of a class, else ``None``."""
    linen, nnx, equinox = (sys.modules.get(name) for name in ("flax.linen", "flax.nnx", "equinox"))
    kind, name = target if isinstance(target, type) else type(target), callable_name(target)
    if not any(library is not None and issubclass(kind, library.Module) for library in (linen, nnx, equinox)):
        return None
    if kind is not target:
        return target
    if nnx is not None and issubclass(kind, nnx.Module):
        return called(partial(nnx.eval_shape, lambda: target(**_select_arguments(kind, rngs=nnx.Rngs(seed)))), name)
    if equinox is not None and issubclass(kind, equinox.Module):
        make = partial(target, **_select_arguments(kind, key=jax.random.key(seed)))
        return called(partial(equinox.filter_eval_shape, make), name)
    return called(target, name)


def _select_arguments(kind: type, **offered: Any) -> dict[str, Any]:
    # A class of modules is called by its metaclass, which takes anything.
    parameters = find_parameters(getattr(kind, "__init__", kind))
    if parameters is None or any(each.kind is each.VAR_KEYWORD for each in parameters):
        return offered
    return {each.name: offered[each.name] for each in parameters if each.name in offered}


# If more values than this must be drawn, gradir only traces the backward pass.
_MOST: Final = 2**28


def verify(live: LiveGraph) -> Verification:
    """Compare a graph with JAX: the leaves that get a gradient, and the bytes saved for it."""
    functions = sum(node.role == "function" for node in live.graph.nodes.values())
    whole, wrong = _trace_whole(live), list[str]()
    for place, (leaf, is_moved) in enumerate(zip(live.trace.differentiated, _find_moved_leaves(live), strict=True)):
        if is_moved and not leaf.is_live:
            wrong.append(f"{leaf.name} is not in the graph, and the backward gives it a gradient")
        if leaf.is_live and not any(row[place] for row in whole.reaches):
            wrong.append(f"{leaf.name} is in the graph, and the backward of JAX has no gradient for it")
    saved, sizes = _sum_saved_bytes(live.graph), [bytes_of(each.aval) for each in whole.residuals]
    total = sum(size or 0 for size in sizes)
    # JAX may also save values for gradients that end, as before a custom rule that returns zero.
    is_less = saved is not None and saved < total and live.trace.all_ends.lose_any
    if saved is not None and None not in sizes and saved != total and not is_less:
        wrong.append(f"the graph saves {saved:,} bytes for the backward pass, but JAX saves {total:,}")
    return Verification(functions, sum(1 for _ in live.graph.edges), functions, tuple(wrong))


def _trace_whole(live: LiveGraph) -> Traced:
    trace = live.trace
    values, count = [*trace.differentiated, *trace.others], len(trace.differentiated)

    def run(leaves: list[Any]) -> list[Any]:
        outputs: list[Any] = tree_util.tree_leaves(trace.arguments.fn(leaves[:count], leaves[count:]))
        return outputs

    inputs = [make_abstract(value.aval) for value in values]
    outputs = [make_abstract(output) for output in jax.eval_shape(run, inputs)]
    wanted = [number for number, output in enumerate(outputs) if is_inexact(output)]
    active = [place < count for place in range(len(values))]
    return trace_pullback(run, inputs, active, outputs, wanted)


def _find_moved_leaves(live: LiveGraph) -> list[bool]:
    """Return whether each leaf gets a nonzero gradient in a real backward pass."""
    given, others = live.trace.arguments.values
    sizes = [elements_of(leaf) for leaf in (*given, *others) if not are_known([leaf])]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or sum(known) > _MOST:
        why = f"they are more than {_MOST:,}" if len(known) == len(sizes) else "the size of some is not known"
        warn(f"verified by tracing alone: no numbers are drawn for leaves that have none, since {why}")
        return [False] * len(given)
    _, found = compute_gradients(live.trace.arguments.fn, draw_leaves(given), draw_leaves(others))
    return [bool(np.any(np.asarray(gradient) != 0)) for gradient in found]


def _sum_saved_bytes(graph: Graph) -> int | None:
    """Return the bytes that slots of the graph hold, each storage once, or ``None`` if a size is unknown."""
    saved = SavedBytes[None]({})
    for node in graph.nodes.values():
        if any(slot.bytes is None and slot.state == "held" for slot in node.saved):
            return None
        saved.add(node, None)
    return sum(saved.bytes.values())
