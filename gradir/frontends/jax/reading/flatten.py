"""Flatten a jaxpr and the jaxprs that it calls into values, and records in execution order."""

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
    """An argument, a constant, a literal, an output of a record, a carry of a loop, or the slice for a round."""

    aval: Any
    kind: Kind
    name: str = ""
    record: Record | None = None
    number: int = 0
    # The first value of a carry, or the array of a slice.
    start: Value | None = None
    # The loops in which it varies, outer ones first.
    loops: tuple[Loop, ...] = ()
    # The value of a literal or constant.
    literal: object = None
    # The value of a carry in later rounds.
    back: Value | None = None
    # It depends on differentiated leaves by differentiable operations. A live value also gets a gradient.
    is_active: bool = False
    is_live: bool = False
    # It depends on differentiated leaves by any operations.
    is_tainted: bool = False

    @property
    def ends(self) -> list[Value]:
        """The values of a carry or a slice in its rounds."""
        return [end for end in (self.start, self.back) if end is not None]


class Loop(NamedTuple):
    """A loop and its number of rounds. An inner loop has a larger number than its outer loop."""

    number: int
    length: int


class Step(NamedTuple):
    """A scope around an equation: a named scope, or the body of a loop with its rounds, or of a branch."""

    name: str
    is_body: bool = False
    rounds: int | None = None


class Branch(NamedTuple):
    """A branch of a conditional, with the loops in which the choice varies, and the branch around it."""

    conditional: int
    number: int
    loops: tuple[Loop, ...]
    outer: Branch | None = None


class Context(NamedTuple):
    """The surroundings of an equation."""

    steps: tuple[Step, ...] = ()
    # The transformations of a gradient inside the function: jvp, transpose.
    phase: tuple[str, ...] = ()
    source: Source | None = None
    loops: tuple[Loop, ...] = ()
    region: Region | None = None
    # The number of the equation in each jaxpr, starting in the innermost checkpointed region.
    place: tuple[int, ...] = ()
    # The file of the enclosing library. JAX traces a library function once, so its lines belong to the first caller.
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
    probe: Probe | None = None
    # Only exits have the other fields. Each output is one of these inputs:
    joins: list[list[int]] | None = None
    carries: list[Value] = field(default_factory=list)
    # The branch of each alternative.
    branches: list[Branch] = field(default_factory=list)
    # The inputs of the equation itself.
    operands: list[Value] = field(default_factory=list)
    # The slices for each round.
    slices: list[Value] = field(default_factory=list)
    # The range of records of the loop's body or of each branch.
    bodies: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        """Whether an output gets a gradient."""
        return any(value.is_live for value in self.outputs)


@dataclass(eq=False)
class Region:
    """A checkpointed region: its records by place, its saved values, and counts of saved values that are no output."""

    eqn: Any
    jaxpr: Any
    inputs: list[Value]
    policy: str
    outer: Region | None
    branch: Branch | None
    outputs: list[Value] = field(default_factory=list)
    records: dict[tuple[int, ...], Record] = field(default_factory=dict)
    saved: dict[int, Value] = field(default_factory=dict)
    unnamed: Counter[tuple[int, tuple[tuple[Any, ...], str]]] = field(default_factory=Counter)


def merge_loops(*loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Return the loops in which a value varies if it is computed from values that vary in these loops.

    >>> merge_loops((Loop(1, 4),), (), (Loop(0, 3), Loop(1, 4)))
    (Loop(number=0, length=3), Loop(number=1, length=4))
    """
    return tuple(sorted({loop for each in loops for loop in each}))


def outermost_region(region: Region | None) -> Region | None:
    """Return the outermost region around a region. Its checkpoint decides which values are saved."""
    while region is not None and region.outer is not None:
        region = region.outer
    return region


_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Flattener:
    """Collects the records of a jaxpr and its callees, with one copy of each loop body and each branch."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.reads: list[Record] = []
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
            own = self._make_context(context, eqn, number)
            if any(type(atom.aval).__name__ == "AbstractRef" for atom in (*eqn.invars, *eqn.outvars)):
                raise CaptureError(
                    f"{jaxprs.name_of(eqn)} {place_text(own.source)} uses a mutable array, through which gradients "
                    "cannot be followed: return a new array instead"
                )
            outputs = self._add_equation(eqn, [read(atom) for atom in eqn.invars], own)
            known.update((id(var), value) for var, value in zip(eqn.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _make_context(self, context: Context, eqn: Any, number: int) -> Context:
        steps, phase = list(context.steps), list(context.phase)
        for is_scope, name in jaxprs.stack_of(eqn):
            if is_scope:
                # jnp.einsum adds its specification to the name stack, which is no scope.
                steps += [Step(plain_text(part)) for part in name.split("/") if part and "->" not in part]
            elif name in ("jvp", "transpose"):
                phase.append(name)
        source = self._sources.of(eqn, context.library)
        return context._replace(
            steps=tuple(steps),
            phase=tuple(phase),
            source=source or context.source,
            place=(*context.place, number),
            # A library may call user code, as `equinox.filter_jit` does.
            function=context.function if source is None or context.library is None else "",
        )

    def _add_equation(self, eqn: Any, inputs: list[Value], context: Context) -> list[Value]:
        name = jaxprs.name_of(eqn)
        if name in jaxprs.CALLS:
            jaxpr, consts = jaxprs.open_jaxpr(jaxprs.inner_jaxpr(eqn))
            library = self._sources.library_of(jaxpr)
            called = "" if library is None else plain_text(jaxprs.function_name(eqn)).lstrip("_")
            inside = context._replace(library=library, function=context.function or called)
            # This recursion is shallow: JAX traced each of these calls with many more Python frames.
            return self.run(jaxpr, consts, inputs, inside)
        if name in jaxprs.REMATS:
            return self._add_region(eqn, inputs, context)
        if name == "scan":
            return self._add_scan(eqn, inputs, context)
        if name == "cond":
            return self._add_cond(eqn, inputs, context)
        op = jaxprs.function_name(eqn) if name in jaxprs.CUSTOM else name
        attrs = jaxprs.plain_params(jaxprs.params_of(eqn))
        record = Record(plain_text(op or name), name, eqn, inputs, context, attrs)
        # JAX hoists loop invariants, so their values are computed and saved once.
        return self._add(record, merge_loops(*(value.loops for value in inputs)))

    def _add(self, record: Record, loops: tuple[Loop, ...]) -> list[Value]:
        pairs = enumerate(record.eqn.outvars)
        record.outputs = [Value(var.aval, "output", record=record, number=place, loops=loops) for place, var in pairs]
        if record.context.region is not None and record.joins is None:
            record.context.region.records[record.context.place] = record
        self.records.append(record)
        return record.outputs

    def _add_region(self, eqn: Any, inputs: list[Value], context: Context) -> list[Value]:
        jaxpr, consts = jaxprs.open_jaxpr(jaxprs.inner_jaxpr(eqn))
        policy = jaxprs.params_of(eqn).get("policy")
        # Newer releases have objects instead of functions: DotsSaveable is dots_saveable.
        known = getattr(policy, "__name__", "") or _CAPITAL.sub("_", type(policy).__name__).lower()
        name = "nothing_saveable" if policy is None else plain_text(known)
        region = Region(eqn, jaxpr, inputs, name, context.region, context.branch)
        self.regions.append(region)
        region.outputs = self.run(jaxpr, consts, inputs, context._replace(region=region, place=()))
        return region.outputs

    def _add_scan(self, eqn: Any, inputs: list[Value], context: Context) -> list[Value]:
        params = jaxprs.params_of(eqn)
        first, carried = jaxprs.loop_counts(eqn)
        sliced, length = first + carried, params["length"]
        jaxpr, consts = jaxprs.open_jaxpr(params["jaxpr"])
        loop = Loop(next(self._loops), length)
        inside = self._enter_body(context, "scan", length)._replace(loops=(*context.loops, loop))
        # A loop whose inputs do not vary in an outer loop runs once.
        around = merge_loops(*(value.loops for value in inputs))
        within = merge_loops(around, (loop,))
        carries = [Value(value.aval, "carry", start=value, loops=within) for value in inputs[first:sliced]]
        slices = [
            Value(var.aval, "slice", start=value, loops=merge_loops(value.loops, (loop,)))
            for value, var in zip(inputs[sliced:], jaxpr.invars[sliced:], strict=True)
        ]
        self.varying += [*carries, *slices]
        start = len(self.records)
        ends = self.run(jaxpr, consts, [*inputs[:first], *carries, *slices], inside)
        for carry, end in zip(carries, ends, strict=False):
            carry.back = end
        attrs = jaxprs.plain_params({"length": length, "reverse": params["reverse"], "carries": len(carries)})
        joins = [[number] for number in range(len(ends))]
        record = Record("scan", "scan", eqn, ends, context, attrs, joins=joins, carries=carries, operands=inputs)
        record.slices, record.bodies = slices, [(start, len(self.records))]
        return self._add(record, around)

    def _add_cond(self, eqn: Any, inputs: list[Value], context: Context) -> list[Value]:
        closed, count = jaxprs.params_of(eqn)["branches"], len(eqn.outvars)
        conditional = next(self._conditionals)
        ends, branches, bodies = [inputs[0]], list[Branch](), list[tuple[int, int]]()
        for number, each in enumerate(closed):
            jaxpr, consts = jaxprs.open_jaxpr(each)
            branches.append(Branch(conditional, number, inputs[0].loops, context.branch))
            inside = self._enter_body(context, f"branch{number}", None)._replace(branch=branches[-1])
            start = len(self.records)
            ends += self.run(jaxpr, consts, inputs[1:], inside)
            bodies.append((start, len(self.records)))
        joins = [[1 + output + branch * count for branch in range(len(closed))] for output in range(count)]
        attrs = jaxprs.plain_params({"branches": len(closed)})
        record = Record("cond", "cond", eqn, ends, context, attrs, joins=joins, branches=branches, operands=inputs)
        record.bodies = bodies
        return self._add(record, merge_loops(*(value.loops for value in ends)))

    def _enter_body(self, context: Context, name: str, rounds: int | None) -> Context:
        number = self._bodies[context.steps, name] = self._bodies.get((context.steps, name), 0) + 1
        step = Step(name if number == 1 else f"{name}_{number}", True, rounds)
        return context._replace(steps=(*context.steps, step))
