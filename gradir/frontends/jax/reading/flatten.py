"""A jaxpr as values, and records in the order in which they run, with the jaxprs that it calls taken apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gradir.errors import CaptureError
from gradir.frontends.jax.reading import jaxprs
from gradir.frontends.jax.reading.jaxprs import Sources, place_text
from gradir.frontends.texts import plain_text

if TYPE_CHECKING:
    from gradir.frontends.jax.reading.probe import Probe
    from gradir.ir import AttrValue, Source

Kind = Literal["argument", "constant", "literal", "output", "carry", "slice"]


@dataclass(eq=False, repr=False, slots=True)
class Value:
    """An argument, a constant, a literal, an output of a record, a carry of a loop, or the slice that a round takes."""

    aval: Any
    kind: Kind
    name: str = ""
    record: Record | None = None
    number: int = 0
    # The first value of a carry, or the whole of a slice.
    start: Value | None = None
    # Those in which it varies, the outermost first.
    loops: tuple[Loop, ...] = ()
    # The number of a literal or constant.
    literal: object = None
    # The value of a carry from the other rounds.
    back: Value | None = None
    # It depends on the differentiated leaves by paths with gradient, and if it is live, it also gets one.
    is_active: bool = False
    is_live: bool = False
    # It depends on them in any way.
    is_tainted: bool = False

    @property
    def ends(self) -> list[Value]:
        """The values that a carry or a slice has in its rounds."""
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
    """Where equations stand."""

    steps: tuple[Step, ...] = ()
    # The transformations of a gradient inside the function: jvp, transpose.
    phase: tuple[str, ...] = ()
    source: Source | None = None
    loops: tuple[Loop, ...] = ()
    region: Region | None = None
    # The number of the equation in each jaxpr from the innermost checkpointed region on.
    place: tuple[int, ...] = ()
    # The file of the library around it: JAX traces a function of it once, so its lines are of the first caller.
    library: str | None = None
    branch: Branch | None = None
    # The outermost function of that library.
    function: str = ""


@dataclass(eq=False)
class Record:
    """One equation, or the exit of a loop or of branches."""

    op: str
    native: str
    eqn: Any
    inputs: list[Value]
    context: Context
    attrs: Mapping[str, AttrValue]
    outputs: list[Value] = field(default_factory=list)
    # All others are of an exit alone. By output the inputs that it is one of:
    joins: list[list[int]] | None = None
    carries: list[Value] = field(default_factory=list)
    # Where the ends of branches stand.
    branches: list[Branch] = field(default_factory=list)
    # What the equation takes.
    given: list[Value] = field(default_factory=list)
    # The parts that each round takes.
    slices: list[Value] = field(default_factory=list)
    # The first record of the loop's body or of each branch, and the one behind the last.
    bodies: list[tuple[int, int]] = field(default_factory=list)
    probe: Probe | None = None


@dataclass(eq=False)
class Region:
    """A checkpointed region: its records by place, the values that it holds, and counts of ``made`` ones."""

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
    """Return the loops in which a value varies that is computed from others.

    >>> varying((Loop(1, 4),), (), (Loop(0, 3), Loop(1, 4)))
    (Loop(number=0, length=3), Loop(number=1, length=4))
    """
    return tuple(sorted({loop for each in loops for loop in each}))


def outermost(region: Region | None) -> Region | None:
    """Return the region around all others that a region is in, whose checkpoint decides what is held."""
    while region is not None and region.outer is not None:
        region = region.outer
    return region


_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Flattener:
    """Collects the records of a jaxpr: calls are followed, a loop's body stands once, every branch once."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.varying: list[Value] = []
        self.regions: list[Region] = []
        self._sources = Sources()
        self._bodies: dict[tuple[tuple[Step, ...], str], int] = {}
        self._conditionals = count()
        self._loops = count()

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value], context: Context) -> list[Value]:
        """Add the records of a jaxpr, and return the values of its outputs."""
        known: dict[int, Value] = {
            id(var): const if isinstance(const, Value) else Value(var.aval, "constant", literal=const)
            for var, const in zip(jaxpr.constvars, consts, strict=True)
        }
        known.update((id(var), value) for var, value in zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Value:
            return Value(atom.aval, "literal", literal=atom.val) if jaxprs.is_literal(atom) else known[id(atom)]

        for number, eqn in enumerate(jaxpr.eqns):
            here = self._entered(context, eqn, number)
            if any(jaxprs.is_reference(atom.aval) for atom in (*eqn.invars, *eqn.outvars)):
                raise CaptureError(
                    f"{jaxprs.name_of(eqn)} {place_text(here.source)} uses a mutable array, through which gradients "
                    "cannot be followed: return a new array instead"
                )
            made = self._equation(eqn, [read(atom) for atom in eqn.invars], here)
            known.update((id(var), value) for var, value in zip(eqn.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _entered(self, context: Context, eqn: Any, number: int) -> Context:
        steps, phase = list(context.steps), list(context.phase)
        for is_scope, name in jaxprs.stack_of(eqn):
            if is_scope:
                # jnp.einsum puts its specification into the name stack, which is no scope.
                steps += [Step(plain_text(part)) for part in name.split("/") if part and "->" not in part]
            elif name in ("jvp", "transpose"):
                phase.append(name)
        source = self._sources.of(eqn, context.library)
        return context._replace(
            steps=tuple(steps),
            phase=tuple(phase),
            source=source or context.source,
            place=(*context.place, number),
            # What a library calls, as `equinox.filter_jit` does, is the user's own.
            function=context.function if source is None or context.library is None else "",
        )

    def _equation(self, eqn: Any, inputs: list[Value], context: Context) -> list[Value]:
        name = jaxprs.name_of(eqn)
        if name in jaxprs.CALLS:
            jaxpr, consts = jaxprs.open_jaxpr(jaxprs.inner(eqn))
            library = self._sources.library_of(jaxpr)
            called = "" if library is None else plain_text(jaxprs.function_name(eqn)).lstrip("_")
            inside = context._replace(library=library, function=context.function or called)
            # A call of Python for each call of JAX, which has traced them so, with many more frames.
            return self.run(jaxpr, consts, inputs, inside)
        if name in jaxprs.REMATS:
            return self._region(eqn, inputs, context)
        if name == "scan":
            return self._scan(eqn, inputs, context)
        if name == "cond":
            return self._cond(eqn, inputs, context)
        op = jaxprs.function_name(eqn) if name in jaxprs.CUSTOM else name
        attrs = jaxprs.plain_params(jaxprs.params_of(eqn))
        # What does not vary from round to round is computed, and kept, once: JAX hoists it.
        record = Record(plain_text(op or name), name, eqn, inputs, context, attrs)
        return self._record(record, varying(*(value.loops for value in inputs)))

    def _record(self, record: Record, loops: tuple[Loop, ...]) -> list[Value]:
        made = enumerate(record.eqn.outvars)
        record.outputs = [Value(var.aval, "output", record=record, number=number, loops=loops) for number, var in made]
        if record.context.region is not None and record.joins is None:
            record.context.region.records[record.context.place] = record
        self.records.append(record)
        return record.outputs

    def _region(self, eqn: Any, inputs: list[Value], context: Context) -> list[Value]:
        jaxpr, consts = jaxprs.open_jaxpr(jaxprs.inner(eqn))
        policy = jaxprs.params_of(eqn).get("policy")
        # Newer releases have objects for what were functions: DotsSaveable is dots_saveable.
        known = getattr(policy, "__name__", "") or _CAPITAL.sub("_", type(policy).__name__).lower()
        name = "nothing_saveable" if policy is None else plain_text(known)
        region = Region(eqn, jaxpr, inputs, name, context.region, context.branch)
        self.regions.append(region)
        region.outputs = self.run(jaxpr, consts, inputs, context._replace(region=region, place=()))
        return region.outputs

    def _scan(self, eqn: Any, inputs: list[Value], context: Context) -> list[Value]:
        params = jaxprs.params_of(eqn)
        first, carried = jaxprs.loop_counts(eqn)
        behind, length = first + carried, params["length"]
        jaxpr, consts = jaxprs.open_jaxpr(params["jaxpr"])
        loop = Loop(next(self._loops), length)
        inside = self._body(context, "scan", length)._replace(loops=(*context.loops, loop))
        # A loop that takes nothing which varies in those around it is run, and kept, once.
        around = varying(*(value.loops for value in inputs))
        within = varying(around, (loop,))
        carries = [Value(value.aval, "carry", start=value, loops=within) for value in inputs[first:behind]]
        slices = [
            Value(var.aval, "slice", start=value, loops=varying(value.loops, (loop,)))
            for value, var in zip(inputs[behind:], jaxpr.invars[behind:], strict=True)
        ]
        self.varying += [*carries, *slices]
        start = len(self.records)
        ends = self.run(jaxpr, consts, [*inputs[:first], *carries, *slices], inside)
        for carry, end in zip(carries, ends, strict=False):
            carry.back = end
        attrs = jaxprs.plain_params({"length": length, "reverse": params["reverse"], "carries": len(carries)})
        joins = [[number] for number in range(len(ends))]
        record = Record("scan", "scan", eqn, ends, context, attrs, joins=joins, carries=carries, given=inputs)
        record.slices, record.bodies = slices, [(start, len(self.records))]
        return self._record(record, around)

    def _cond(self, eqn: Any, inputs: list[Value], context: Context) -> list[Value]:
        branches, made = jaxprs.params_of(eqn)["branches"], len(eqn.outvars)
        conditional = next(self._conditionals)
        ends, stand, bodies = [inputs[0]], list[Branch](), list[tuple[int, int]]()
        for number, branch in enumerate(branches):
            jaxpr, consts = jaxprs.open_jaxpr(branch)
            stand.append(Branch(conditional, number, inputs[0].loops, context.branch))
            inside = self._body(context, f"branch{number}", None)._replace(branch=stand[-1])
            start = len(self.records)
            ends += self.run(jaxpr, consts, inputs[1:], inside)
            bodies.append((start, len(self.records)))
        joins = [[1 + output + branch * made for branch in range(len(branches))] for output in range(made)]
        attrs = jaxprs.plain_params({"branches": len(branches)})
        record = Record("cond", "cond", eqn, ends, context, attrs, joins=joins, branches=stand, given=inputs)
        record.bodies = bodies
        return self._record(record, varying(*(value.loops for value in ends)))

    def _body(self, context: Context, name: str, rounds: int | None) -> Context:
        number = self._bodies[context.steps, name] = self._bodies.get((context.steps, name), 0) + 1
        step = Step(name if number == 1 else f"{name}_{number}", True, rounds)
        return context._replace(steps=(*context.steps, step))
