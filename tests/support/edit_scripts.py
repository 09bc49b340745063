"""Graphs before and after known edits, with the true matching and what the edits cost.

A `Plan` describes a network; `drawn` makes its nodes, each with a key that survives every edit. The true matching
pairs equal keys, and the true cost compares them by key: nothing here asks the code under test.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gradir.ir import AttrValue, Graph, Node, Ref, Saved, TensorMeta
from gradir.ir.edges import postorder

Key = tuple[str, ...]
WIDTH = 64


@dataclass(frozen=True)
class Layer:
    """One layer: ``uid`` is its identity, ``hidden`` its inner width, ``skip`` the layer that feeds its residual."""

    uid: str
    kind: str
    hidden: int
    activation: str = "relu"
    skip: str = ""


@dataclass(frozen=True)
class Plan:
    """A network: its layers in order, and what all of them share."""

    layers: tuple[Layer, ...]
    batch: int = 8
    prefix: str = "layers"
    shuffled: int | None = None
    renames: int = 0


@dataclass(frozen=True)
class Slot:
    """A saved slot whose origin and storage are keys."""

    saved: Saved
    origin: Key | None = None
    storage: Key | None = None


@dataclass(frozen=True)
class Draft:
    """A node whose references are keys."""

    key: Key
    node: Node
    inputs: tuple[Key | None, ...] = ()
    slots: tuple[Slot, ...] = ()

    @property
    def below(self) -> list[Key]:
        """What stands before it in canonical order: its inputs and the buffers that it saves."""
        buffers = (slot.origin for slot in self.slots if slot.saved.slot == "running_mean")
        return [key for key in (*self.inputs, *buffers) if key is not None]


@dataclass(frozen=True)
class Drawn:
    """The nodes of a plan in order, their ids by key, and the graph."""

    drafts: tuple[Draft, ...]
    ids: dict[Key, str]
    graph: Graph


@dataclass(frozen=True)
class Script:
    """Two graphs, the matching that the edits mean, and its cost."""

    before: Graph
    after: Graph
    truth: dict[str, str]
    cost: int


def plan(nodes: int, seed: int) -> Plan:
    """A network of about this many nodes: runs of equal layers, as real ones have."""
    rng = random.Random(seed)
    layers: list[Layer] = []
    size = 0
    while size < nodes:
        kind, hidden = rng.choice(sorted(_KINDS)), rng.choice([64, 128, 256, 512])
        for _ in range(rng.randint(1, 6)):
            layers.append(Layer(f"u{len(layers)}", kind, hidden))
            size += {"attention": 30, "conv": 14, "mlp": 11}[kind]
    return Plan(tuple(layers))


def script(before: Plan, edits: Sequence[str], seed: int) -> Script:
    """The plan before and after these edits at random places."""
    rng = random.Random(seed)
    after = before
    for number, edit in enumerate(edits):
        after = EDITS[edit](after, rng, f"new{number}")
    old, new = draw_plan(before), draw_plan(after)
    truth = {node_id: new.ids[key] for key, node_id in old.ids.items() if key in new.ids}
    return Script(old.graph, new.graph, truth, true_cost(old, new) + after.renames)


def true_cost(old: Drawn, new: Drawn) -> int:
    """The edits between nodes of equal keys, and 1 for each node without its equal; renames apart."""
    before = {draft.key: draft for draft in old.drafts}
    after = {draft.key: draft for draft in new.drafts}
    cost = len(before.keys() ^ after.keys())
    for key in before.keys() & after.keys():
        was, becomes = before[key], after[key]
        cost += was.node.outputs != becomes.node.outputs
        if was.node.op != becomes.node.op:
            cost += 1
        else:
            cost += (was.node.attrs != becomes.node.attrs) + (was.slots != becomes.slots)
        cost += sum(a != b for a, b in zip(was.inputs, becomes.inputs, strict=True))
    return cost


def draw_plan(of: Plan) -> Drawn:
    """The graph of a plan, with ids as a capture gives them."""
    pen = _Pen(of.batch)
    place = {layer.uid: number for number, layer in enumerate(of.layers)}
    value = pen.tensor(("x",), "x", (of.batch, 16, WIDTH), "leaf")
    results: dict[str, Key] = {}
    for number, layer in enumerate(of.layers):
        residual = value
        if layer.skip in place and place[layer.skip] < number:
            residual = results[layer.skip]
        value = results[layer.uid] = _KINDS[layer.kind](pen, layer, f"{of.prefix}.{number}", value, residual)
    value = pen.linear(("head",), "head", value, WIDTH, 10)
    value = pen.op(("loss",), "nll_loss", "", [value], ())
    pen.drafts.append(Draft(("output",), Node("output", role="output", outputs=_tensors(())), (value,)))
    return pen.draw(of.shuffled)


class _Pen:
    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.drafts: list[Draft] = []

    def tensor(self, key: Key, name: str, shape: tuple[int, ...], role: str = "parameter") -> Key:
        scope = name.rpartition(".")[0]
        node = Node(name, role=role, scope=scope, names=(name,), outputs=_tensors(shape))
        self.drafts.append(Draft(key, node))
        return key

    def op(
        self,
        key: Key,
        op: str,
        scope: str,
        inputs: Sequence[Key | None],
        shape: tuple[int, ...],
        attrs: dict[str, AttrValue] | None = None,
        slots: Iterable[Slot] = (),
    ) -> Key:
        native = f"{op.title().replace('_', '')}Backward0"
        node = Node("", op=op, native=native, scope=scope, outputs=_tensors(shape), attrs=attrs or {})
        self.drafts.append(Draft(key, node, tuple(inputs), tuple(slots)))
        return key

    def linear(self, key: Key, scope: str, value: Key, inner: int, outer: int) -> Key:
        """Weight, its transpose, bias, a flattening view, the product and a view back: six nodes."""
        rows = self.batch * 16
        flat = self.op((*key, "flat"), "view", scope, [value], (rows, inner), {"sizes": (self.batch, 16, inner)})
        bias = self.tensor((*key, "bias"), f"{scope}.bias", (outer,))
        weight = self.tensor((*key, "weight"), f"{scope}.weight", (outer, inner))
        turned = self.op((*key, "t"), "t", scope, [weight], (inner, outer))
        slots = [
            _slot("mat1", (rows, inner), flat, flat),
            _slot("mat2", (inner, outer), turned, weight),
        ]
        product = self.op((*key, "addmm"), "addmm", scope, [bias, flat, turned], (rows, outer), {"alpha": 1}, slots)
        return self.op(
            (*key, "back"), "view", scope, [product], (self.batch, 16, outer), {"sizes": (self.batch, 16, outer)}
        )

    def activation(self, key: Key, layer: Layer, scope: str, value: Key, shape: tuple[int, ...]) -> Key:
        slots = [_slot("result", shape, key, key)]
        return self.op(key, layer.activation, scope, [value], shape, None, slots)

    def draw(self, shuffled: int | None) -> Drawn:
        counts: Counter[tuple[str, str]] = Counter()
        ids: dict[Key, str] = {}
        by_key = {draft.key: draft for draft in self.drafts}
        ordered = [by_key[key] for key in postorder([("output",)], lambda key: by_key[key].below)]
        for draft in ordered:
            node = draft.node
            counts[node.scope, node.op] += 1
            tail = f"{node.op}:{counts[node.scope, node.op]}"
            ids[draft.key] = node.id or (f"{node.scope}/{tail}" if node.scope else tail)
        drafts = ordered if shuffled is None else list(_topological(ordered, random.Random(shuffled)))
        return Drawn(tuple(drafts), ids, Graph.of(_finish_draft(draft, ids) for draft in drafts))


def _finish_draft(draft: Draft, ids: dict[Key, str]) -> Node:
    node = draft.node
    saved = []
    for slot in draft.slots:
        storage = "" if slot.storage is None else ids[slot.storage]
        # Tensors own their storage; what a function made is named by the slot that saved it.
        key = storage if "/" not in storage else f"{storage}.{slot.saved.slot}"
        origin = None if slot.origin is None else Ref(ids[slot.origin], 0)
        saved.append(Saved(slot.saved.slot, slot.saved.dtype, slot.saved.shape, slot.saved.bytes, origin, key))
    inputs = tuple(None if key is None else Ref(ids[key], 0) for key in draft.inputs)
    return Node(
        ids[draft.key], node.role, node.op, node.native, node.scope, node.names, inputs, node.outputs, node.attrs,
        tuple(saved),
    )  # fmt: skip


def _topological(drafts: Sequence[Draft], rng: random.Random) -> Iterator[Draft]:
    """A random order in which producers still stand before their consumers."""
    by_key = {draft.key: draft for draft in drafts}
    waits = {draft.key: len(draft.below) for draft in drafts}
    above: dict[Key, list[Key]] = {draft.key: [] for draft in drafts}
    for draft in drafts:
        for key in draft.below:
            above[key].append(draft.key)
    ready = [draft.key for draft in drafts if not waits[draft.key]]
    while ready:
        chosen = rng.randrange(len(ready))
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        key = ready.pop()
        yield by_key[key]
        for consumer in above[key]:
            waits[consumer] -= 1
            if not waits[consumer]:
                ready.append(consumer)


def _mlp(pen: _Pen, layer: Layer, scope: str, value: Key, residual: Key) -> Key:
    key = (layer.uid,)
    up = pen.linear((*key, "up"), f"{scope}.up", value, WIDTH, layer.hidden)
    active = pen.activation((*key, "act"), layer, f"{scope}.act", up, (pen.batch, 16, layer.hidden))
    down = pen.linear((*key, "down"), f"{scope}.down", active, layer.hidden, WIDTH)
    return pen.op((*key, "add"), "add", scope, [residual, down], (pen.batch, 16, WIDTH), {"alpha": 1})


def _conv(pen: _Pen, layer: Layer, scope: str, value: Key, residual: Key) -> Key:
    key, wide = (layer.uid,), (pen.batch, layer.hidden, 16)
    first = pen.tensor((*key, "weight"), f"{scope}.conv1.weight", (layer.hidden, WIDTH, 3))
    slots = [
        _slot("input", (pen.batch, 16, WIDTH), value, None),
        _slot("weight", (layer.hidden, WIDTH, 3), first, first),
    ]
    conv = pen.op((*key, "conv1"), "convolution", f"{scope}.conv1", [value, first, None], wide, {"stride": (1,)}, slots)
    mean = pen.tensor((*key, "mean"), f"{scope}.norm.running_mean", (layer.hidden,), "buffer")
    gamma = pen.tensor((*key, "gamma"), f"{scope}.norm.weight", (layer.hidden,))
    beta = pen.tensor((*key, "beta"), f"{scope}.norm.bias", (layer.hidden,))
    slots = [_slot("input", wide, conv, conv), _slot("running_mean", (layer.hidden,), mean, mean)]
    norm = pen.op(
        (*key, "norm"), "native_batch_norm", f"{scope}.norm", [conv, gamma, beta], wide, {"eps": 1e-05}, slots
    )
    active = pen.activation((*key, "act"), layer, f"{scope}.act", norm, wide)
    last = pen.tensor((*key, "weight2"), f"{scope}.conv2.weight", (WIDTH, layer.hidden, 3))
    narrow = (pen.batch, 16, WIDTH)
    second = pen.op((*key, "conv2"), "convolution", f"{scope}.conv2", [active, last, None], narrow, {"stride": (1,)})
    return pen.op((*key, "add"), "add", scope, [residual, second], narrow, {"alpha": 1})


def _attention(pen: _Pen, layer: Layer, scope: str, value: Key, residual: Key) -> Key:
    key, heads = (layer.uid,), (pen.batch, 4, 16, layer.hidden // 4)
    parts = []
    for name in ("q", "k", "v"):
        part = pen.linear((*key, name), f"{scope}.attn.{name}", value, WIDTH, layer.hidden)
        parts.append(pen.op((*key, name, "heads"), "view", f"{scope}.attn", [part], heads, {"sizes": heads}))
    scores = pen.op((*key, "scores"), "bmm", f"{scope}.attn", parts[:2], (pen.batch, 4, 16, 16))
    weights = pen.activation((*key, "act"), layer, f"{scope}.attn", scores, (pen.batch, 4, 16, 16))
    mixed = pen.op((*key, "mixed"), "bmm", f"{scope}.attn", [weights, parts[2]], heads)
    out = pen.linear((*key, "out"), f"{scope}.attn.out", mixed, layer.hidden, WIDTH)
    return pen.op((*key, "add"), "add", scope, [residual, out], (pen.batch, 16, WIDTH), {"alpha": 1})


_KINDS: dict[str, Callable[[_Pen, Layer, str, Key, Key], Key]] = {"attention": _attention, "conv": _conv, "mlp": _mlp}


def _tensors(shape: tuple[int, ...]) -> tuple[TensorMeta, ...]:
    return (TensorMeta("float32", shape),)


def _slot(name: str, shape: tuple[int, ...], origin: Key | None, storage: Key | None) -> Slot:
    size = 4
    for length in shape:
        size *= length
    return Slot(Saved(name, "float32", shape, size), origin, storage)


def _splice(of: Plan, place: int, *layers: Layer, over: int = 1) -> Plan:
    """Put layers in the place of so many."""
    return replace(of, layers=(*of.layers[:place], *layers, *of.layers[place + over :]))


def _insert(of: Plan, rng: random.Random, uid: str) -> Plan:
    place = rng.randint(0, len(of.layers))
    kind, hidden = rng.choice(sorted(_KINDS)), rng.choice([64, 128, 256, 512])
    return _splice(of, place, Layer(uid, kind, hidden), over=0)


def _repeat(of: Plan, rng: random.Random, uid: str) -> Plan:
    place = rng.randrange(len(of.layers))
    return _splice(of, place, replace(of.layers[place], uid=uid), over=0)


def _delete(of: Plan, rng: random.Random, _: str) -> Plan:
    return of if len(of.layers) == 1 else _splice(of, rng.randrange(len(of.layers)))


def _widen(of: Plan, rng: random.Random, _: str) -> Plan:
    place = rng.randrange(len(of.layers))
    return _splice(of, place, replace(of.layers[place], hidden=2 * of.layers[place].hidden))


def _rewire(of: Plan, rng: random.Random, _: str) -> Plan:
    if len(of.layers) < 3:
        return of
    place = rng.randrange(2, len(of.layers))
    # Not the layer just before, which feeds the residual anyway.
    return _splice(of, place, replace(of.layers[place], skip=rng.choice(of.layers[: place - 1]).uid))


def _swap(of: Plan, rng: random.Random, _: str) -> Plan:
    activation, place = rng.choice(["gelu", "silu", "tanh"]), rng.randrange(len(of.layers))
    return _splice(of, place, replace(of.layers[place], activation=activation))


EDITS: dict[str, Callable[[Plan, random.Random, str], Plan]] = {
    "insert layer": _insert,
    "repeat layer": _repeat,
    "delete layer": _delete,
    "rename prefix": lambda of, _, uid: replace(of, prefix=f"net.{uid}.blocks", renames=1),
    "widen": _widen,
    "rewire": _rewire,
    "swap op": _swap,
    "change batch size": lambda of, rng, _: replace(of, batch=of.batch * rng.choice([2, 4])),
    "shuffle order": lambda of, rng, _: replace(of, shuffled=rng.randrange(1_000_000)),
}
"""Each edit: a plan, where randomness comes from, and a name that no layer has yet."""
