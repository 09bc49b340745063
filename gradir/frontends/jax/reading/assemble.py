"""Assemble the graph and its modules from the records of a jaxpr."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.frontends.jax.modules.watch import ModuleWatch
from gradir.frontends.jax.reading import jaxprs
from gradir.frontends.jax.reading.flatten import Context, Flattener, Record, Step, Value
from gradir.frontends.jax.reading.flow import End, cut_kind, find_consumer, is_on_path
from gradir.frontends.jax.reading.jaxprs import elements_of, literal_number, place_text
from gradir.frontends.jax.reading.slots import Slots
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import element_sums, paths_above
from gradir.ir import AttrValue, Builder, Cut, Graph, Producer, Scope
from gradir.ir import build as ir_build
from gradir.ir.cuts import FLOW
from gradir.ir.marks import CARRIED
from gradir.ir.model import clamp_size


class Scopes:
    """The scopes of equations, and how often each scope runs."""

    def __init__(self, modules: ModuleWatch, owned: Iterable[Value], contexts: Iterable[Context]) -> None:
        """Collect scopes; ``owned`` are the differentiated leaves, ``contexts`` those of all equations."""
        self._modules = modules
        self._owned = list(owned)
        self._paths: dict[tuple[Step, ...], str] = {
            steps: self._path(_visible_names(steps)) for steps in dict.fromkeys(each.steps for each in contexts)
        }
        self._known: dict[str, None] = {}
        for path in (*modules.classes, *self._paths.values()):
            self._known.update(dict.fromkeys(above for above in paths_above(path) if above))
        self._rounds: dict[str, int] = {}
        for steps in self._paths:
            self._note_rounds(steps)

    def of(self, context: Context) -> str:
        """Return the path of an equation's scope."""
        return self._paths[context.steps]

    def path_of(self, context: Context) -> str:
        """Return the path of an equation's scope, even if the graph does not contain the scope."""
        return self._paths.get(context.steps) or self._path(_visible_names(context.steps))

    def owner(self, name: str) -> str:
        """Return the module that owns a leaf of this name, or an empty path if it did not run."""
        path = name.rpartition(".")[0]
        return path if path in self._known else ""

    def _note_rounds(self, steps: tuple[Step, ...]) -> None:
        """Record the rounds of a loop on the first module in it, or else on its own body."""
        for number, step in enumerate(steps):
            if step.rounds is None:
                continue
            inside = [place for place, later in enumerate(steps) if place > number and not later.is_body]
            paths = (self._path(_visible_names(steps[: place + 1])) for place in (*inside, number))
            found = next((path for path in paths if path in self._known), "")
            self._rounds.setdefault(found, step.rounds)

    def _path(self, parts: Sequence[str]) -> str:
        return ".".join(self._modules.module_path(tuple(parts)))

    def table(self) -> list[Scope]:
        """Return the modules, outer ones first, each with the number of elements of its leaves."""
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
                own=clamp_size(own[path]),
                total=clamp_size(total[path]),
                trainable=clamp_size(trainable[path]),
                rounds=self._rounds.get(path, 0),
            )
            for path in sorted(paths, key=_natural_key)
        ]


def _visible_names(steps: Sequence[Step]) -> list[str]:
    """Return the names of the scopes, followed by the bodies without a named scope inside."""
    last = max((number for number, step in enumerate(steps) if not step.is_body), default=-1)
    return [step.name for number, step in enumerate(steps) if not step.is_body or number > last]


def _natural_key(path: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts layer 2 before layer 10."""
    parts = path.split(".") if path else []
    return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts]


class Output(NamedTuple):
    """An output of a function, with its path."""

    path: str
    value: Value


class Assembly:
    """Assembles the graph of records after `find_paths` has marked them."""

    def __init__(self, flat: Flattener, scopes: Scopes) -> None:
        self._records = flat.records
        self._scopes = scopes
        self._slots = Slots(flat)
        self._builder = Builder()
        self._made: dict[int, ir_build.Value] = {}

    def graph(
        self, outputs: Sequence[Output], ends: Iterable[End], integers: Sequence[Value], producer: Producer
    ) -> Graph:
        """Return the graph; ``integers`` are leaves of the differentiated arguments with an integer dtype."""
        for record in self._records:
            if record.probe is not None and (record.probe.is_refused or (record.is_live and record.probe.error)):
                raise CaptureError(f"{record.native} {place_text(record.context.source)}: {record.probe.error}")
            if record.is_live:
                self._made[id(record)] = self._add_function(record)
        for path, value in outputs:
            found = self._value(value) if value.is_live else None
            if found is not None:
                self._builder.output(found, path)
        self._add_cuts(ends)
        for value in integers:
            self._add_leaf_cut("integer", value)
        producer = replace(producer, options={**producer.options, FLOW: True})
        return self._builder.build(scopes=self._scopes.table(), producer=producer)

    def _add_function(self, record: Record) -> ir_build.Value:
        inputs = [self._value(value) if is_on_path(record, slot) else None for slot, value in enumerate(record.inputs)]
        carried = [slot for slot, each in enumerate(record.inputs) if each.kind == "carry" and is_on_path(record, slot)]
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
        # These inputs depend on a differentiated leaf, but no gradient flows back through them.
        stopped = tuple(
            slot
            for slot, value in enumerate(record.inputs)
            if value.kind != "literal" and value.is_tainted and not value.is_live and jaxprs.is_inexact(value.aval)
        )
        return {**attrs, "stopped": stopped} if stopped else attrs

    def _value(self, value: Value) -> ir_build.Value | None:
        """Return the graph's value for a value on a path; for a carry or a slice, that of the first round."""
        while value.start is not None:
            value = value.start
        if not value.is_live:
            return None
        return self._argument(value) if value.record is None else self._find_output(value)

    def _find_output(self, value: Value) -> ir_build.Value | None:
        made = self._made.get(id(value.record)) if value.record is not None and value.is_live else None
        return None if made is None else made.output(value.number)

    def _argument(self, value: Value) -> ir_build.Value:
        if id(value) not in self._made:
            role = "parameter" if value.is_live else "input"
            tensor, scope = jaxprs.meta_of(value.aval), self._scopes.owner(value.name)
            self._made[id(value)] = self._builder.tensor(value.name, tensor, role=role, scope=scope)
        return self._made[id(value)]

    def _origin(self, value: Value | None, record: Record) -> ir_build.Value | int | None:
        """Return the graph's value for a saved value, or its output number if the record itself makes it."""
        if value is None:
            return None
        if value.kind == "argument":
            return self._argument(value)
        return value.number if value.record is record else self._find_output(value)

    def _add_leaf_cut(self, kind: str, leaf: Value) -> None:
        self._builder.cut(Cut(kind, (leaf.name,), self._scopes.owner(leaf.name), jaxprs.meta_of(leaf.aval)))

    def _add_cuts(self, ends: Iterable[End]) -> None:
        for record, leaves in ends:
            if record is None:
                for leaf in leaves:
                    self._add_leaf_cut("unused", leaf)
                continue
            consumer, slot = find_consumer(record, self._records) or (None, None)
            cut = Cut(
                cut_kind(record),
                tuple(leaf.name for leaf in leaves),
                self._scopes.path_of(record.context),
                jaxprs.meta_of(record.outputs[0].aval) if record.outputs else None,
                op=plain_text(record.op),
                source=record.context.source,
                slot=slot,
            )
            self._builder.cut(cut, into=None if consumer is None else self._made.get(id(consumer)))
