"""What the optimizer of a step of training does with the gradient of each leaf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import jax
import numpy as np
from msgspec.structs import replace

from gradir.explanations.model import Cause, Explanation
from gradir.frontends.jax.explaining import has_numbers
from gradir.frontends.jax.live import Trace
from gradir.frontends.jax.reading.assemble import Output
from gradir.frontends.jax.reading.flatten import Record, Value
from gradir.frontends.jax.reading.jaxprs import type_of
from gradir.frontends.walks import reached
from gradir.ir import Source

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
    """Yield the causes of the loss inside a step, in view of the leaves that the optimizer moves.

    A cause is no alarm if the optimizer leaves all of its leaves alone. It is an error if a leaf moves by its raw
    gradient, or if nothing that the optimizer moves gets a gradient.
    """
    moved = _moved(step.flat.records)
    updates = {leaf.name: _update(leaf, output) for leaf, output in _new_values(step)}
    # An optimizer works if it computes the update of any leaf from gradients.
    works = any(each.kind == "computed" and _is_moved(each.value, moved) for each in updates.values())
    left_out = _left_out(step, loss, updates, moved, works=works)
    own = _by_end(updates, [leaf.name for leaf in loss.differentiated])
    held = [name for name, path in own.items() if name not in left_out and whole.statuses[name] != "frozen"]
    causes = [
        replace(cause, level="note") if cause.names and left_out.issuperset(cause.names) else cause
        for cause in whole.causes
    ]
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
    """Return the leaves of the loss inside a step whose new value does not depend on any gradient.

    A leaf without a gradient never depends on one. It counts as left out if the optimizer has a state for other leaves
    alone, or if it works on other gradients and adds zeros here.
    """
    kept = {
        leaf.name: update.path
        for leaf in step.differentiated
        if (update := updates.get(leaf.name)) and not _is_moved(update.value, moved) and _is_behind(leaf, update.value)
    }
    if kept and has_numbers(step):
        kept = _unchanged(step, kept)
    kept_ends = {end for name in kept for end in _ends(name)}
    names = [leaf.name for leaf in loss.differentiated]
    given = [leaf.name for leaf in (*step.arguments.differentiated, *step.arguments.others)]
    ends = Counter(end for name in given for end in _ends(name))
    # For these the step is given something beside their value, such as a momentum.
    states, own = {name for name in names if ends[name] > 1}, _by_end(updates, names)
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

    return any(each is leaf for each in reached([value], sources))


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
        found = [
            (leaf, outputs.get(start + leaf.name) or outputs.get(above + leaf.name)) for leaf in step.differentiated
        ]
        pairs = [(leaf, each) for leaf, each in found if each and type_of(leaf.aval) == type_of(each.value.aval)]
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
