"""Name values, operations and lines as the program does, and build causes and terms with these names."""

from __future__ import annotations

import linecache
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, Literal, cast

import torch
from msgspec.structs import replace

from gradir.explanations.model import Cause, Excerpt, Level, Term
from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.explaining.intended_cuts import NamesOf
from gradir.frontends.pytorch.recording.flow import Flow, is_number
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value
from gradir.frontends.texts import plain_text
from gradir.ir import Source
from gradir.ir.memo import group_by_key
from gradir.lines import cell_of
from gradir.vocabulary.operations import OWN_NAMES

# These run many operations, so their names identify none.
_GENERAL: Final = frozenset({"", "backward", "grad", "multi_head_attention_forward"})
_MOST_LISTED: Final = 3


def operation_name(step: Step) -> str:
    """Return the program's name of an operation, or torch's name for operators and unknown calls."""
    if step.called and not step.called.startswith("__"):
        return step.called
    return str(step.func.__name__).partition(".")[0]


def name_in_program(op: str, step: Step | None) -> str:
    """Return the program's name of an operation that has an internal name in torch."""
    if op not in OWN_NAMES:
        return op
    if step is None or step.called in _GENERAL or step.called.startswith("__"):
        return OWN_NAMES[op]
    return step.called


def find_lines(place: Place | None, lines: ShownLines) -> tuple[Source | None, Source | None]:
    """Return the line of the user's program, and the line of the library that it called, if any."""

    def find_line(each: Place) -> Source:
        source, cell = lines(each.code, each.instruction), cell_of(each.code.co_filename)
        # A notebook runs each cell as a temporary file.
        return replace(source, file=cell) if cell else source

    if place is None:
        return None, None
    return (find_line(place), None) if place.caller is None else (find_line(place.caller), find_line(place))


def add_place(cause: Cause, place: Place | None) -> Cause:
    """Return a cause with the line of a place, unless it already has a line."""
    if cause.source is not None or place is None:
        return cause
    source, via = find_lines(place, ShownLines())
    excerpt = None if source is None else _excerpt(place.caller or place, source.line, "")
    return replace(cause, source=source, via=via, excerpt=excerpt)


def _excerpt(place: Place, line: int, op: str) -> Excerpt | None:
    """Return a line of the user's program, with the columns of an operation if Python knows them."""
    code = place.code
    text = linecache.getline(code.co_filename, line).rstrip("\r\n")
    if not text.strip():
        return None
    # Python 3.10 knows only lines.
    positions = code.co_positions() if sys.version_info >= (3, 11) else ()
    first, last, start, end = next(islice(positions, place.instruction // 2, None), (None,) * 4)
    if first != line or last is None or start is None or end is None:
        return Excerpt(plain_text(text))
    begins, ends = (len(text.encode()[:column].decode(errors="replace")) for column in (start, end))
    # In a chain of calls the columns begin at the first call.
    begins = max(begins, text.rfind(f".{op}(", begins, ends) + 1)
    return Excerpt(plain_text(text), begins, ends if last == first else len(text))


def list_first(texts: Iterable[str]) -> str:
    """Return texts as a list, with the number of the others if there are many."""
    listed = [*dict.fromkeys(texts)]
    others = [f"{len(listed) - _MOST_LISTED:,} more"] if len(listed) > _MOST_LISTED else []
    return " and ".join([", ".join(listed[:_MOST_LISTED]), *others])


class Namer:
    """Names the values of a flow as the program does, and builds causes with these names and its lines."""

    def __init__(self, flow: Flow, values: Mapping[str, Value]) -> None:
        self.lines = ShownLines()
        self.names = group_by_key((value, name) for name, value in values.items())
        self.flow = flow

    def names_of(self, leaves: Iterable[Value]) -> Iterator[str]:
        """Yield the names of the values that have one."""
        for leaf in leaves:
            yield from self.names.get(leaf, ())

    def list_names(self, values: Iterable[Value]) -> list[str]:
        """Return the names of values, or else their variables."""
        found = (self.names.get(value) or [self.flow.variables.get(value, "")] for value in values)
        return [name for names in found for name in names if name]

    def line(self, place: Place | None) -> str:
        """Return the line of a place, such as ``at train.py:3``, or an empty text if unknown."""
        source = find_lines(place, self.lines)[0]
        return "" if source is None else f"at {source.file}:{source.line}"

    def describe_step(self, step: Step) -> str:
        """Return the name of an operation and its line."""
        return f"{operation_name(step)} {self.line(step.place)}".rstrip()

    def describe_origin(self, value: Value) -> str:
        """Return the name of a value, or its operation, and its line."""
        step = self.flow.step_of(value)
        name = ", ".join(self.list_names([value]))
        if step is None:
            return name or "a tensor from before the recording"
        return f"{name or f'the result of {operation_name(step)}'} {self.line(step.place)}".rstrip()

    def cause(self, kind: str, level: Level, op: str, names: Iterable[str], place: Place | None, **extra: str) -> Cause:
        """Return a cause at a place of the program; ``extra`` are its detail and pattern."""
        source, via = find_lines(place, self.lines)
        shown = None if place is None or source is None else _excerpt(place.caller or place, source.line, op)
        return replace(Cause(kind, level, op, tuple(names), source, via, excerpt=shown), **extra)


_MOST_RESULTS: Final = 3
# One parameter with a counterpart proves nothing.
_FEWEST_COPIED: Final = 2
# One more than a cause lists, which shows whether there are others.
_MOST_ENDS: Final = _MOST_RESULTS + 1


def describe_terms(
    words: Namer, flowing: Flowing, captured: Iterable[torch.Tensor] | None, names_behind: NamesOf
) -> Iterator[Term]:
    """Yield the terms of an explanation; with ``captured``, each scalar term has its value."""
    flow, known = words.flow, dict[Value, torch.Tensor]()
    if captured is not None:
        known = {flow.value_of(tensor): tensor for tensor in captured if is_number(tensor)} | flow.numbers
    for value in flowing.terms:
        step, number = flow.step_of(value), float(known[value].detach()) if value in known else None
        yield Term(
            names_behind(value),
            flow.variables.get(value, ""),
            "" if step is None else operation_name(step),
            None if step is None else find_lines(step.place, words.lines)[0],
            number if number is None or math.isfinite(number) else cast("Literal['nan', 'inf', '-inf']", str(number)),
        )


def explain_unused(words: Namer, flowing: Flowing, level: Level, leaves: Mapping[str, Value]) -> Iterator[Cause]:
    """Yield the causes why nothing captured uses ``leaves``, one for all leaves of the same results."""
    ends = _loose_ends(words.flow, flowing) if leaves else {}
    groups = group_by_key((ends.get(leaf, ()), name) for name, leaf in leaves.items())
    read = set[Value]()
    if any(groups):
        steps = (step for number, step in enumerate(words.flow.steps) if Value(number, 0) not in flowing.saved)
        left = (*words.flow.exits, *words.flow.exchanges)
        read = {each.value for reads in (step.inputs for step in steps) for each in reads}
        read |= {each.value for found in left for each in found.reads}
    for last_steps, names in groups.items():
        place = words.flow.steps[last_steps[0]].place if last_steps else None
        is_copied = not last_steps and _has_copies(words, flowing, [leaves[name] for name in names])
        kind, detail = "copied" if is_copied else "unused", _describe_results(words, last_steps, read)
        yield words.cause(kind, level, "", names, place, detail=detail)


def _has_copies(words: Namer, flowing: Flowing, leaves: Sequence[Value]) -> bool:
    """Return whether the loss uses an unnamed parameter of the same shape for each of these leaves."""
    others = {flowing.root(value) for value in flowing.wanted} - words.names.keys()
    given = (words.flow.outside[value.number] for value in others if value.maker == FROM_OUTSIDE)
    shapes = Counter[object](outside.meta.shape for outside in given if outside.role == "parameter")
    # A parameter that a wrapper replaced is dead, and was not copied.
    living = (leaf if words.flow.tensor_of(leaf) is not None else None for leaf in leaves)
    wanted = Counter[object](None if leaf is None else words.flow.meta_of(leaf).shape for leaf in living)
    return len(leaves) >= _FEWEST_COPIED and not wanted - shapes


def _describe_results(words: Namer, last_steps: tuple[int, ...], read: Set[Value]) -> str:
    """Describe the results of the last steps; other operations read the ``read`` values without a gradient."""
    if not last_steps:
        return ""
    results = map(words.flow.values_of_step, last_steps[:_MOST_RESULTS])
    # The first result with a variable, or else the first one.
    named = (next((value for value in values if value in words.flow.variables), values[0]) for values in results)
    made = [*dict.fromkeys(map(words.describe_origin, named))]
    others = " and others" if len(last_steps) > _MOST_RESULTS else ""
    is_one = len(made) == 1 and not others
    listed = f"{', '.join(made)}{others} {'does' if is_one else 'do'}"
    if any(value in read for number in last_steps for value in words.flow.values_of_step(number)):
        return f"{listed}, and {'its' if is_one else 'their'} numbers go on without a gradient"
    return f"{listed}, and {'goes' if is_one else 'go'} no further"


def _loose_ends(flow: Flow, flowing: Flowing) -> dict[Value, tuple[int, ...]]:
    """Return, by leaf, the newest steps that use it and whose result no other step with a gradient takes."""
    ends: dict[Value, tuple[int, ...]] = {}
    for number in range(len(flow.steps) - 1, -1, -1):
        outputs = flow.values_of_step(number)
        after = {end for output in outputs for end in ends.pop(output, ())}
        carries = any(output in flowing.carrying or flowing.should_carry(output) for output in outputs)
        # A tensor that torch saves for a derivative is not a result of the program.
        if not carries or outputs[0] in flowing.saved or not flowing.wanted.isdisjoint(outputs):
            continue
        newest = tuple(sorted(after or {number}, reverse=True)[:_MOST_ENDS])
        for read in (read for read in flowing.sources(outputs[0]) if read.carries):
            taken = flowing.root(read.value) if read.is_leaf else read.value
            known = ends.get(taken, ())
            ends[taken] = newest if not known else tuple(sorted({*known, *newest}, reverse=True)[:_MOST_ENDS])
    return ends
