"""Make a graph of a program, in the form of a recorded forward."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gradir.errors import CaptureError
from gradir.files import working_folder
from gradir.frontends.export.program import (
    Body,
    Call,
    Input,
    Module,
    Named,
    Part,
    Program,
    SavedOutput,
    flatten_argument,
    values_in,
)
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import element_sums, paths_above
from gradir.ir import AttrValue, Graph, Node, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.ids import IdAllocator, storage_key
from gradir.ir.marks import PHASE, SAVINGS
from gradir.ir.memo import Memo
from gradir.ir.model import clamp_size
from gradir.ir.text import escape_unprintable, excerpt
from gradir.ir.totals import tensor_elements
from gradir.version import __version__

REGION: Final = "region"
"""The key of ``ext`` for the number of the compiled graph of an operation, if there are several."""
DIFFERENTIATES: Final = "differentiates"
"""The key of ``ext`` for the forward operation that a backward operation differentiates."""

_FUNCTION: Final = "autograd_function_apply"
"""A custom Function, whose second body is its backward and whose first one also returns the saved tensors."""

_WRAPPERS: Final = frozenset(
    {"wrap_with_set_grad_enabled", "wrap_with_autocast", "tag_activation_checkpoint", "invoke_subgraph", "wrap"}
    | {_FUNCTION, "hints_wrapper"}
)
"""Operations that run one body once. The graph has the operations of the body instead."""

_OWN_INPUTS: Final = frozenset({"associative_scan", "flex_attention"})
"""Operations whose bodies take values that the operation makes."""

_ROWS: Final = {"scan": 2, "map_impl": 1}
"""The number of the argument, by operation, whose tensors have a row for each run of the body."""

_LIFTED: Final = re.compile(r"(^|\.)lifted_tensor_\d+$")
"""torch's name for a constant of the program. As in a forward, it gets no name, since its values may change."""

_FRAME: Final = re.compile(r'^[ \t]*File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)$', re.MULTILINE)
_INTERNAL: Final = re.compile(r"[/\\](site|dist)-packages[/\\](torch|gradir)[/\\]|^<")
_INSTALLED: Final = re.compile(r"/(?:site|dist)-packages/")


class _Value(NamedTuple):
    """An output of a node, its tensor, the number of its storage, and the number of nodes before it."""

    ref: Ref
    tensor: TensorMeta
    storage: int
    place: int


class _Frame:
    """A part that is being added: its scope, the module and the phase of the call that runs it, and its values."""

    def __init__(self, part: Part, scope: str = "", module: str = "", *, is_backward: bool = False) -> None:
        self.part, self.scope, self.module, self.is_backward = part, scope, module, is_backward
        self.values: dict[str, _Value] = {}
        arguments = (value for call in part.calls for _, value in call.arguments)
        self.uses = Counter(each.name for value in (*arguments, part.outputs) for each in values_in(value))


class Assembly:
    """A program and its ``graph``; ``places`` has the source lines of traces."""

    def __init__(self, program: Program, places: Mapping[str, Source | None]) -> None:
        self._program, self._places = program, places
        self._allocator = IdAllocator()
        self._nodes: list[Node] = []
        self._tensors: dict[tuple[bool, str], _Value] = {}
        self._writes: dict[int, _Value] = {}
        self._kinds: dict[str, str] = {}
        self._calls: defaultdict[str, set[int]] = defaultdict(set)
        self._rounds: dict[str, int] = {}
        self._forward_ids: dict[tuple[int | None, str, int], str] = {}
        self._storages: dict[int, str] = {}
        self.graph = self._make_graph()

    def _make_graph(self) -> Graph:
        top = _Frame(self._program.part)
        top.uses.update(name for pair in self._program.writes for name in pair)
        waiting = [self._add_calls(top)]
        while waiting:
            inner = next(waiting[-1], None)
            if inner is None:
                waiting.pop()
            else:
                waiting.append(self._add_calls(inner))
        for name, value in self._program.writes:
            arguments = (("self", Named(name)), ("src", Named(value)))
            tensor = self._read(top, name).tensor
            self._add(top, Call("copy_", "aten.copy_.default", arguments, (), (tensor,), {"self": "inplace"}))
        self._add_outputs(top)
        savings = tuple((name, plain_text(scope), clamp_size(size)) for name, scope, size in self._program.savings)
        options: dict[str, AttrValue] = {"graph": self._program.kind, **({SAVINGS: savings} if savings else {})}
        producer = Producer(__version__, "torch", plain_text(self._program.version), options)
        return Graph.of(self._nodes, self._scopes(), self._program.cuts, producer)

    def _add_calls(self, frame: _Frame) -> Iterator[_Frame]:
        """Add the calls of a frame, and yield the frame of each body, which the caller adds before it goes on."""
        for call in frame.part.calls:
            entries = [each for _, value in call.arguments for each in flatten_argument(value)]
            results, takes_rest = list[_Value](), True
            bodies = [place for place, each in enumerate(entries) if type(each) is Body]
            for place in bodies[: 1 if call.op == _FUNCTION else None]:
                inner = self._enter_body(frame, call, entries[place])
                takes_rest &= self._give_operands(frame, call, entries[place:], inner)
                yield inner
                results += [self._read(inner, each.name) for each in values_in(inner.part.outputs)]
            if call.op in _WRAPPERS and len(results) >= len(call.makes):
                frame.values.update(zip(call.makes, results, strict=False))
            else:
                self._add(frame, call, results, takes_rest=takes_rest)

    def _enter_body(self, frame: _Frame, call: Call, body: Body) -> _Frame:
        scope = self._enter(frame, call.modules)
        if call.op not in _WRAPPERS:
            scope = plain_text(f"{scope}.{body.name}" if scope else body.name)
            self._kinds.setdefault(scope, call.op)
            self._calls[scope].add(0)
            arguments = call.arguments[_ROWS.get(call.op, len(call.arguments)) :]
            rows = next(values_in([value for _, value in arguments[:1]]), None)
            shape = None if rows is None else self._read(frame, rows.name).tensor.shape
            self._rounds[scope] = shape[0] if shape and isinstance(shape[0], int) else 0
        module = call.modules[-1].path if call.modules else ""
        return _Frame(body.part, scope, module, is_backward=call.is_backward or frame.is_backward)

    def _give_operands(self, frame: _Frame, call: Call, entries: Sequence[Any], inner: _Frame) -> bool:
        """Give a body its inputs: the last operands, or the first if options follow, or unknown tensors."""
        operands, names = [each for each in entries if type(each) is not Body], inner.part.inputs
        count, given = len(names), list[Any]([None] * len(names))
        for some in (operands[len(operands) - count :], operands[:count]):
            fits = all(type(each) is Named or not inner.uses[name] for name, each in zip(names, some, strict=False))
            if call.op not in _OWN_INPUTS and (len(operands) == count or (len(some) == count and fits)):
                given = some
                break
        unknown, place = Input("input", (), TensorMeta(device=None)), len(self._nodes)
        for name, each in zip(names, given, strict=True):
            if type(each) is Named:
                inner.values[name] = self._read(frame, each.name)
            elif inner.uses[name]:
                inner.values[name] = self._add_tensor(f"{place}:{inner.scope}:{name}", unknown)
        return not names or any(given)

    def _add(self, frame: _Frame, call: Call, results: Sequence[_Value] = (), *, takes_rest: bool = False) -> None:
        """Add the node of a call, after the new tensors among its inputs."""
        call = call._replace(is_backward=call.is_backward or frame.is_backward)
        if self._only_counts(frame, call):
            return
        inputs, kinds, attrs = list[_Value](), list[str](), dict[str, Any]()
        for name, value in call.arguments:
            entries = [*flatten_argument(value)]
            if results and takes_rest and Body in map(type, entries):
                # The bodies take the arguments after them.
                break
            entries = [each for each in entries if type(each) is not Body]
            named = [each for each in entries if type(each) is Named]
            if named:
                inputs += [self._read(frame, each.name) for each in named]
                kinds += [call.kinds.get(name, "data")] * len(named)
                attrs.update(_attributes_of_rest(plain_text(name), entries))
            elif type(value) is not Body:
                attrs[plain_text(name)] = value
        inputs += [*results, *(self._read(frame, each) for each in call.weights)]
        kinds += ["data"] * (len(inputs) - len(kinds))
        scope = self._enter(frame, call.modules)
        op = plain_text(call.op)
        node_id, place = self._allocator.function(scope, op), len(self._nodes)
        shared = (value.storage for value, kind in zip(inputs, kinds, strict=True) if kind != "data")
        storage = next(shared, place)
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
                saved=tuple(self._to_slot(node_id, call, each, storage) for each in call.saved),
                ext=self._phase(node_id, call) | ({REGION: call.region} if call.region else {}),
            )
        )
        for number, (name, tensor) in enumerate(zip(call.makes, call.tensors, strict=False)):
            frame.values[name] = _Value(Ref(node_id, number), tensor, storage, place)
        for value, kind in zip(inputs, kinds, strict=True):
            if kind == "inplace":
                self._writes[value.storage] = _Value(Ref(node_id, 0), value.tensor, value.storage, place)

    def _to_slot(self, node_id: str, call: Call, saved: SavedOutput, storage: int) -> Saved:
        slot = f"result{saved.output}" if len(call.tensors) > 1 else "result"
        tensor, own = call.tensors[saved.output], storage_key(node_id, slot)
        # Without views, each output has a storage of its own.
        key = self._storages.setdefault(storage, own) if storage != len(self._nodes) or not saved.output else own
        other = "" if key == own else key
        return Saved(slot, tensor.dtype, tensor.shape, saved.bytes, Ref(node_id, saved.output), other, saved.state)

    def _phase(self, node_id: str, call: Call) -> dict[str, AttrValue]:
        """Record a forward call, and return the phase and the forward operation of a backward call."""
        # An operation without a gradient has the number of the next one, and the detach of a saved result follows it.
        key = call.number, call.modules[-1].path if call.modules else "", call.region
        if call.is_backward:
            forward_id = self._forward_ids.get(key, "") if call.number is not None else ""
            return {PHASE: "backward", **({DIFFERENTIATES: forward_id} if forward_id else {})}
        if call.op != "detach" or key not in self._forward_ids:
            self._forward_ids[key] = node_id
        return {}

    def _only_counts(self, frame: _Frame, call: Call) -> bool:
        """Return whether a call only updates a buffer that no operation reads, such as a batch norm's counter."""
        named = [(name, each.name) for name, value in call.arguments for each in values_in(value)]
        roles = {each.role for _, name in named if (each := self._program.inputs.get(name)) is not None}
        return (
            len(named) == 1
            and roles == {"buffer"}
            and call.kinds.get(named[0][0]) == "inplace"
            and frame.uses[named[0][1]] == 1
            and not any(frame.uses[name] for name in call.makes)
        )

    def _read(self, frame: _Frame, name: str) -> _Value:
        name = self._program.links.get(name, name)
        value = frame.values.get(name)
        if value is None:
            known = self._program.inputs.get(name)
            if known is None:
                raise CaptureError(f"the program takes {excerpt(name)}, which nothing before it makes")
            value = self._add_tensor(name, known)
        written = self._writes.get(value.storage)
        return value if written is None or written.place <= value.place else written

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
            self._storages[known.storage] = node_id
        return known

    def _add_outputs(self, top: _Frame) -> None:
        ends = [self._read(top, each.name)[:2] for each in values_in(self._program.part.outputs)]
        ends = ends if self._program.paths else [*dict.fromkeys(ends)]
        paths = self._program.paths or [str(place) if len(ends) > 1 else "" for place in range(len(ends))]
        for path, (ref, tensor) in zip(paths, ends, strict=True):
            node_id = self._allocator.output(plain_text(path))
            self._nodes.append(Node(node_id, "output", inputs=(ref,), outputs=(tensor,)))

    def _enter(self, frame: _Frame, modules: Sequence[Module]) -> str:
        """Return the path of the module that a call runs in, and count the calls of its modules."""
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
        paths = dict.fromkeys(above for path in (*known, *self._kinds, *own) for above in [*paths_above(path)][::-1])
        return [
            known.get(plain_text(path))
            or Scope(
                plain_text(path),
                plain_text(self._kinds.get(path, "").rpartition(".")[2]),
                calls=len(self._calls[path]),
                own=clamp_size(own[path]),
                total=clamp_size(total[path]),
                trainable=clamp_size(trainable[path]),
                rounds=self._rounds.get(path, 0),
            )
            for path in paths or ("",)
        ]


def _attributes_of_rest(name: str, entries: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the attribute for the constants among tensors, or for the places of None, as in a forward."""
    if any(each is not None and type(each) is not Named for each in entries):
        yield name, tuple(["*" if type(each) is Named else each for each in entries])
    elif None in entries:
        yield f"none_in_{name}", tuple([at for at, each in enumerate(entries) if each is None])


def trace_places(shorten_path: Callable[[str], str], internal: tuple[str, ...] = ()) -> Memo[str, Source | None]:
    """Return a table of source lines by trace: the innermost line in a file that is not torch's.

    ``shorten_path`` returns the path to show for a file, and ``internal`` are folders of torch.
    """

    def place_of(trace: str) -> Source | None:
        frames = _FRAME.findall(trace)
        own = [each for each in frames if not each[0].startswith(internal) and not _INTERNAL.search(each[0])]
        if not own:
            return None
        file, line, function = own[-1]
        return Source(shorten_path(file), int(line), escape_unprintable(plain_text(function)))

    return Memo(place_of)


def foreign_path(file: str) -> str:
    r"""Return the path to show for a file of another machine, without looking at the files of this one.

    >>> foreign_path("/venv/lib/site-packages/timm/layers/mlp.py"), foreign_path("C:\\work\\net.py")
    ('timm/layers/mlp.py', 'net.py')
    """
    path, folder = file.replace("\\", "/"), f"{working_folder()}/".replace("\\", "/")
    *_, installed = _INSTALLED.split(path, maxsplit=1)
    inside = installed if installed != path else path.removeprefix(folder)
    return escape_unprintable(plain_text(inside if inside != path else path.rpartition("/")[2]))
