"""Which leaves of a function's arguments get a gradient, and why the others get none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.explanations.model import Cause, Examined, Excerpt, Explanation, Level, OfGraph
from gradir.frontends.jax.asides import of_captures, of_refusals
from gradir.frontends.jax.live import Trace
from gradir.frontends.jax.origins import origins, passed_by
from gradir.frontends.jax.reading.cuts import kind_of
from gradir.frontends.jax.reading.values import Record
from gradir.frontends.jax.replay import Replay, Step, replayed
from gradir.frontends.jax.traps import called, spoilt
from gradir.frontends.jax.values import are_known, can_run, gradients
from gradir.frontends.jax.zeros import zeroed
from gradir.frontends.paths import line_text
from gradir.frontends.texts import plain_text

__all__ = ["explain", "has_numbers"]

_SMALL: Final = 20_000
"""A function of so many equations is differentiated once to look at its gradients, where nobody says whether to."""

Changed: TypeAlias = Literal["zero", "nonfinite"]
_CHANGED: Final[Mapping[Changed, Level]] = {"zero": "info", "nonfinite": "error"}
"""What may become of a gradient on its way, and how grave that is."""


def explain(trace: Trace, *, values: bool | None = None) -> Explanation:
    """Explain a function that was traced; see `gradir.explain`.

    Raises:
        CaptureError: ``values`` are asked for, and a leaf has a shape and a dtype alone, or the backward cannot run.
    """
    if values and not has_numbers(trace):
        raise CaptureError("gradients have values where the arguments have: hand over arrays, not shapes and dtypes")
    left_out = _left_out(values, trace)
    values = not left_out.reason
    statuses = {value.name: "reached" if value.is_live else "cut" for value in trace.differentiated}
    causes = [*of_refusals(trace, lambda: not has_numbers(trace) or not can_run(trace.arguments))]
    raises = bool(causes)
    if any(cause.level == "error" for cause in causes):
        # Where one operation raises, no leaf gets a gradient.
        statuses.update((name, "error") for name, status in statuses.items() if status == "reached")
    for record, behind in trace.ends():
        names = tuple(leaf.name for leaf in behind)
        if record is None:
            statuses.update(dict.fromkeys(names, "unused"))
            # A function that depends on none of its leaves moves nothing.
            level: Level = "error" if len(names) == len(statuses) else "info"
            causes.append(Cause("unused", level, names=names))
        else:
            causes.append(Cause(kind_of(record), "error", plain_text(record.op), names, record.context.source))
    integers = tuple(value.name for value in trace.integers)
    if integers:
        statuses.update(dict.fromkeys(integers, "frozen"))
        causes.append(Cause("integer", "info", names=integers))
    norms: dict[str, float | str] = {}
    causes += of_captures(trace, statuses)
    if values and trace.is_connected and not raises:
        norms = _norms(trace)
        reached = [name for name in norms if statuses[name] == "reached"]
        found = {status: [name for name in reached if norms[name] == status] for status in _CHANGED}
        for status, these in found.items():
            statuses.update(dict.fromkeys(these, status))
        replay = replayed(trace) if any(found.values()) else None
        for status, these in found.items():
            causes += _changed(trace, replay, status, these)
    examined = Examined("backward") if norms else left_out
    of_graph = None if raises else _of_graph(trace, statuses)
    shown = tuple(replace(cause, excerpt=_excerpt(cause)) for cause in causes)
    return Explanation(statuses, shown, gradients=norms, of_graph=of_graph, examined=examined)


def _excerpt(cause: Cause) -> Excerpt | None:
    """Return the line of a cause, with the columns of its operation where the line has it once."""
    text = "" if cause.source is None else line_text(cause.source.file, cause.source.line)
    found = list(re.finditer(rf"\b{re.escape(cause.op)}\(", text)) if cause.op else []
    start, end = (found[0].start(), found[0].end() - 1) if len(found) == 1 else (0, 0)
    return Excerpt(plain_text(text), start, end) if text.strip() else None


def has_numbers(trace: Trace) -> bool:
    """Whether all that a function is given, or captures, has numbers."""
    captured = [value.literal for record in trace.flat.records for value in record.inputs if value.kind == "constant"]
    return all(map(are_known, (*trace.arguments.given, captured)))


def _left_out(values: bool | None, trace: Trace) -> Examined:
    """Return why gradients are not computed, if they are not."""
    count = len(trace.flat.records)
    if not has_numbers(trace):
        return Examined(reason="arguments have a shape and a dtype alone", advice="hand over arrays")
    if values is False:
        return Examined(reason="values=False", advice="leave out values=False (--no-values)")
    if values is None and count > _SMALL:
        return Examined(reason=f"{count:,} equations are more than {_SMALL:,}", advice="pass values=True (--values)")
    return Examined()


def _changed(trace: Trace, replay: Replay | None, status: Changed, names: Sequence[str]) -> Iterator[Cause]:
    """Which operations give the gradients of some leaves zero, or make them infinite or NaN, each with its line."""
    known = origins(replay, status) if replay is not None and names else {}
    steps: dict[Record, Step] = {}
    behind: dict[Record | None, list[str]] = {}
    wanted = {*names}
    for leaf in (value for value in trace.differentiated if value.name in wanted):
        found = None if replay is None else known.get(id(replay.cell(leaf)), {})
        passed = passed_by(trace.flat.records, leaf) if found == {} else None
        if passed is not None:
            behind.setdefault(passed, []).append(leaf.name)
            continue
        steps.update((record, step) for record, step in (found or {}).items() if record not in steps)
        for record in found or (None,):
            behind.setdefault(record, []).append(leaf.name)
    numbers = {id(record): number for number, record in enumerate(trace.flat.records)}
    for record in sorted(behind, key=lambda each: numbers.get(id(each), -1)):
        leaves = tuple(behind[record])
        if replay is None or record is None:
            detail = "" if replay is not None else "in which operation is not known"
            yield Cause(status, _CHANGED[status], names=leaves, detail=detail, framework="jax")
            continue
        op, detail, level = called(record), "", _CHANGED[status]
        if record not in steps:
            kind = "not_chosen"
        elif status == "zero":
            kind, level, op = zeroed(steps[record], is_lost=replay.is_lost)
        else:
            kind, detail = spoilt(replay, steps[record])
        source = record.context.source
        yield Cause(kind, level, plain_text(op), leaves, source, detail=plain_text(detail), framework="jax")


def _of_graph(trace: Trace, statuses: Mapping[str, str]) -> OfGraph | None:
    if not trace.is_connected:
        return None
    nodes = trace.graph().nodes.values()
    return OfGraph({node.id: name for node in nodes for name in node.names if name in statuses})


def _norms(trace: Trace) -> dict[str, float | str]:
    """What a real backward gives each leaf: its norm, or the word for none, zeros, or numbers that are not finite."""
    found = gradients(trace.arguments.fn, *trace.arguments.given)
    pairs = zip(trace.differentiated, found, strict=True)
    return {value.name: _norm(gradient) if value.is_live else "none" for value, gradient in pairs}


def _norm(gradient: Any) -> float | str:
    numbers = np.asarray(gradient)
    wide = numbers.astype(np.complex128 if np.iscomplexobj(numbers) else np.float64)
    if not np.isfinite(wide).all():
        return "nonfinite"
    # Of an array without entries no number is zero.
    return float(np.linalg.norm(wide)) if wide.any() or not wide.size else "zero"
