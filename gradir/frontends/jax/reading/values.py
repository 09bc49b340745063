"""What a jaxpr is taken apart into: values, and the records of the equations that make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from gradir.frontends.jax.reading.probe import Probe
    from gradir.ir import AttrValue, Source

__all__ = ["Branch", "Context", "Kind", "Loop", "Record", "Region", "Step", "Value", "outermost", "varying"]

Kind = Literal["argument", "constant", "literal", "output", "carry", "slice"]


@dataclass(eq=False, repr=False, slots=True)
class Value:
    """An argument, a constant, a literal, an output of a record, a carry of a loop, or the part that a round takes.

    ``start`` is what the first round takes of a carry, or what a slice is a part of, and ``back`` what the other rounds
    take. ``loops`` are those in which it varies from round to round, the outermost first. A literal and a constant have
    their number in ``literal``.

    ``is_active`` tells that it depends, by a path that lets gradient through, on what is differentiated,
    ``is_live`` that gradient comes to it too, and ``is_tainted`` that it depends on what is differentiated at all.
    """

    aval: Any
    kind: Kind
    name: str = ""
    record: Record | None = None
    number: int = 0
    start: Value | None = None
    loops: tuple[Loop, ...] = ()
    literal: object = None
    back: Value | None = None
    is_active: bool = False
    is_live: bool = False
    is_tainted: bool = False

    @property
    def ends(self) -> list[Value]:
        """What a carry or a slice is of each round."""
        return [end for end in (self.start, self.back) if end is not None]


class Loop(NamedTuple):
    """A loop, numbered so that one in another has the higher number, and how many rounds it runs."""

    number: int
    length: int


class Step(NamedTuple):
    """A part of the way to an equation: a named scope, or the body of a loop or a branch; of a loop its length."""

    name: str
    is_body: bool = False
    rounds: int | None = None


class Branch(NamedTuple):
    """In which branch of which conditional an equation stands, the loops that the choice varies in, what is around."""

    conditional: int
    number: int
    loops: tuple[Loop, ...]
    outer: Branch | None = None


class Context(NamedTuple):
    """Where equations stand.

    ``phase`` names the transformations of a gradient inside the function (``jvp``, ``transpose``). ``place`` is the
    number of the equation in each jaxpr from the innermost checkpointed region on. ``library`` is the file of the
    library's function that equations are in: lines around that are those of whoever called it first, so the line of the
    call holds. ``function`` is the name of the outermost one.
    """

    steps: tuple[Step, ...] = ()
    phase: tuple[str, ...] = ()
    source: Source | None = None
    loops: tuple[Loop, ...] = ()
    region: Region | None = None
    place: tuple[int, ...] = ()
    library: str | None = None
    branch: Branch | None = None
    function: str = ""


@dataclass(eq=False)
class Record:
    """One equation, or the exit of a loop or of branches.

    Of an exit, ``joins`` has by output the inputs that it is one of, ``carries`` those that go from round to round,
    ``slices`` the parts that each round takes, ``branches`` where the ends of branches stand, ``given`` what its
    equation takes, and ``bodies`` the first record of the loop's body or of each branch, and the one behind the last.
    """

    op: str
    native: str
    eqn: Any
    inputs: list[Value]
    context: Context
    attrs: Mapping[str, AttrValue]
    outputs: list[Value] = field(default_factory=list)
    joins: list[list[int]] | None = None
    carries: list[Value] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    given: list[Value] = field(default_factory=list)
    slices: list[Value] = field(default_factory=list)
    bodies: list[tuple[int, int]] = field(default_factory=list)
    probe: Probe | None = None


@dataclass(eq=False)
class Region:
    """A checkpointed region: its records by their place in it, what it holds, and where it stands.

    ``held`` are values of the program by identity, and ``made`` counts by record and type what it made to be kept.
    """

    eqn: Any
    jaxpr: Any
    inputs: list[Value]
    policy: str
    outer: Region | None
    branch: Branch | None
    outputs: list[Value] = field(default_factory=list)
    records: dict[tuple[int, ...], Record] = field(default_factory=dict)
    held: dict[int, Value] = field(default_factory=dict)
    made: Counter[tuple[int, tuple[tuple[Any, ...], str]]] = field(default_factory=Counter)


def varying(*loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops in which something varies that is made of what varies in these.

    >>> varying((Loop(1, 4),), (), (Loop(0, 3), Loop(1, 4)))
    (Loop(number=0, length=3), Loop(number=1, length=4))
    """
    return tuple(sorted({loop for each in loops for loop in each}))


def outermost(region: Region | None) -> Region | None:
    """The region around all others that a region is in, whose checkpoint decides what is held."""
    while region is not None and region.outer is not None:
        region = region.outer
    return region
