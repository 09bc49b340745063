"""Why an operation of a forward raised, or its backward does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.cuts import Flowing, updated_leaves
from gradir.frontends.pytorch.explaining.spent import carried_over, freed_steps
from gradir.frontends.pytorch.explaining.words import Words, called, few
from gradir.frontends.pytorch.explaining.writes import writes_over_saved
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE

__all__ = ["of_backward", "of_forward"]


def of_forward(words: Words, error: str) -> Iterator[Cause]:
    """Why the newest operation that failed raised an error; without one, the backward did."""
    flow = words.flow
    failed = flow.failure
    if failed is None:
        yield words.cause("backward", "error", "", [], None, detail=error)
        return
    made = [read.value for read in failed.reads if read.value.maker != FROM_OUTSIDE]
    inferred = [value for value in made if flow.steps[value.maker].mode == "inference_mode"]
    for value in inferred:
        step = flow.steps[value.maker]
        behind = words.names_of(read.value for read in step.inputs if read.is_leaf)
        names = list(behind) or words.called([value])
        yield words.cause("inference_mode", "error", called(step), names, step.place, detail=error)
    if not inferred:
        yield words.cause("raised", "error", failed.called, [], failed.place, detail=error)


def of_backward(
    flowing: Flowing, live: LiveGraph, made: Mapping[int, int], words: Words, error: str
) -> Iterator[Cause]:
    """Why a backward through a graph raised an error: what it saved was written to, or freed.

    ``made`` has the place of the step that made each grad_fn, by sequence number.
    """
    writes = writes_over_saved(words.flow, live, made)
    for write in writes:
        leaves = updated_leaves(write.step)
        names = words.names_of(map(flowing.root, leaves)) if leaves else words.called(write.values)
        savers, later = (few(map(words.called_at, steps)) for steps in (write.savers.values(), write.later))
        detail = "; ".join([savers] * bool(savers) + [f"later writes: {later}"] * bool(later))
        kind, op = "updated" if leaves else "inplace", called(write.step)
        yield words.cause(kind, "error", op, names, write.step.place, detail=detail)
    if not writes:
        yield _of_freed(flowing, live, made, words, error)


def _of_freed(flowing: Flowing, live: LiveGraph, made: Mapping[int, int], words: Words, error: str) -> Cause:
    freed = freed_steps(live, made)
    if not freed:
        return words.cause("raised", "error", "the backward", [], None, detail=error)
    operation, first = freed[0]
    place = None if first == FROM_OUTSIDE else words.flow.steps[first].place
    carried = carried_over(words.flow, flowing.ends, {index for _, index in freed}) or []
    if not carried:
        detail = "what is carried over from before that backward is not known"
    elif flowing.ends.isdisjoint(carried):
        verb = "are" if len(carried) > 1 else "is"
        detail = f"{few(map(words.made_as, carried))} {verb} carried over from before that backward"
    else:
        carried, detail = [], "what was captured was computed before that backward too"
    return words.cause("freed", "error", operation, words.called(carried), place, detail=detail)
