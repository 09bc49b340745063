"""The graph of a program, as that of a recorded forward would be."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gradir.errors import CaptureError
from gradir.frontends.export.program import Body, Call, Input, Kept, Module, Named, Part, Program
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import element_sums, paths_above
from gradir.ir import AttrValue, Graph, Node, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.ids import IdAllocator, storage_key
from gradir.ir.marks import PHASE, SAVINGS
from gradir.ir.model import bounded
from gradir.ir.text import excerpt
from gradir.ir.totals import tensor_elements
from gradir.version import __version__

REGION: Final = "region"
"""The key of ``ext`` for the number of the compiled graph that an operation is in, if there are several."""
DIFFERENTIATES: Final = "differentiates"
"""The key of ``ext`` for the operation of the forward that one of the backward is for."""

WRAPPERS: Final = frozenset(
    {"wrap_with_set_grad_enabled", "wrap_with_autocast", "tag_activation_checkpoint", "invoke_subgraph", "wrap"}
)
"""Operations that run their one body once, so that its operations stand for them."""

_ROWS: Final = {"scan": 2, "map_impl": 1}
"""Operations that run their body once for each row of the tensors in the argument of this number."""

_LIFTED: Final = re.compile(r"(^|\.)lifted_tensor_\d+$")
"""What torch calls a tensor that a program wrote out. It has no name, as in a forward: the values may be others."""


def graph_of(program: Program, places: Mapping[str, Source | None]) -> Graph:
    """Return the graph of a program; ``places`` has the source lines of traces.

    Raises:
        CaptureError: an operation takes what nothing before it makes.
    """
    return _Assembly(program, places).graph()


class _Value(NamedTuple):
    """What a name stands for: an output of a node, its tensor, the memory it is in, and how many nodes there were."""

    ref: Ref
    tensor: TensorMeta
    memory: int
    made: int


class _Frame:
    """A part that is being added: what its names stand for, and the call that runs it."""

    def __init__(self, part: Part, scope: str, caller: _Running | None) -> None:
        self.scope, self.caller, self.outputs = scope, caller, part.outputs
        self.module = caller.call.modules[-1].path if caller is not None and caller.call.modules else ""
        self.is_backward: bool = caller is not None and (caller.call.is_backward or caller.frame.is_backward)
        self.calls: Iterator[Call] = iter(part.calls)
        self.values: dict[str, _Value] = {}
        self.uses = Counter(each.name for call in part.calls for _, value in call.arguments for each in named_in(value))
        self.uses.update(each.name for each in named_in(part.outputs))


class _Running(NamedTuple):
    """A call, the frame that it stands in, the bodies to be added, last first, and what those added have given."""

    frame: _Frame
    call: Call
    bodies: list[Body]
    operands: list[Any]
    given: list[_Value]


class _Assembly:
    def __init__(self, program: Program, places: Mapping[str, Source | None]) -> None:
        self._program, self._places = program, places
        self._allocator = IdAllocator()
        self._nodes: list[Node] = []
        self._tensors: dict[tuple[bool, str], _Value] = {}
        self._written: dict[int, _Value] = {}
        self._kinds: dict[str, str] = {}
        self._calls: defaultdict[str, set[int]] = defaultdict(set)
        self._rounds: dict[str, int] = {}
        self._numbered: dict[tuple[int | None, str, int], str] = {}
        self._storages: dict[int, str] = {}

    def graph(self) -> Graph:
        top = _Frame(self._program.part, "", None)
        top.uses.update(name for pair in self._program.writes for name in pair)
        self._run(top)
        for name, value in self._program.writes:
            copied = (("self", Named(name)), ("src", Named(value)))
            tensor = self._read(top, name).tensor
            self._add(top, Call("copy_", "aten.copy_.default", copied, (), (tensor,), {"self": "inplace"}))
        self._add_outputs(top)
        savings = tuple((name, plain_text(scope), bounded(size)) for name, scope, size in self._program.savings)
        options: dict[str, AttrValue] = {"graph": self._program.kind, **({SAVINGS: savings} if savings else {})}
        producer = Producer(__version__, "torch", plain_text(self._program.version), options)
        return Graph.of(self._nodes, self._scopes(), self._program.cuts, producer)

    def _run(self, top: _Frame) -> None:
        frame = top
        while True:
            call = next(frame.calls, None)
            if call is not None:
                entries = [each for _, value in call.arguments for each in flat(value)]
                bodies = [each for each in reversed(entries) if type(each) is Body]
                operands = [each for each in entries if type(each) is not Body]
                frame = self._next(_Running(frame, call, bodies, operands, [])) if bodies else self._add(frame, call)
            elif frame.caller is None:
                return
            else:
                frame.caller.given.extend(self._read(frame, each.name) for each in named_in(frame.outputs))
                frame = self._next(frame.caller)

    def _next(self, running: _Running) -> _Frame:
        """The frame to go on with: that of the next body of a call, or the one that the call stands in."""
        frame, call = running.frame, running.call
        is_wrapper = call.op in WRAPPERS
        if not running.bodies:
            if not is_wrapper or len(running.given) != len(call.makes):
                return self._add(frame, call, running.given)
            frame.values.update(zip(call.makes, running.given, strict=True))
            return frame
        body, scope = running.bodies.pop(), self._enter(frame, call.modules)
        if not is_wrapper:
            scope = plain_text(f"{scope}.{body.name}" if scope else body.name)
            self._kinds.setdefault(scope, call.op)
            self._calls[scope].add(0)
            if call.op in _ROWS:
                self._rounds[scope] = self._rows(frame, call)
        inner, names, taken = _Frame(body.part, scope, running), body.part.inputs, running.operands
        if len(taken) >= len(names) and call.op != "associative_scan":
            for name, each in zip(names, taken[len(taken) - len(names) :], strict=True):
                if type(each) is Named:
                    inner.values[name] = self._read(frame, each.name)
        else:
            unknown = Input("input", (), TensorMeta(device=None))
            inner.values.update((name, self._add_tensor(f"{scope}:{name}", unknown)) for name in names)
        return inner

    def _rows(self, frame: _Frame, call: Call) -> int:
        """How often a body runs, 0 where that is not known."""
        place = _ROWS[call.op]
        rows = next(named_in(call.arguments[place][1] if place < len(call.arguments) else ()), None)
        shape = None if rows is None else self._read(frame, rows.name).tensor.shape
        return shape[0] if shape and isinstance(shape[0], int) else 0

    def _add(self, frame: _Frame, call: Call, given: Sequence[_Value] = ()) -> _Frame:
        """Add the node of a call, after that of each tensor which is met first, and return the frame."""
        call = call._replace(is_backward=call.is_backward or frame.is_backward)
        if self._only_counts(frame, call):
            return frame
        inputs, kinds = [*given], ["data"] * len(given)
        attrs, before = dict[str, Any](), list[_Value]()
        for name, value in call.arguments:
            named = [*named_in(value)]
            if any(type(each) is Body for each in flat(value)):
                if given:
                    # What comes behind is taken by the bodies.
                    break
                continue
            if named:
                before += [self._read(frame, each.name) for each in named]
                kinds += [call.kinds.get(name, "data")] * len(named)
                attrs.update(_beside_tensors(plain_text(name), [*flat(value)]))
            else:
                attrs[plain_text(name)] = value
        inputs = before + inputs + [self._read(frame, each) for each in call.weights]
        kinds += ["data"] * len(call.weights)
        scope = self._enter(frame, call.modules)
        op = plain_text(call.op)
        node_id, place = self._allocator.function(scope, op), len(self._nodes)
        lent = [value.memory for value, kind in zip(inputs, kinds, strict=True) if kind != "data"]
        memory = lent[0] if lent else place
        self._nodes.append(
            Node(
                node_id,
                op=op,
                native=plain_text(call.native),
                scope=scope,
                inputs=tuple(value.ref for value in inputs),
                outputs=tuple(call.tensors),
                attrs=dict(sorted(attrs.items())),
                source=self._places[call.trace],
                opaque=call.opaque,
                kinds=tuple(kinds) if {*kinds} - {"data"} else (),
                saved=tuple(self._saved(node_id, call, each, memory) for each in call.kept),
                ext=self._phase(node_id, call) | ({REGION: call.region} if call.region else {}),
            )
        )
        for number, (name, tensor) in enumerate(zip(call.makes, call.tensors, strict=False)):
            frame.values[name] = _Value(Ref(node_id, number), tensor, memory, place)
        for value, kind in zip(inputs, kinds, strict=True):
            if kind == "inplace":
                self._written[value.memory] = _Value(Ref(node_id, 0), value.tensor, value.memory, place)
        return frame

    def _saved(self, node_id: str, call: Call, kept: Kept, memory: int) -> Saved:
        slot = f"result{kept.output}" if len(call.tensors) > 1 else "result"
        tensor, own = call.tensors[kept.output], storage_key(node_id, slot)
        # The outputs of an operation that lends no memory are in one each.
        key = self._storages.setdefault(memory, own) if memory != len(self._nodes) or not kept.output else own
        storage = "" if key == own else key
        return Saved(slot, tensor.dtype, tensor.shape, kept.bytes, Ref(node_id, kept.output), storage, kept.state)

    def _phase(self, node_id: str, call: Call) -> dict[str, AttrValue]:
        """Of a call in the backward what it differentiates, which is noted of the others."""
        # Operations without a gradient have the number of the next one, and what is saved of a result stands behind it.
        key = call.number, call.modules[-1].path if call.modules else "", call.region
        if not call.is_backward and (call.op != "detach" or key not in self._numbered):
            self._numbered[key] = node_id
        of = self._numbered.get(key, "") if call.number is not None else ""
        return {PHASE: "backward", **({DIFFERENTIATES: of} if of else {})} if call.is_backward else {}

    def _only_counts(self, frame: _Frame, call: Call) -> bool:
        """Whether a call only writes to a buffer what nothing takes, as a batch norm that counts its batches."""
        named = [(name, each.name) for name, value in call.arguments for each in named_in(value)]
        roles = {each.role for _, name in named if (each := self._program.inputs.get(name)) is not None}
        return (
            len(named) == 1
            and roles == {"buffer"}
            and call.kinds.get(named[0][0]) == "inplace"
            and frame.uses[named[0][1]] == 1
            and not any(frame.uses[name] for name in call.makes)
        )

    def _read(self, frame: _Frame, name: str) -> _Value:
        value = frame.values.get(name)
        if value is None:
            known = self._program.inputs.get(name)
            if known is None:
                raise CaptureError(f"the program takes {excerpt(name)}, which nothing before it makes")
            value = self._add_tensor(name, known)
        written = self._written.get(value.memory)
        return value if written is None or written.made <= value.made else written

    def _add_tensor(self, name: str, tensor: Input) -> _Value:
        # An input may have the name of a parameter.
        key = (tensor.role == "input", tensor.names[0] if tensor.names else name)
        known = self._tensors.get(key)
        if known is None:
            role, names = tensor.role, tuple(map(plain_text, tensor.names))
            if role == "buffer" and _LIFTED.search(names[0]):
                role, names = "input", ()
            scope = names[0].rpartition(".")[0] if names and role != "input" else ""
            node_id = self._allocator.tensor(names[0]) if names else self._allocator.function("", role)
            self._nodes.append(Node(node_id, role, scope=scope, names=names, outputs=(tensor.tensor,)))
            known = self._tensors[key] = _Value(Ref(node_id, 0), tensor.tensor, -1 - len(self._tensors), -1)
            self._storages[known.memory] = node_id
        return known

    def _add_outputs(self, top: _Frame) -> None:
        ends = [self._read(top, each.name)[:2] for each in named_in(self._program.part.outputs)]
        ends = ends if self._program.paths else [*dict.fromkeys(ends)]
        paths = self._program.paths or [str(place) if len(ends) > 1 else "" for place in range(len(ends))]
        for path, (ref, tensor) in zip(paths, ends, strict=True):
            node_id = self._allocator.output(plain_text(path))
            self._nodes.append(Node(node_id, "output", inputs=(ref,), outputs=(tensor,)))

    def _enter(self, frame: _Frame, modules: Sequence[Module]) -> str:
        """The path of the module that a call runs in, of which it is noted which call this is."""
        for module in modules:
            self._kinds.setdefault(module.path, module.kind)
            self._calls[module.path].add(module.call)
        path = modules[-1].path if modules else ""
        # A body runs in the module of its operation, and may call others.
        return plain_text(path) if path and not f"{frame.module}.".startswith(f"{path}.") else frame.scope

    def _scopes(self) -> list[Scope]:
        parameters = dict[str, Input]()
        for each in self._program.inputs.values():
            if each.role == "parameter":
                parameters.setdefault(each.names[0], each)
        own, total, trainable = element_sums(
            (
                tuple(dict.fromkeys(name.rpartition(".")[0] for name in each.names)),
                tensor_elements(each.tensor),
                each.trainable,
            )
            for each in parameters.values()
        )
        known = self._program.scopes
        met = dict.fromkeys(above for path in (*known, *self._kinds, *own) for above in reversed([*paths_above(path)]))
        return [
            known.get(plain_text(path))
            or Scope(
                plain_text(path),
                plain_text(self._kinds.get(path, "").rpartition(".")[2]),
                calls=len(self._calls[path]),
                own=bounded(own[path]),
                total=bounded(total[path]),
                trainable=bounded(trainable[path]),
                rounds=self._rounds.get(path, 0),
            )
            for path in met or ("",)
        ]


def _beside_tensors(name: str, entries: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the attribute for what is among the tensors of an argument: the places of None, as a forward has them."""
    if any(each is not None and type(each) is not Named for each in entries):
        yield name, tuple(["*" if type(each) is Named else each for each in entries])
    elif None in entries:
        yield f"none_in_{name}", tuple([at for at, each in enumerate(entries) if each is None])


def flat(value: Any) -> Iterator[Any]:
    """Yield an argument, or what is in its sequences and mappings, in order."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if type(each) in (list, tuple):
            waiting.extend(reversed(each))
        elif type(each) is dict:
            waiting.extend(reversed(each.values()))
        else:
            yield each


def named_in(value: Any) -> Iterator[Named]:
    """Yield the values in an argument."""
    return (each for each in flat(value) if type(each) is Named)
