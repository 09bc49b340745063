"""GraphML: the XML that networkx, igraph, Gephi and yEd read.

Lists and records are JSON text. XML cannot hold most control characters and lone surrogates: plain text has them
spelled as in Python source, and JSON escapes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from html import escape
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from gradir.ir import Graph, Node, TensorMeta
from gradir.ir.fields import other_fields
from gradir.ir.jsontext import FORMATTED_FIELDS, further_facts, json_text, json_texts
from gradir.ir.memo import Memo
from gradir.ir.model import first_known
from gradir.protocols import Options


@cache
def _keys() -> Mapping[str, Mapping[str, str]]:
    words = dict.fromkeys(("gir_id", "label", "role", "op", "native", "scope", "names"), "string")
    tensors = {"slots": "int", **dict.fromkeys(("dtype", "shape", "outputs"), "string")}
    details = {**dict.fromkeys(("attrs", "saved", "base"), "string"), "opaque": "boolean", "source": "string"}
    others = {field.key: "string" for field in other_fields(Node, FORMATTED_FIELDS[Node])}
    return {
        "graph": dict.fromkeys(("producer", "scopes", "cuts"), "string"),
        "node": {**words, **tensors, **details, "ext": "string", **others},
        "edge": {"output_nr": "int", "input_nr": "int", "kind": "string"},
    }


_HEAD: Final = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">"""

# XML cannot hold these characters, not even as references (https://www.w3.org/TR/xml/#charsets).
_UNHOLDABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class GraphmlOptions(Options, frozen=True, kw_only=True):
    """The ids of the XML, and the details of each node."""

    ids: Annotated[
        Literal["names", "numbers"],
        msgspec.Meta(
            description="names: the graph's own ids; numbers: n0, n1, which the GraphML schema's NMTOKEN wants"
        ),
    ] = "names"
    attrs: Annotated[bool, msgspec.Meta(description="write the attributes of operations")] = True
    saved: Annotated[bool, msgspec.Meta(description="write the tensors saved for backward")] = True


class GraphmlExporter:
    """GraphML, for networkx, igraph, Gephi and yEd."""

    suffix: ClassVar[str] = ".graphml"
    options: ClassVar[type[Options]] = GraphmlOptions

    def export(self, graph: Graph, options: GraphmlOptions) -> str:
        """Return a GraphML document with one directed graph, one node or edge a line."""
        return "\n".join(_lines(graph, options))


def _lines(graph: Graph, options: GraphmlOptions) -> Iterator[str]:
    yield _HEAD
    for owner, keys in _keys().items():
        for key, kind in keys.items():
            yield f'<key id="{key}" for="{owner}" attr.name="{key}" attr.type="{kind}"/>'
    yield '<graph id="gradir" edgedefault="directed">'
    yield _data("producer", _json(graph.producer))
    if graph.scopes:
        yield _data("scopes", _json(list(graph.scopes.values())))
    if graph.cuts:
        yield _data("cuts", _json(graph.cuts))
    if options.ids == "numbers":
        ids = {id_: f"n{number}" for number, id_ in enumerate(graph.nodes)}
    else:
        ids = {id_: _escape_text(id_).replace('"', "&quot;") for id_ in graph.nodes}
    yield from _nodes(graph, options, ids)
    for src, output_nr, dst, input_nr, kind in graph.edges:
        yield (
            f'<edge source="{ids[src]}" target="{ids[dst]}"><data key="output_nr">{output_nr}</data>'
            f'<data key="input_nr">{input_nr}</data><data key="kind">{kind}</data></edge>'
        )
    yield "</graph>\n</graphml>\n"


def _nodes(graph: Graph, options: GraphmlOptions, ids: dict[str, str]) -> Iterator[str]:
    def word(key: str, text: str) -> str:
        return _data(key, _escape_text(text)) if text else ""

    roles, ops, natives, scopes = (Memo(partial(word, key)) for key in ("role", "op", "native", "scope"))
    outputs, numbered = Memo(_outputs), options.ids == "numbers"
    for (id_, node), details in zip(graph.nodes.items(), _details(graph, options), strict=True):
        own = _data("gir_id", _escape_text(id_)) if numbered else ""
        label = word("label", node.label)
        words = f"{roles[node.role]}{ops[node.op]}{natives[node.native]}{scopes[node.scope]}"
        slots = f'<data key="slots">{len(node.inputs)}</data>' if node.inputs else ""
        tensors = outputs[node.outputs] if node.outputs else ""
        yield f'<node id="{ids[id_]}">{own}{label}{words}{slots}{tensors}{details}</node>'


def _details(graph: Graph, options: GraphmlOptions) -> Iterator[str]:
    """Yield the further data elements of each node; the JSON of many nodes is encoded at once for speed."""
    nodes = graph.nodes.values()
    names = _jsons(node.names for node in nodes if node.names)
    attrs = _jsons(node.attrs for node in nodes if node.attrs)
    saved = _jsons(node.saved for node in nodes if node.saved)
    sources = _jsons(node.source for node in nodes if node.source is not None)
    exts = _jsons(node.ext for node in nodes if node.ext)
    for node in nodes:
        elements = [
            _data("names", next(names)) if node.names else "",
            _data("attrs", next(attrs)) if node.attrs and options.attrs else "",
            _data("saved", next(saved)) if node.saved and options.saved else "",
            "" if node.base is None else _data("base", _escape_text(node.base)),
            _data("opaque", "true") if node.opaque else "",
            "" if node.source is None else _data("source", next(sources)),
            _data("ext", next(exts)) if node.ext else "",
        ]
        yield "".join([*elements, *(_data(key, _escape_markup(text)) for key, text in further_facts(node))])


def _outputs(outputs: tuple[TensorMeta, ...]) -> str:
    first, data = first_known(outputs) or outputs[0], ""
    if first.dtype:
        data += _data("dtype", _escape_text(first.dtype))
    if first.shape is not None:
        data += _data("shape", _json(first.shape))
    return data + _data("outputs", _json(outputs))


def _data(key: str, text: str) -> str:
    return f'<data key="{key}">{text}</data>'


def _json(value: object) -> str:
    return _escape_markup(json_text(value))


def _escape_markup(text: str) -> str:
    return escape(text, quote=False)


def _jsons(values: Iterable[object]) -> Iterator[str]:
    return map(_escape_markup, json_texts(values))


def _escape_text(text: str) -> str:
    marked = escape(text, quote=False)
    if marked.isprintable():
        return marked
    spelled = _UNHOLDABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), marked)
    return "".join([char if char.isprintable() else f"&#{ord(char)};" for char in spelled])
