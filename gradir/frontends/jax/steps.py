"""A step of training: the function that it differentiates, and what its optimizer does with each gradient."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from types import FrameType
from typing import Any, Final, Literal, NamedTuple

import jax
import numpy as np
from msgspec.structs import replace

from gradir.errors import GradirError
from gradir.explanations.model import Cause, Explanation
from gradir.frontends.jax.arguments import shown_name
from gradir.frontends.jax.explaining import explain, has_numbers
from gradir.frontends.jax.live import Trace, trace
from gradir.frontends.jax.modules.watch import traced_anew
from gradir.frontends.jax.reading.assemble import Output
from gradir.frontends.jax.reading.flatten import Record, Value
from gradir.frontends.jax.reading.jaxprs import Sources, type_of
from gradir.frontends.walks import frames_from, reached
from gradir.ir import Source


def explain_function(found: Trace, *, values: bool | None = None) -> Explanation:
    """Explain a function, or the function that a step of training differentiates; see `gradir.explain`."""
    return explain_inner(found, inner_of(found), values=values) if _is_step(found) else explain(found, values=values)


def explain_inner(found: Trace, inner: Inner | None, *, values: bool | None = None) -> Explanation:
    """Explain the function that a step of training differentiates; see `explain_function`."""
    if inner is None:
        detail = "which function it differentiates is not known, so what it returns is explained"
        about, source = found, None
    else:
        detail = f"`{inner.name}` is explained, with the arguments that it gets there"
        about, source = inner.trace, inner.source
        if has_numbers(found) and not has_numbers(about):
            detail += ", whose numbers are not known"
    cause = Cause("inner_gradient", "note", found.name, source=source, detail=detail, framework="jax")
    whole = explain(about, values=values)
    causes = whole.causes if inner is None else beside_optimizer(found, about, whole)
    return replace(whole, causes=(cause, *causes))


class Inner(NamedTuple):
    """A function that is differentiated inside another one: its trace, its name, and the line that calls for it."""

    trace: Trace
    name: str
    source: Source | None


class Asked(NamedTuple):
    """A gradient that is asked for."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    argnums: Any
    has_aux: bool

    def traced(self) -> Trace:
        """Trace the function."""
        return trace(self.fn, self.args, self.kwargs, argnums=self.argnums, has_aux=self.has_aux)


class _Found(BaseException):
    """Ends a run in which the gradient that was looked for is asked for; nothing may take it for an error."""


def _is_step(found: Trace) -> bool:
    """Whether a function takes a gradient inside and returns, among others, what has the shapes of its parameters."""
    returned = Counter(type_of(value.aval) for _, value in found.outputs)
    wanted = Counter(type_of(value.aval) for value in found.differentiated)
    is_loss = len(found.outputs) == 1 and not found.outputs[0].value.aval.shape
    return wanted <= returned and not is_loss and any("transpose" in each.context.phase for each in found.flat.records)


def inner_of(found: Trace, *, runs: bool = True) -> Inner | None:
    """Return the first function that a step differentiates by leaves like its own parameters, or else the first at all.

    The step runs if its arguments have numbers and ``runs`` allows it; otherwise it is traced.
    """
    wanted = Counter(type_of(value.aval) for value in found.differentiated)
    seen: list[Inner] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        read = _reader(frame) if event == "call" else None
        around = takewhile(lambda each: each is not own, frames_from(frame.f_back))
        if read is None or any(_reader(each) is not None for each in around):
            return
        try:
            asked = read(frame.f_locals)
            with jax.disable_jit(False):
                inner = asked.traced()
        except (AttributeError, GradirError, KeyError, TypeError, ValueError):
            # It is not what this release is known to have, or cannot be traced.
            return
        seen.append(Inner(inner, shown_name(asked.fn), Sources().of_frame(frame)))
        if Counter(type_of(value.aval) for value in inner.differentiated) <= wanted:
            raise _Found

    own, given, before = inspect.currentframe(), found.arguments.given, sys.getprofile()
    # A profiler sees each call, wherever and whenever the program made the function that runs.
    sys.setprofile(look)
    try:
        if runs and has_numbers(found):
            with jax.disable_jit():
                found.arguments.fn(*given)
        else:
            with traced_anew():
                jax.make_jaxpr(found.arguments.fn)(*given)
    except _Found:
        return seen[-1]
    except Exception:  # noqa: BLE001 (operation by operation a program may raise what it does not as a whole)
        return None
    finally:
        sys.setprofile(before)
    return seen[0] if seen else None


def _reader(frame: FrameType) -> Callable[[Mapping[str, Any]], Asked] | None:
    read = _READERS.get(frame.f_code.co_qualname)
    is_library = read is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES
    return read if is_library else None


def find_asked(frame: FrameType | None) -> Asked | None:
    """Return the request of the outermost running call of a library that asks for a gradient."""
    found = None
    for each in frames_from(frame):
        # It may not have what this release is known to have.
        with suppress(AttributeError, KeyError):
            found = (read(each.f_locals) if (read := _reader(each)) is not None else None) or found
    return found


def read_request(names: Mapping[str, Any]) -> Asked:
    """Return the request of `jax.grad`, `jax.value_and_grad` or `jax.vjp`, by the names of its arguments."""
    return _of_vjp(names) if "primals" in names else _of_argnums(names, "fun")


def _of_argnums(names: Mapping[str, Any], fn: str) -> Asked:
    argnums = names["jax_argnums"] if "jax_argnums" in names else names["argnums"]
    # flax puts the keywords among the arguments, and forgets them.
    return Asked(names[fn], tuple(names["args"]), names.get("kwargs", {}), argnums, names["has_aux"])


def _of_vjp(names: Mapping[str, Any]) -> Asked:
    primals = tuple(names["primals"])
    argnums = tuple(range(len(primals))) if len(primals) > 1 else 0
    return Asked(names["fun"], primals, {}, argnums, names["has_aux"])


def _of_equinox(names: Mapping[str, Any]) -> Asked:
    fields = vars(names["self"])
    # It takes the first argument out of the others as it runs.
    first = (names["x"],) if "x" in names else ()
    return Asked(fields["_fun"], (*first, *names["args"]), names["kwargs"], 0, fields["_has_aux"])


_LIBRARIES: Final = frozenset({"equinox", "flax", "jax"})
# How to read, from the variables of a function that asks for a gradient, which gradient it asks for. JAX, flax and
# equinox may change these names of functions and variables, which stand here alone.
_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Asked]]] = {
    "value_and_grad.<locals>.value_and_grad_f": lambda names: _of_argnums(names, "fun"),
    "vjp": _of_vjp,
    "_grad_general.<locals>.grad_wrapper": lambda names: _of_argnums(names, "f"),
    "_ValueAndGradWrapper.__call__": _of_equinox,
}


# A loop passes its facts on from round to round, so it is asked this often.
_MOST_PASSES: Final = 8
_SAME_NUMBERS: Final = frozenset({"broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze"})
# Statuses of leaves that no gradient moves.
_IDLE: Final = frozenset({"cut", "unused", "zero"})


class _Update(NamedTuple):
    """The way in which a step makes the new value of a leaf; ``record`` is the addition."""

    path: str
    value: Value
    kind: Literal["kept", "nothing", "raw", "computed"]
    record: Record | None = None


def beside_optimizer(step: Trace, loss: Trace, whole: Explanation) -> Iterator[Cause]:
    """Yield the causes of the loss inside a step, in view of the leaves that the optimizer moves."""
    moved = _moved(step.flat.records)
    updates = {leaf.name: _update(leaf, output) for leaf, output in _new_values(step)}
    # An optimizer works if it computes the update of any leaf from gradients.
    works = any(each.kind == "computed" and _is_moved(each.value, moved) for each in updates.values())
    left_out = _left_out(step, loss, updates, moved, works=works)
    own = _by_end(updates, [leaf.name for leaf in loss.differentiated])
    held = [name for name, path in own.items() if name not in left_out and whole.statuses[name] != "frozen"]
    # A cause is no alarm if the optimizer leaves all of its leaves alone.
    excused = [bool(cause.names) and left_out.issuperset(cause.names) for cause in whole.causes]
    pairs = zip(excused, whole.causes, strict=True)
    causes = [replace(cause, level="note") if is_excused else cause for is_excused, cause in pairs]
    reached = [name for name, status in whole.statuses.items() if status == "reached"]
    climbing: dict[Source | None, list[str]] = {}
    for name in reached:
        update = updates.get(own.get(name, ""))
        if works and update is not None and update.kind == "raw" and _is_applied(update.record):
            source = None if update.record is None else update.record.context.source
            climbing.setdefault(source, []).append(name)
    for source, names in climbing.items():
        yield Cause("raw_update", "error", names=tuple(names), source=source, framework="jax")
    is_idle = left_out and held and all(whole.statuses[name] in _IDLE for name in held)
    # It is an error if nothing that the optimizer moves gets a gradient.
    if is_idle and not any(cause.level == "error" for cause in causes) and _stay(step, updates, map(own.get, held)):
        yield from _of_idle(causes, whole, held)
    else:
        yield from causes
    if frozen := tuple(name for name in reached if name in left_out):
        yield Cause("not_in_optimizer", "note", names=frozen, framework="jax")


def _of_idle(causes: Sequence[Cause], whole: Explanation, held: Sequence[str]) -> Iterator[Cause]:
    """Yield the causes where the optimizer moves nothing: those of gradients that are zero are errors then."""
    zeros = {name for name in held if whole.statuses[name] == "zero"}
    concerned = [cause for cause in causes if zeros.intersection(cause.names)]
    # At the minimum of the loss nothing has to move.
    is_minimum = any(cause.kind == "equal" for cause in concerned)
    if not concerned:
        yield Cause("moves_nothing", "error", names=tuple(held), framework="jax")
    for cause in causes:
        yield replace(cause, level="error") if cause in concerned and not is_minimum else cause


def _update(leaf: Value, output: Output) -> _Update:
    made = _bare(output.value)
    if made is leaf:
        return _Update(*output, "kept")
    record = made.record
    terms = [] if record is None or record.native not in {"add", "add_any"} else [*map(_bare, record.inputs)]
    if leaf not in terms:
        return _Update(*output, "computed")
    other = terms[1 - terms.index(leaf)]
    if other.kind == "literal":
        return _Update(*output, "computed" if np.any(np.asarray(other.literal)) else "nothing", record)
    is_raw = other.record is not None and "transpose" in other.record.context.phase
    return _Update(*output, "raw" if is_raw else "computed", record)


def _bare(value: Value) -> Value:
    """Return the value that has the numbers of another one, behind conversions and broadcasts."""
    while (record := value.record) is not None and record.native in _SAME_NUMBERS:
        if "transpose" in record.context.phase:
            break
        value = record.inputs[0]
    return value


def _is_applied(record: Record | None) -> bool:
    """Return whether ``apply_updates`` of optax or equinox makes an addition, which is for updates, not gradients."""
    trace = None if record is None else record.eqn.source_info.traceback
    return trace is not None and any(frame.function_name.startswith("apply_updates") for frame in trace.frames)


def _by_end(updates: Mapping[str, _Update], names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for own in sorted(updates, key=lambda own: own.count(".")):
        for end in _ends(own):
            found.setdefault(end, own)
    return {name: found[name] for name in names if name in found}


def _left_out(
    step: Trace, loss: Trace, updates: Mapping[str, _Update], moved: set[int], *, works: bool
) -> frozenset[str]:
    """Return the leaves of the loss inside a step whose new value does not depend on any gradient."""
    known = [(leaf, updates[leaf.name]) for leaf in step.differentiated if leaf.name in updates]
    still = [(leaf, update) for leaf, update in known if not _is_moved(update.value, moved)]
    kept = {leaf.name: update.path for leaf, update in still if _is_behind(leaf, update.value)}
    if kept and has_numbers(step):
        kept = _unchanged(step, kept)
    kept_ends = {end for name in kept for end in _ends(name)}
    names = [leaf.name for leaf in loss.differentiated]
    given = [leaf.name for leaf in (*step.arguments.differentiated, *step.arguments.others)]
    ends = Counter(end for name in given for end in _ends(name))
    # For these the step is given something beside their value, such as a momentum.
    states, own = {name for name in names if ends[name] > 1}, _by_end(updates, names)
    # A leaf without a gradient never depends on one. It counts if the optimizer has a state for other leaves alone, or
    # if it works on other gradients and adds zeros here.
    return frozenset(
        leaf.name
        for leaf in loss.differentiated
        if leaf.name in kept_ends
        and (
            leaf.is_live
            or (states and leaf.name not in states)
            or (works and updates[own[leaf.name]].kind in {"kept", "nothing"})
        )
    )


def _is_behind(leaf: Value, value: Value) -> bool:
    """Return whether a value is computed from a leaf, as a gradient that is constant is not."""

    def sources(each: Value) -> list[Value]:
        record = each.record
        return [*each.ends, *(() if record is None else (*record.inputs, *record.given))]

    return leaf in reached([value], sources)


def _stay(step: Trace, updates: Mapping[str, _Update], names: Iterable[str | None]) -> bool:
    """Return whether a step gives these leaves back as they are, as far as is known."""
    paths = {name: updates[name].path for name in names if name is not None}
    if has_numbers(step):
        return len(_unchanged(step, paths)) == len(paths)
    return not any(_is_moved(updates[name].value, _moved(step.flat.records)) for name in paths)


def _new_values(step: Trace) -> list[tuple[Value, Output]]:
    """Return each leaf with the output that has its name behind the same path, the shortest that all leaves have."""
    outputs = {output.path: output for output in step.outputs}
    first = step.differentiated[0]
    starts = [path.removesuffix(first.name) for path in outputs if f".{path}".endswith(f".{first.name}")]
    for start in sorted(starts, key=lambda start: start.count(".")):
        # Names of arguments are without the `params` of flax.
        above = start.removesuffix("params.")
        leaves = step.differentiated
        found = [outputs.get(start + leaf.name) or outputs.get(above + leaf.name) for leaf in leaves]
        named = [(leaf, each) for leaf, each in zip(leaves, found, strict=True) if each is not None]
        pairs = [(leaf, each) for leaf, each in named if type_of(leaf.aval) == type_of(each.value.aval)]
        if len(pairs) == len(found):
            return pairs
    return []


def _moved(records: Sequence[Record]) -> set[int]:
    moved: set[int] = set()
    for _ in range(_MOST_PASSES):
        before = len(moved)
        for record in records:
            taken = (*record.inputs, *record.given)
            if "transpose" in record.context.phase or any(_is_moved(value, moved) for value in taken):
                moved.update(map(id, record.outputs))
        if len(moved) == before:
            break
    return moved


def _is_moved(value: Value, moved: set[int]) -> bool:
    return any(id(each) in moved for each in reached([value], lambda each: each.ends))


def _unchanged(step: Trace, kept: dict[str, str]) -> dict[str, str]:
    given = {leaf.name: leaf.value for leaf in step.arguments.differentiated}
    made = jax.tree_util.tree_leaves(jax.jit(step.arguments.fn)(*step.arguments.given))
    places = {output.path: number for output, number in zip(step.outputs, step.places, strict=True)}
    return {name: path for name, path in kept.items() if np.array_equal(made[places[path]], given[name])}


def _ends(name: str) -> list[str]:
    """Return a path without its first components, one after the other.

    >>> _ends("state.mu.w")
    ['state.mu.w', 'mu.w', 'w']
    """
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]
