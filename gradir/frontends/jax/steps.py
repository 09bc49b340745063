"""Explain a training step: the function that it differentiates, and how its optimizer uses each gradient."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from types import FrameType
from typing import Any, Final, Literal, NamedTuple

import jax
import numpy as np
from msgspec.structs import replace

from gradir.errors import GradirError
from gradir.explanations.model import Cause, Explanation
from gradir.frontends.jax.arguments import callable_name
from gradir.frontends.jax.explaining import explain, has_values
from gradir.frontends.jax.live import Trace, trace
from gradir.frontends.jax.modules.watch import force_retrace
from gradir.frontends.jax.reading.assemble import Output
from gradir.frontends.jax.reading.flatten import Record, Value
from gradir.frontends.jax.reading.jaxprs import Sources, type_of
from gradir.frontends.walks import find_reachable, frames_from
from gradir.ir import Source
from gradir.ir.memo import group_by_key


def explain_function(found: Trace, *, values: bool | None = None) -> Explanation:
    """Explain a function, or the function that a training step differentiates; see `gradir.explain`."""
    return explain_inner(found, find_inner(found), values=values) if _is_step(found) else explain(found, values=values)


def explain_inner(found: Trace, inner: Inner | None, *, values: bool | None = None) -> Explanation:
    """Explain the function that a training step differentiates; see `explain_function`."""
    cause = Cause("inner_gradient", "note", found.name, framework="jax")
    if inner is None:
        whole = explain(found, values=values)
        detail = "gradir cannot find the function that it differentiates, and explains its result"
        return replace(whole, causes=(replace(cause, detail=detail), *whole.causes))
    detail = f"gradir explains `{inner.name}`, which it differentiates, with the arguments that it gets there"
    if has_values(found) and not has_values(inner.trace):
        detail += ", whose values are unknown"
    whole = explain(inner.trace, values=values)
    causes = adjust_for_optimizer(found, inner.trace, whole)
    return replace(whole, causes=(replace(cause, source=inner.source, detail=detail), *causes))


class Inner(NamedTuple):
    """A function that another function differentiates: its trace, its name, and the line of the request."""

    trace: Trace
    name: str
    source: Source | None


class GradientRequest(NamedTuple):
    """A request for a gradient."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    argnums: Any
    has_aux: bool

    def trace(self) -> Trace:
        """Trace the function."""
        return trace(self.fn, self.args, self.kwargs, argnums=self.argnums, has_aux=self.has_aux)


class _Found(BaseException):
    """Ends a run at the wanted gradient. It is no Exception, so a program does not catch it."""


def _is_step(found: Trace) -> bool:
    """Return whether a function computes a gradient and returns, among others, values of its parameters' types."""
    returned = Counter(type_of(value.aval) for _, value in found.outputs)
    wanted = Counter(type_of(value.aval) for value in found.differentiated)
    is_loss = len(found.outputs) == 1 and not found.outputs[0].value.aval.shape
    return wanted <= returned and not is_loss and any("transpose" in each.context.phase for each in found.flat.records)


def find_inner(found: Trace, *, runs: bool = True) -> Inner | None:
    """Return the first function that a step differentiates by leaves like its own parameters, or else the first one.

    The step runs if its arguments have values and ``runs`` allows it; otherwise gradir traces it.
    """
    wanted = Counter(type_of(value.aval) for value in found.differentiated)
    seen: list[Inner] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        read = _find_reader(frame) if event == "call" else None
        callers = takewhile(lambda each: each is not own, frames_from(frame.f_back))
        if read is None or any(map(_find_reader, callers)):
            return
        try:
            request = read(frame.f_locals)
            with jax.disable_jit(False):
                inner = request.trace()
        except (AttributeError, GradirError, KeyError, TypeError, ValueError):
            # This release has other variables, or JAX cannot trace the function.
            return
        seen.append(Inner(inner, callable_name(request.fn), Sources().find_user_line(frames_from(frame))))
        if Counter(type_of(value.aval) for value in inner.differentiated) <= wanted:
            raise _Found

    own, inputs, before = inspect.currentframe(), found.arguments.values, sys.getprofile()
    # A profiler sees each call, even of functions that existed before gradir.
    sys.setprofile(profile)
    try:
        if runs and has_values(found):
            with jax.disable_jit():
                found.arguments.fn(*inputs)
        else:
            with force_retrace():
                jax.make_jaxpr(found.arguments.fn)(*inputs)
    except _Found:
        return seen[-1]
    except Exception:  # noqa: BLE001 (a program may raise if it runs operation by operation)
        return None
    finally:
        sys.setprofile(before)
    return seen[0] if seen else None


def _find_reader(frame: FrameType) -> Callable[[Mapping[str, Any]], GradientRequest] | None:
    read = _READERS.get(frame.f_code.co_qualname)
    is_library = read is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES
    return read if is_library else None


def find_request(frame: FrameType | None) -> GradientRequest | None:
    """Return the request of the outermost library call that computes a gradient."""
    found = None
    for each in frames_from(frame):
        # A release may have other variables.
        with suppress(AttributeError, KeyError):
            found = (read(each.f_locals) if (read := _find_reader(each)) is not None else None) or found
    return found


def read_request(names: Mapping[str, Any]) -> GradientRequest:
    """Return the request of `jax.grad`, `jax.value_and_grad` or `jax.vjp` from its named arguments."""
    return _read_vjp(names) if "primals" in names else _read_argnums(names, "fun")


def _read_argnums(names: Mapping[str, Any], fn: str) -> GradientRequest:
    states = names.get("index_filter")
    # flax has an `nnx.DiffState` for each argument there.
    argnums = [type(each)(at, each.filter) for at, each in states.items()] if states else names["argnums"]
    # flax has no ``kwargs``: it passes keywords among the arguments.
    return GradientRequest(names[fn], tuple(names["args"]), names.get("kwargs", {}), argnums, names["has_aux"])


def _read_vjp(names: Mapping[str, Any]) -> GradientRequest:
    primals = tuple(names["primals"])
    argnums = tuple(range(len(primals))) if len(primals) > 1 else 0
    return GradientRequest(names["fun"], primals, {}, argnums, names["has_aux"])


def _read_equinox(names: Mapping[str, Any]) -> GradientRequest:
    fields = vars(names["self"])
    # While it runs, its first argument is in a variable of its own.
    first = (names["x"],) if "x" in names else ()
    return GradientRequest(fields["_fun"], (*first, *names["args"]), names["kwargs"], 0, fields["_has_aux"])


_LIBRARIES: Final = frozenset({"equinox", "flax", "jax"})
# These functions read a request from the variables of a library function. Only this file contains the private names of
# JAX, flax and equinox, which may change.
_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], GradientRequest]]] = {
    "value_and_grad.<locals>.value_and_grad_f": lambda names: _read_argnums(names, "fun"),
    "vjp": _read_vjp,
    "_grad_general.<locals>.grad_wrapper": lambda names: _read_argnums(names, "f"),
    "_ValueAndGradWrapper.__call__": _read_equinox,
}


# A loop passes facts on from round to round, so it needs several passes.
_MOST_PASSES: Final = 8
_CASTS: Final = frozenset({"broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze"})
# Statuses of leaves that no gradient updates.
_IDLE: Final = frozenset({"cut", "unused", "zero"})


class _Update(NamedTuple):
    """How a step computes the new value of a leaf; ``record`` is the addition."""

    leaf: str
    path: str
    value: Value
    kind: Literal["unchanged", "nothing", "raw", "computed"]
    record: Record | None = None


def adjust_for_optimizer(step: Trace, loss: Trace, whole: Explanation) -> Iterator[Cause]:
    """Yield the causes of the loss inside a step, adjusted to the leaves that the optimizer updates."""
    moved = _find_moved(step.flat.records)
    updates = {leaf.name: _classify_update(leaf, output) for leaf, output in _new_values(step)}
    # An optimizer works if it computes the update of any leaf from gradients.
    works = any(each.kind == "computed" and _is_moved(each.value, moved) for each in updates.values())
    left_out = _find_left_out(step, loss, updates, moved, works=works)
    own = _match_suffixes(updates, [leaf.name for leaf in loss.differentiated])
    trained = [name for name in own if name not in left_out and whole.statuses[name] != "frozen"]
    # A cause is only a note if the optimizer updates none of its leaves.
    causes = [
        replace(cause, level="note") if cause.names and left_out.issuperset(cause.names) else cause
        for cause in whole.causes
    ]
    reached = [name for name, status in whole.statuses.items() if status == "reached"]
    known = ((name, updates.get(own.get(name, ""))) for name in reached if works)
    raw = ((name, update.record) for name, update in known if update is not None and update.kind == "raw")
    applied = ((record.context.source, name) for name, record in raw if record is not None and _is_applied(record))
    for source, names in group_by_key(applied).items():
        yield Cause("raw_update", "error", names=tuple(names), source=source, framework="jax")
    computed = [name for name in reached if name in own and updates[own[name]].kind == "computed"]
    yield from _find_zeroed(step, {name: updates[own[name]] for name in computed}, moved)
    is_idle = left_out and trained and all(whole.statuses[name] in _IDLE for name in trained)
    has_error = any(cause.level == "error" for cause in causes)
    # It is an error if no leaf of the optimizer gets a gradient.
    if is_idle and not has_error and _all_stay(step, updates, [own[name] for name in trained]):
        causes = [*_adjust_idle(causes, whole, trained)]
    yield from causes
    if frozen := tuple(name for name in reached if name in left_out):
        yield Cause("not_in_optimizer", "note", names=frozen, framework="jax")


def _find_zeroed(step: Trace, updates: Mapping[str, _Update], moved: set[int]) -> Iterator[Cause]:
    """Yield the cause of updates that a lasting zero multiplies."""
    zeroed = _find_zero_factor(step, updates.values(), moved) if has_values(step) else None
    if zeroed is None:
        return
    unchanged = _find_unchanged(step, {each.leaf: each.path for each in updates.values()})
    names = tuple(name for name, each in updates.items() if each.leaf in unchanged)
    if names:
        record, zero = zeroed
        detail, source = f"one input of `{record.op}` is {zero}", record.context.source
        yield Cause("no_movement", "error", names=names, source=source, detail=detail, framework="jax")


def _find_zero_factor(step: Trace, updates: Iterable[_Update], moved: set[int]) -> tuple[Record, str] | None:
    """Return the operation of an update that multiplies a gradient by zero, and a text about this zero."""
    # A schedule may start at zero, so only a constant counts, or an argument that the step returns as it is.
    returned = {_strip_casts(output.value) for output in step.outputs}
    pairs = zip((*step.differentiated, *step.others), chain(*step.arguments.values), strict=True)
    zeros = {leaf: f"`{leaf.name}`, which stays 0" for leaf, value in pairs if leaf in returned and not np.any(value)}
    used = {value.record for value in find_reachable([each.value for each in updates], _sources)}
    for record in step.flat.records:
        is_zero = any(each.kind == "literal" and not np.any(np.asarray(each.literal)) for each in record.inputs)
        zero = next((zeros[each] for each in record.inputs if each in zeros), "the constant 0" if is_zero else None)
        if zero is None or record.native not in {"mul", "neg", *_CASTS} or "transpose" in record.context.phase:
            continue
        if record in used and any(_is_moved(each, moved) for each in record.inputs):
            return record, zero
        zeros.update(dict.fromkeys(record.outputs, zero))
    return None


def _adjust_idle(causes: Sequence[Cause], whole: Explanation, trained: Sequence[str]) -> Iterator[Cause]:
    """Yield the causes for an optimizer that updates nothing, so that zero gradients are errors."""
    zeros = {name for name in trained if whole.statuses[name] == "zero"}
    concerned = [cause for cause in causes if zeros.intersection(cause.names)]
    # At the minimum of the loss no gradient is needed.
    is_minimum = any(cause.kind == "equal" for cause in concerned)
    if not concerned:
        yield Cause("moves_nothing", "error", names=tuple(trained), framework="jax")
    for cause in causes:
        yield replace(cause, level="error") if cause in concerned and not is_minimum else cause


def _classify_update(leaf: Value, output: Output) -> _Update:
    made = _strip_casts(output.value)
    if made is leaf:
        return _Update(leaf.name, *output, "unchanged")
    record = made.record
    terms = [] if record is None or record.native not in {"add", "add_any"} else [*map(_strip_casts, record.inputs)]
    if leaf not in terms:
        return _Update(leaf.name, *output, "computed")
    other = terms[1 - terms.index(leaf)]
    if other.kind == "literal":
        return _Update(leaf.name, *output, "computed" if np.any(np.asarray(other.literal)) else "nothing", record)
    is_raw = other.record is not None and "transpose" in other.record.context.phase
    return _Update(leaf.name, *output, "raw" if is_raw else "computed", record)


def _strip_casts(value: Value) -> Value:
    while (record := value.record) is not None and record.native in _CASTS and "transpose" not in record.context.phase:
        value = record.inputs[0]
    return value


def _is_applied(record: Record) -> bool:
    """Return whether ``apply_updates`` of optax or equinox makes an addition. It expects updates, not gradients."""
    trace = record.eqn.source_info.traceback
    return trace is not None and any(frame.function_name.startswith("apply_updates") for frame in trace.frames)


def _match_suffixes(updates: Mapping[str, _Update], names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for own in sorted(updates, key=lambda own: own.count(".")):
        for end in _suffixes(own):
            found.setdefault(end, own)
    return {name: found[name] for name in names if name in found}


def _find_left_out(
    step: Trace, loss: Trace, updates: Mapping[str, _Update], moved: set[int], *, works: bool
) -> frozenset[str]:
    """Return the leaves of the loss inside a step whose new value does not depend on any gradient."""
    known = [(leaf, updates[leaf.name]) for leaf in step.differentiated if leaf.name in updates]
    still = [(leaf, update) for leaf, update in known if not _is_moved(update.value, moved)]
    unchanged = {leaf.name: update.path for leaf, update in still if leaf in find_reachable([update.value], _sources)}
    if unchanged and has_values(step):
        unchanged = _find_unchanged(step, unchanged)
    unchanged_suffixes = {suffix for name in unchanged for suffix in _suffixes(name)}
    names = [leaf.name for leaf in loss.differentiated]
    inputs = [leaf.name for leaf in (*step.arguments.differentiated, *step.arguments.others)]
    counts = Counter(suffix for name in inputs for suffix in _suffixes(name))
    # For these leaves the step has another input beside their value, such as a momentum.
    states, own = {name for name in names if counts[name] > 1}, _match_suffixes(updates, names)
    # A leaf without a gradient never depends on one. It counts if only other leaves have optimizer state, or if the
    # optimizer uses other gradients and adds zeros here.
    return frozenset(
        leaf.name
        for leaf in loss.differentiated
        if leaf.name in unchanged_suffixes
        and (
            leaf.is_live
            or (states and leaf.name not in states)
            or (works and updates[own[leaf.name]].kind in {"unchanged", "nothing"})
        )
    )


def _sources(value: Value) -> list[Value]:
    return value.ends if value.record is None else [*value.ends, *value.record.inputs, *value.record.operands]


def _all_stay(step: Trace, updates: Mapping[str, _Update], names: Iterable[str]) -> bool:
    """Return whether a step returns these leaves unchanged, as far as is known."""
    paths = {name: updates[name].path for name in names}
    if has_values(step):
        return len(_find_unchanged(step, paths)) == len(paths)
    return not any(_is_moved(updates[name].value, _find_moved(step.flat.records)) for name in paths)


def _new_values(step: Trace) -> list[tuple[Value, Output]]:
    """Return each leaf with the output of its name, after the shortest prefix that serves all leaves."""
    outputs = {output.path: output for output in step.outputs}
    first = step.differentiated[0]
    starts = [path.removesuffix(first.name) for path in outputs if f".{path}".endswith(f".{first.name}")]
    for start in sorted(starts, key=lambda start: start.count(".")):
        # Names of arguments lack the ``params`` of flax.
        above = start.removesuffix("params.")
        leaves = step.differentiated
        found = [outputs.get(start + leaf.name) or outputs.get(above + leaf.name) for leaf in leaves]
        named = [(leaf, each) for leaf, each in zip(leaves, found, strict=True) if each is not None]
        pairs = [(leaf, each) for leaf, each in named if type_of(leaf.aval) == type_of(each.value.aval)]
        if len(pairs) == len(found):
            return pairs
    return []


def _find_moved(records: Sequence[Record]) -> set[int]:
    """Return by id() the values that depend on a gradient."""
    moved: set[int] = set()
    for _ in range(_MOST_PASSES):
        before = len(moved)
        for record in records:
            inputs = (*record.inputs, *record.operands)
            if "transpose" in record.context.phase or any(_is_moved(value, moved) for value in inputs):
                moved.update(map(id, record.outputs))
        if len(moved) == before:
            break
    return moved


def _is_moved(value: Value, moved: set[int]) -> bool:
    return any(id(each) in moved for each in find_reachable([value], lambda each: each.ends))


def _find_unchanged(step: Trace, paths: Mapping[str, str]) -> dict[str, str]:
    before = {leaf.name: leaf.value for leaf in step.arguments.differentiated}
    after = jax.tree_util.tree_leaves(jax.jit(step.arguments.fn)(*step.arguments.values))
    places = {output.path: number for output, number in zip(step.outputs, step.places, strict=True)}
    return {name: path for name, path in paths.items() if np.array_equal(after[places[path]], before[name])}


def _suffixes(name: str) -> list[str]:
    """Return all suffixes of a path, longest first.

    >>> _suffixes("state.mu.w")
    ['state.mu.w', 'mu.w', 'w']
    """
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]
