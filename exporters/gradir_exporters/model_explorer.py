"""The graph JSON of Google's Model Explorer, with scopes as nested layers.

The viewer splits a namespace at ``/`` and drops text before a ``;``, so parts of a scope are percent-encoded. All
attributes are texts, and each key occurs once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import starmap
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gradir.ir import AttrValue, Cut, Graph, Node, Saved, Scope, Source, TensorMeta
from gradir.ir.edges import slotless_edges
from gradir.ir.ids import encode_component
from gradir.ir.jsontext import further_facts, further_text, json_lines, json_text, json_texts
from gradir.ir.memo import AttributeCache, Memo
from gradir.ir.text import escape_unprintable, ref_text, tensor_text, value_text, word
from gradir.protocols import Options
from gradir_exporters._flat_json import DetailOptions

_MAX_LABEL: Final = 120


class ModelExplorerOptions(DetailOptions, frozen=True, kw_only=True):
    """The names of the graph and its nodes, and the details of each node."""

    title: Annotated[str, msgspec.Meta(description="the name of the graph in the viewer", min_length=1)] = "gradir"
    label: Annotated[
        Literal["op", "native", "name"], msgspec.Meta(description="label of a function: its op, native or own name")
    ] = "name"


class ModelExplorerExporter:
    """Model Explorer's graph JSON, with modules as nested layers."""

    suffix: ClassVar[str] = ".json"
    options: ClassVar[type[Options]] = ModelExplorerOptions

    def export(self, graph: Graph, options: ModelExplorerOptions) -> str:
        """Return a graph collection with one graph, one node a line."""
        return "".join(_pieces(graph, options))


class _KeyValue(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: str


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    id: str
    attrs: tuple[_KeyValue, ...]


class _Edge(msgspec.Struct, gc=False):
    source: str = msgspec.field(name="sourceNodeId")
    output: str = msgspec.field(name="sourceNodeOutputId")
    input: str = msgspec.field(name="targetNodeInputId")


class _Node(msgspec.Struct, gc=False):
    id: str
    label: str
    namespace: str
    attrs: list[_KeyValue]
    edges: list[_Edge] | UnsetType = msgspec.field(name="incomingEdges", default=UNSET)
    inputs: tuple[_Metadata, ...] | UnsetType = msgspec.field(name="inputsMetadata", default=UNSET)
    outputs: tuple[_Metadata, ...] | UnsetType = msgspec.field(name="outputsMetadata", default=UNSET)


def _pieces(graph: Graph, options: ModelExplorerOptions) -> Iterator[str]:
    title = json_text(options.title)
    # The viewer drops empty parts; no other part is encoded as a lone percent sign.
    layers: Memo[str, str] = Memo(lambda part: encode_component(part).replace(";", "%3B") or "%")
    namespaces: Memo[str, str] = Memo(
        lambda scope: "/".join([layers[part] for part in scope.split(".")]) if scope else ""
    )
    yield f'{{"label":{title},"graphs":[{{"id":{title},\n"nodes":['
    yield from json_lines(_nodes(graph, options, namespaces))
    yield '],\n"groupNodeAttributes":{\n'
    groups = {"": _graph_facts(graph)}
    for scope in graph.scopes.values():
        groups.setdefault(namespaces[scope.path], {}).update(_scope_facts(scope))
    yield ",\n".join(map("{}:{}".format, json_texts(groups), json_texts(groups.values())))
    yield "\n}}]}\n"


def _nodes(graph: Graph, options: ModelExplorerOptions, namespaces: Memo[str, str]) -> Iterator[_Node]:
    roles, ops, natives = (Memo(partial(_KeyValue, key)) for key in ("role", "op", "native"))
    of_tensor, facts = Memo(_tensor_facts), _Facts(options)
    labels: Memo[str, str] = Memo(
        lambda label: escape_unprintable(label if len(label) <= _MAX_LABEL else f"{label[:_MAX_LABEL]}…")
    )
    metadatas: Memo[tuple[TensorMeta | None, ...], tuple[_Metadata, ...]] = Memo(
        lambda tensors: tuple(_Metadata(str(number), of_tensor[tensor]) for number, tensor in enumerate(tensors))
    )
    for node in graph.nodes.values():
        attrs = [roles[node.role]]
        if node.op:
            attrs.append(ops[node.op])
        if node.native:
            attrs.append(natives[node.native])
        facts.add(node, attrs)
        edges, taken = _wiring(node, graph.nodes)
        wanted = {"name": node.label, "op": node.op, "native": node.native}[options.label]
        yield _Node(
            node.id,
            labels[wanted or node.label or node.id],
            namespaces[node.scope],
            attrs,
            edges or UNSET,
            metadatas[taken] if taken else UNSET,
            metadatas[node.outputs] if node.outputs else UNSET,
        )


def _wiring(node: Node, nodes: Mapping[str, Node]) -> tuple[list[_Edge], tuple[TensorMeta | None, ...]]:
    edges: list[_Edge] = []
    tensors: list[TensorMeta | None] = []
    for slot, ref in enumerate(node.inputs):
        if ref is None:
            tensors.append(None)
            continue
        number, outputs = ref.output_nr, nodes[ref.id].outputs
        edges.append(_Edge(ref.id, str(number), str(slot)))
        tensors.append(outputs[number] if number < len(outputs) else TensorMeta())
    edges += [_Edge(src, str(number), kind) for src, number, _, _, kind in slotless_edges(node)]
    return edges, tuple(tensors)


def _tensor_facts(tensor: TensorMeta | None) -> tuple[_KeyValue, ...]:
    if tensor is None:
        return (_KeyValue("__tensor_tag", "no gradient"),)
    facts = [_KeyValue("tensor_shape", tensor_text(tensor))]
    if tensor.device not in (None, "cpu"):
        facts.append(_KeyValue("device", tensor.device))
    if tensor.layout != "strided":
        facts.append(_KeyValue("layout", tensor.layout))
    return (*facts, *starmap(_KeyValue, further_facts(tensor)))


def _value_facts(kind: str, values: Mapping[str, AttrValue]) -> list[_KeyValue]:
    return [_KeyValue(f"{kind} {name}", value_text(values[name])) for name in sorted(values)]


class _Facts:
    def __init__(self, options: ModelExplorerOptions) -> None:
        self._options = options
        self._attrs = AttributeCache(partial(_value_facts, "attr"))
        self._ext = AttributeCache(partial(_value_facts, "ext"))

    def add(self, node: Node, facts: list[_KeyValue]) -> None:
        if node.names:
            facts += [_KeyValue(f"name {nr}" if nr else "name", name) for nr, name in enumerate(node.names)]
        if node.attrs and self._options.attrs:
            facts += self._attrs(node.attrs)
        if node.saved and self._options.saved:
            facts += self._slot_facts(node.saved)
        if node.base is not None:
            facts.append(_KeyValue("view of", node.base))
        if node.opaque:
            facts.append(_KeyValue("opaque", "true"))
        if node.source is not None:
            facts.append(_KeyValue("source", _source_text(node.source)))
        if node.ext:
            facts += self._ext(node.ext)
        facts += starmap(_KeyValue, further_facts(node))

    def _slot_facts(self, slots: tuple[Saved, ...]) -> Iterator[_KeyValue]:
        # The viewer shows one attribute for each key, but two slots may have one name.
        used: dict[str, int] = {}
        for saved in slots:
            key = name = f"saved {saved.slot}"
            while key in used:
                used[name] += 1
                key = f"{name} ({used[name]})"
            used[key] = 1
            size = "" if saved.bytes is None else f", {saved.bytes} bytes"
            origin = "" if saved.origin is None else f", of {ref_text(saved.origin)}"
            storage = f", storage {word(saved.storage)}" if saved.storage else ""
            text = f"{tensor_text(saved.tensor)}{size}{origin}{storage}, {word(saved.state)}"
            yield _KeyValue(key, text + further_text(saved, ", "))


def _source_text(source: Source) -> str:
    function = f" in {source.function}" if source.function else ""
    return f"{source.file}:{source.line}{function}{further_text(source, ', ')}"


def _describe_place(cut: Cut) -> str:
    sources = [(key, source) for key, source in (("at", cut.source), ("via", cut.via)) if source is not None]
    texts = [f" op {word(cut.op)}"] if cut.op else []
    texts += [f" {key} {_source_text(source)}" for key, source in sources]
    texts += [f" meant {word(cut.meant)}"] if cut.meant else []
    texts += [f" of {word(cut.at)}"] if cut.at else []
    texts += [f" into {word(cut.into)}{'' if cut.slot is None else f' slot {cut.slot}'}"] if cut.into else []
    return "".join(texts)


def _graph_facts(graph: Graph) -> dict[str, str]:
    producer = graph.producer
    facts = {"gradir": producer.gradir, producer.framework or "framework": producer.framework_version}
    facts = {key: version for key, version in facts.items() if version}
    for key in sorted(producer.options):
        facts[f"option {key}"] = value_text(producer.options[key])
    for number, cut in enumerate(graph.cuts):
        tensor = "" if cut.tensor is None else f" {tensor_text(cut.tensor)}"
        words = " ".join(map(word, (cut.kind, *cut.names)))
        facts[f"cut {number}"] = f"{words}{tensor}{_describe_place(cut)}{further_text(cut, ', ')}"
    return facts


def _scope_facts(scope: Scope) -> Iterator[tuple[str, str]]:
    if scope.class_name:
        yield "class", scope.class_name
    if scope.detail:
        yield "detail", scope.detail
    yield from further_facts(scope)
    if scope.training is not None:
        yield "mode", "train" if scope.training else "eval"
