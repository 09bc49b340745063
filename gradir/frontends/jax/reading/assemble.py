"""The graph of what was found in a jaxpr, with its modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.frontends.jax.modules.watch import ModuleWatch
from gradir.frontends.jax.reading import jaxprs
from gradir.frontends.jax.reading.flatten import Context, Flattener, Record, Step, Value
from gradir.frontends.jax.reading.flow import Ends, kind_of, takes
from gradir.frontends.jax.reading.jaxprs import elements_of, literal_number, place_text
from gradir.frontends.jax.reading.slots import Slots
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import element_sums, paths_above
from gradir.ir import AttrValue, Builder, Cut, Graph, Producer, Scope
from gradir.ir import build as ir_build
from gradir.ir.cuts import FLOW
from gradir.ir.marks import CARRIED
from gradir.ir.model import bounded


class Scopes:
    """Gives equations their scope, and knows which there are and how often each runs."""

    def __init__(self, modules: ModuleWatch, owned: Iterable[Value], contexts: Iterable[Context]) -> None:
        """``owned`` are the differentiated leaves, ``contexts`` those of all equations of the graph."""
        self._modules = modules
        self._owned = list(owned)
        steps = dict.fromkeys(context.steps for context in contexts)
        self._paths: dict[tuple[Step, ...], str] = {each: self._path(_shown(each)) for each in steps}
        self._known: dict[str, None] = {}
        for path in (*modules.classes, *self._paths.values()):
            self._known.update(dict.fromkeys(above for above in paths_above(path) if above))
        self._rounds: dict[str, int] = {}
        for each in self._paths:
            self._note_rounds(each)

    def of(self, context: Context) -> str:
        """Return the path of an equation's scope."""
        return self._paths[context.steps]

    def path_of(self, context: Context) -> str:
        """Return the path that an equation's scope would have, which need not be in the graph."""
        return self._paths.get(context.steps) or self._path(_shown(context.steps))

    def owner(self, name: str) -> str:
        """Return the module that a leaf of this name is of, as far as it ran."""
        path = name.rpartition(".")[0]
        return path if path in self._known else ""

    def _note_rounds(self, steps: tuple[Step, ...]) -> None:
        """Give the rounds of a loop to what is named first in it and is a module, or else to its own body."""
        for number, step in enumerate(steps):
            if step.rounds is None:
                continue
            inside = [place for place, later in enumerate(steps) if place > number and not later.is_body]
            paths = (self._path(_shown(steps[: place + 1])) for place in (*inside, number))
            found = next((path for path in paths if path in self._known), "")
            self._rounds.setdefault(found, step.rounds)

    def _path(self, parts: Sequence[str]) -> str:
        return ".".join(self._modules.module_path(tuple(parts)))

    def table(self) -> list[Scope]:
        """Return the modules from the top, each with the elements of its leaves."""
        leaves = ((each.name.rpartition(".")[0], elements_of(each.aval) or 0) for each in self._owned)
        own, total, trainable = element_sums(((path,), elements, True) for path, elements in leaves)
        paths: dict[str, None] = {"": None}
        for path in (*self._known, *own):
            paths.update(dict.fromkeys(paths_above(path)))
        return [
            Scope(
                plain_text(path),
                plain_text(self._modules.classes.get(path, "")),
                calls=self._modules.calls.get(path, 0),
                own=bounded(own[path]),
                total=bounded(total[path]),
                trainable=bounded(trainable[path]),
                rounds=self._rounds.get(path, 0),
            )
            for path in sorted(paths, key=_by_number)
        ]


def _shown(steps: Sequence[Step]) -> list[str]:
    """Return the named steps, and behind them the bodies without a named step inside."""
    last = max((number for number, step in enumerate(steps) if not step.is_body), default=-1)
    return [step.name for number, step in enumerate(steps) if not step.is_body or number > last]


def _by_number(path: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts layer 2 before layer 10."""
    parts = path.split(".") if path else []
    return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts]


class Output(NamedTuple):
    """A value that a function returns, and its place among all that it returns."""

    path: str
    value: Value


class Assembly:
    """Puts together the graph of records, once it is known what lies on a path."""

    def __init__(self, flat: Flattener, scopes: Scopes, differentiated: Sequence[Value]) -> None:
        self._flat = flat
        self._scopes = scopes
        self._differentiated = differentiated
        self._slots = Slots(flat)
        self._builder = Builder()
        self._made: dict[int, ir_build.Value] = {}

    def graph(self, outputs: Sequence[Output], integers: Sequence[Value], producer: Producer) -> Graph:
        """Return the graph; ``integers`` are leaves of the differentiated arguments that cannot be differentiated."""
        for record in self._flat.records:
            is_live = any(value.is_live for value in record.outputs)
            if record.probe is not None and (record.probe.is_refused or (is_live and record.probe.error)):
                raise CaptureError(f"{record.native} {place_text(record.context.source)}: {record.probe.error}")
            if is_live:
                self._made[id(record)] = self._function(record)
        for path, value in outputs:
            found = self._value(value) if value.is_live else None
            if found is not None:
                self._builder.output(found, path)
        self._add_cuts(outputs)
        for value in integers:
            scope = self._scopes.owner(value.name)
            self._builder.cut(Cut("integer", (value.name,), scope, jaxprs.meta_of(value.aval)))
        whole = replace(producer, options={**producer.options, FLOW: True})
        return self._builder.build(scopes=self._scopes.table(), producer=whole)

    def _function(self, record: Record) -> ir_build.Value:
        inputs = [self._value(value) if takes(record, slot) else None for slot, value in enumerate(record.inputs)]
        carried = [slot for slot, value in enumerate(record.inputs) if value.kind == "carry" and takes(record, slot)]
        is_name = record.native == "name" and isinstance(record.attrs.get("name"), str)
        return self._builder.function(
            record.op,
            inputs,
            [jaxprs.meta_of(value.aval) for value in record.outputs],
            native=record.native,
            scope=self._scopes.of(record.context),
            names=(str(record.attrs["name"]),) if is_name else (),
            attrs=self._attributes(record),
            saved=[
                (slot.saved, self._origin(slot.value, record), slot.storage if slot.is_held else None)
                for slot in self._slots.of(record)
            ],
            opaque=record.native in jaxprs.OPAQUE,
            source=record.context.source,
            ext={CARRIED: tuple(carried)} if carried else None,
        )

    def _attributes(self, record: Record) -> Mapping[str, AttrValue]:
        attrs = dict(record.attrs)
        for slot, value in enumerate(record.inputs):
            number = literal_number(value.literal) if value.kind == "literal" else None
            if number is not None:
                attrs[f"in{slot}"] = number
        if record.context.region is not None:
            attrs["remat"] = record.context.region.policy
        if record.context.phase:
            attrs["phase"] = ".".join(record.context.phase)
        # Slots of what depends on a differentiated leaf by no path with a gradient.
        given = [(slot, value) for slot, value in enumerate(record.inputs) if value.kind != "literal"]
        cut = ((slot, value) for slot, value in given if value.is_tainted and not value.is_live)
        stopped = tuple(slot for slot, value in cut if jaxprs.is_inexact(value.aval))
        return {**attrs, "stopped": stopped} if stopped else attrs

    def _value(self, value: Value) -> ir_build.Value | None:
        """Return a value on a path in the graph: the one of the first round for a carry or a slice."""
        while value.start is not None:
            value = value.start
        if value.record is None:
            return self._argument(value, "parameter") if value.is_live else None
        made = self._made.get(id(value.record)) if value.is_live else None
        return None if made is None else made.output(value.number)

    def _argument(self, value: Value, role: str) -> ir_build.Value:
        if id(value) not in self._made:
            tensor, scope = jaxprs.meta_of(value.aval), self._scopes.owner(value.name)
            self._made[id(value)] = self._builder.tensor(value.name, tensor, role=role, scope=scope)
        return self._made[id(value)]

    def _origin(self, value: Value | None, record: Record) -> ir_build.Value | int | None:
        """Return the node of a kept value on a path, or an argument beside it."""
        if value is None:
            return None
        if value.kind == "argument":
            return self._argument(value, "parameter" if value.is_live else "input")
        if value.record is record:
            return value.number
        made = self._made.get(id(value.record)) if value.record is not None and value.is_live else None
        return None if made is None else made.output(value.number)

    def _add_cuts(self, outputs: Sequence[Output]) -> None:
        missing = [value for value in self._differentiated if not value.is_live]
        if not missing:
            return
        ends = Ends(self._flat, [value for _, value in outputs])
        for record, leaves in ends.of(missing):
            names = tuple(leaf.name for leaf in leaves)
            if record is None:
                for leaf in leaves:
                    scope, tensor = self._scopes.owner(leaf.name), jaxprs.meta_of(leaf.aval)
                    self._builder.cut(Cut("unused", (leaf.name,), scope, tensor))
                continue
            taking = ends.taking(record)
            cut = Cut(
                kind_of(record),
                names,
                self._scopes.path_of(record.context),
                jaxprs.meta_of(record.outputs[0].aval) if record.outputs else None,
                op=plain_text(record.op),
                source=record.context.source,
                slot=None if taking is None else taking[1],
            )
            self._builder.cut(cut, into=None if taking is None else self._made.get(id(taking[0])))
