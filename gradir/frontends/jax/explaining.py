"""Explain which leaves of a function's arguments get a gradient, and why the others get none."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any, Final, Literal, TypeAlias

import jax
import numpy as np
from jax import tree_util
from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.explanations.model import ByNode, Cause, Examined, Excerpt, Explanation, Level
from gradir.frontends.jax.arguments import are_known, can_run, compute_gradients, path_text
from gradir.frontends.jax.live import Trace
from gradir.frontends.jax.reading.flatten import Record
from gradir.frontends.jax.reading.flow import cut_kind, sources_of
from gradir.frontends.jax.reading.jaxprs import is_inexact, type_of
from gradir.frontends.jax.replay import Replay, Step, find_origins, find_untaken_conditional, is_lost, replay_trace
from gradir.frontends.jax.traps import explain_nonfinite, explain_zero, operation_name
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import closure_variables, codes_in, find_reachable, join_paths
from gradir.lines import line_text

# Larger functions are differentiated only if the user asks for values.
_SMALL: Final = 20_000
# Maximum depth of calls to search for captured arrays.
_DEEPEST: Final = 3
Changed: TypeAlias = Literal["zero", "nonfinite"]
_CHANGED: Final[Mapping[Changed, Level]] = {"zero": "info", "nonfinite": "error"}


def explain(trace: Trace, *, values: bool | None = None) -> Explanation:
    """Explain a traced function; see `gradir.explain`."""
    if values and not has_values(trace):
        raise CaptureError("gradients need values of the arguments: pass arrays, not shapes and dtypes")
    skipped = _check_values(values, trace)
    statuses = {value.name: "reached" if value.is_live else "cut" for value in trace.differentiated}
    causes = [*_find_refusals(trace, lambda: not has_values(trace) or not can_run(trace.arguments))]
    raises = bool(causes)
    if any(cause.level == "error" for cause in causes):
        # If one operation raises, no leaf gets a gradient.
        statuses.update((name, "error") for name, status in statuses.items() if status == "reached")
    for record, leaves in trace.ends():
        names = tuple(leaf.name for leaf in leaves)
        if record is None:
            statuses.update(dict.fromkeys(names, "unused"))
            # A function that depends on none of its leaves updates none of them.
            level: Level = "error" if len(names) == len(statuses) else "info"
            causes.append(Cause("unused", level, names=names, framework="jax"))
        else:
            source = record.context.source
            causes.append(Cause(cut_kind(record), "error", plain_text(record.op), names, source, framework="jax"))
    integers = tuple(value.name for value in trace.integers)
    if integers:
        statuses.update(dict.fromkeys(integers, "frozen"))
        causes.append(Cause("integer", "info", names=integers, framework="jax"))
    causes += _find_captures(trace, statuses)
    norms: dict[str, float | str] = {}
    if not skipped.reason and trace.is_connected and not raises:
        outputs, gradients = compute_gradients(trace.arguments.fn, *trace.arguments.values)
        pairs = zip(trace.differentiated, gradients, strict=True)
        norms = {value.name: _compute_norm(gradient) if value.is_live else "none" for value, gradient in pairs}
        reached = [name for name in norms if statuses[name] == "reached"]
        changed = {status: [name for name in reached if norms[name] == status] for status in _CHANGED}
        lost = [output for output in outputs if is_lost(output) and not changed["nonfinite"]]
        replay = replay_trace(trace) if lost or any(changed.values()) else None
        if lost:
            causes.append(_explain_loss(replay))
        for status, leaf_names in changed.items():
            statuses.update(dict.fromkeys(leaf_names, status))
            causes += _find_changes(trace, replay, status, leaf_names)
    examined = Examined("backward") if norms else skipped
    nodes = () if raises or not trace.is_connected else trace.graph().nodes.values()
    named = {node.id: name for node in nodes for name in node.names if name in statuses}
    by_node = ByNode(named) if nodes else None
    shown = tuple(replace(cause, excerpt=_excerpt(cause)) for cause in causes)
    return Explanation(statuses, shown, gradients=norms, by_node=by_node, examined=examined)


def _excerpt(cause: Cause) -> Excerpt | None:
    """Return the line of a cause, with the columns of its operation if the line contains it once."""
    text = "" if cause.source is None else line_text(cause.source.file, cause.source.line)
    found = list(re.finditer(rf"\b{re.escape(cause.op)}\(", text)) if cause.op else []
    start, end = (found[0].start(), found[0].end() - 1) if len(found) == 1 else (0, 0)
    return Excerpt(plain_text(text), start, end) if text.strip() else None


def has_values(trace: Trace) -> bool:
    """Return whether all arguments and captured arrays of a function have values."""
    captured = [value.literal for record in trace.flat.records for value in record.inputs if value.kind == "constant"]
    return all(map(are_known, (*trace.arguments.values, captured)))


def _check_values(values: bool | None, trace: Trace) -> Examined:
    count = len(trace.flat.records)
    if not has_values(trace):
        return Examined(reason="arguments have a shape and a dtype alone", advice="pass arrays")
    if values is False:
        return Examined(reason="values=False", advice="leave out values=False (--no-values)")
    if values is None and count > _SMALL:
        return Examined(reason=f"{count:,} equations are more than {_SMALL:,}", advice="pass values=True (--values)")
    return Examined()


def _explain_loss(replay: Replay | None) -> Cause:
    """Return the cause of an infinite or NaN loss whose gradients are finite."""
    lost = None if replay is None else replay.lost
    if replay is None or lost is None or lost.maker is None:
        return Cause("loss_undefined", "error", framework="jax")
    why = explain_nonfinite(replay, lost.maker)
    op, source, detail = plain_text(why.op), why.step.record.context.source, plain_text(why.detail)
    return Cause("loss_undefined", "error", op, source=source, detail=detail, framework="jax")


def _find_changes(trace: Trace, replay: Replay | None, status: Changed, names: Sequence[str]) -> Iterator[Cause]:
    """Yield a cause for each operation that makes gradients of some leaves zero, infinite or NaN."""
    origins = find_origins(replay, status) if replay is not None and names else {}
    steps: dict[Record, Step] = {}
    leaves_of: dict[Record | None, list[str]] = {}
    wanted = {*names}
    for leaf in (value for value in trace.differentiated if value.name in wanted):
        found = None if replay is None else origins.get(id(replay.cell(leaf)), {})
        untaken = find_untaken_conditional(trace.flat.records, leaf) if found == {} else None
        if untaken is not None:
            leaves_of.setdefault(untaken, []).append(leaf.name)
            continue
        steps.update((record, step) for record, step in (found or {}).items() if record not in steps)
        for record in found or (None,):
            leaves_of.setdefault(record, []).append(leaf.name)
    numbers = {id(record): number for number, record in enumerate(trace.flat.records)}
    # Several operations of the backward pass may have one cause in the forward pass.
    causes: dict[Cause, list[str]] = {}
    for record in sorted(leaves_of, key=lambda each: numbers.get(id(each), -1)):
        if replay is None or record is None:
            detail = "" if replay is not None else "in which operation is not known"
            cause = Cause(status, _CHANGED[status], detail=detail, framework="jax")
        elif record not in steps:
            op, source = plain_text(operation_name(record)), record.context.source
            cause = Cause("not_chosen", _CHANGED[status], op, source=source, framework="jax")
        else:
            step = steps[record]
            why = (
                explain_zero(step, is_lost=replay.lost is not None)
                if status == "zero"
                else explain_nonfinite(replay, step)
            )
            op, source, detail = plain_text(why.op), why.step.record.context.source, plain_text(why.detail)
            cause = Cause(why.kind, why.level, op, source=source, detail=detail, framework="jax")
        causes.setdefault(cause, []).extend(leaves_of[record])
    yield from (replace(cause, names=tuple(dict.fromkeys(names))) for cause, names in causes.items())


def _compute_norm(gradient: Any) -> float | str:
    numbers = np.asarray(gradient)
    wide = numbers.astype(np.complex128 if np.iscomplexobj(numbers) else np.float64)
    if not np.isfinite(wide).all():
        return "nonfinite"
    # The gradient of an empty array does not count as zero.
    return float(np.linalg.norm(wide)) if wide.any() or not wide.size else "zero"


def _find_refusals(trace: Trace, raises: Callable[[], bool]) -> Iterator[Cause]:
    """Yield a cause for each operation without a derivative; ``raises`` returns whether `while` raises uncompiled."""
    for record in trace.flat.records:
        found = record.probe
        if found is None or not (found.is_refused or (record.is_live and found.error)):
            continue
        active = [value for value in record.inputs if value.is_active]
        sources = set(find_reachable(active, lambda value: (each for each in sources_of(value) if each.is_active)))
        names = tuple(value.name for value in trace.differentiated if value in sources)
        source = record.context.source
        if record.native == "while":
            detail = "" if (is_sure := raises()) else "but only where it is compiled, as by jax.jit"
            level: Level = "error" if is_sure else "info"
            yield Cause("while_loop", level, "while_loop", names, source, detail=detail, framework="jax")
        else:
            yield Cause("raised", "error", plain_text(record.op), names, source, detail=found.error, framework="jax")


def _find_captures(trace: Trace, statuses: Mapping[str, str]) -> Iterator[Cause]:
    """Yield a cause for the parameters that a function captures instead of taking them as arguments."""
    leaves = trace.arguments.differentiated
    unused = {id(leaf.value): leaf.name for leaf in leaves if statuses[leaf.name] == "unused"}
    unused_types = {type_of(value.aval) for value in trace.differentiated if statuses[value.name] == "unused"}
    outside: dict[int, tuple[str, bool]] | None = None
    found: dict[Level, tuple[list[str], Record]] = {}
    seen: set[int] = set()
    for record in trace.flat.records:
        for value in record.inputs:
            is_array = isinstance(value.literal, (jax.Array, np.ndarray)) and is_inexact(value.aval)
            if not is_array or isinstance(value.literal, jax.core.Tracer) or id(value.literal) in seen:
                continue
            seen.add(id(value.literal))
            name = unused.get(id(value.literal))
            if name is not None:
                found.setdefault("error", ([], record))[0].append(name)
                continue
            if outside is None:
                outside = _find_outside_arrays(trace.target)
            name, is_in_tree = outside.get(id(value.literal), ("", False))
            # A single array may be data, so it counts only if an unused leaf has its shape and dtype.
            if is_in_tree or (name and type_of(value.aval) in unused_types):
                found.setdefault("note", ([], record))[0].append(name)
    for level, (names, record) in found.items():
        source = record.context.source
        yield Cause("captured", level, plain_text(trace.name), tuple(names), source, framework="jax")


def _find_outside_arrays(target: object) -> dict[int, tuple[str, bool]]:
    """Return by id() the arrays that a function and its callees capture: a name, and whether it is in a pytree."""
    found: dict[int, tuple[str, bool]] = {}
    waiting, seen = [(target, 0)], set[int]()
    while waiting:
        current, depth = waiting.pop(0)
        function = _find_function(current)
        if function is None or id(function) in seen or depth > _DEEPEST:
            continue
        seen.add(id(function))
        names = dict.fromkeys(name for code in codes_in(function.__code__) for name in code.co_names)
        known = ((name, function.__globals__[name]) for name in names if name in function.__globals__)
        for name, value in (*closure_variables(function), *known):
            if callable(value) and not isinstance(value, type):
                waiting.append((value, depth + 1))
            for path, leaf in tree_util.tree_flatten_with_path(value)[0]:
                if isinstance(leaf, (jax.Array, np.ndarray)):
                    inside = path_text(path)
                    found.setdefault(id(leaf), (plain_text(join_paths(name, inside)), bool(inside)))
    return found


def _find_function(target: Any) -> FunctionType | None:
    """Return the function that a target wraps or binds, ``None`` if there is none."""
    # A function may wrap itself.
    with suppress(ValueError):
        while isinstance(target := inspect.unwrap(target), partial):
            target = target.func
    target = getattr(target, "__func__", target)
    return target if inspect.isfunction(target) else None
