"""The stops of a flow as cuts of the graph that was captured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from gradir.frontends.pytorch.explaining.cuts import EXPLICIT, Flowing, Stop
from gradir.frontends.pytorch.recording.flow import FROM_OUTSIDE, Flow, Place, Value
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.timelines import Frame
from gradir.ir import Cut, Source

__all__ = ["cuts_of", "lines_of", "operation_of"]


def cuts_of(
    flow: Flow,
    flowing: Flowing,
    names_of: Callable[[Value], tuple[str, ...]],
    reached: Collection[str],
    scope_of: Callable[[Frame | None], str],
) -> Iterator[Cut]:
    """One cut for each place and kind, in the order of the program.

    ``names_of`` gives the names of a leaf. A kind that no program asks for is left out where ``reached`` has all leaves
    that are behind it.
    """
    lines = ShownLines()
    groups: dict[tuple[str, Place | None, str], tuple[Stop, int]] = {}
    for stop in flowing.stops:
        key = stop.kind, stop.step.place, scope_of(stop.step.call)
        first, leaves = groups.get(key, (stop, 0))
        groups[key] = first, leaves | stop.leaves
    for (kind, place, scope), (stop, leaves) in groups.items():
        names = dict.fromkeys(name for leaf in flowing.members(leaves) for name in names_of(leaf)[:1])
        if kind in EXPLICIT or not names.keys() <= set(reached):
            source, via = lines_of(place, lines)
            step, number = (
                (stop.step, stop.value.number) if stop.value.maker != FROM_OUTSIDE else (None, stop.value.number)
            )
            tensor = flow.outside[number].meta if step is None else step.outputs[number]
            yield Cut(kind, tuple(names), scope, tensor, operation_of(stop), source, via)


def lines_of(place: Place | None, lines: ShownLines) -> tuple[Source | None, Source | None]:
    """The line of the user's program, and the one of the library that it called, if it is another."""
    if place is None:
        return None, None
    inner = lines(place.code, place.instruction)
    if place.caller is None:
        return inner, None
    return lines(place.caller.code, place.caller.instruction), inner


def operation_of(stop: Stop) -> str:
    """The operation that a stop is at."""
    return str(stop.step.func.__name__).partition(".")[0]
