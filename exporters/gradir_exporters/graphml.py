"""GraphML: the XML that networkx, igraph, Gephi and yEd read.

Lists and records are JSON text. XML cannot hold most control characters and lone surrogates: plain text has them
spelled as in Python source, and JSON escapes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import compress, repeat
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from gradir.ir import Graph
from gradir.ir.jsontext import json_texts
from gradir.ir.memo import Memo
from gradir.protocols import Options
from gradir_exporters._flat_json import DetailOptions, FlatNodes

_HEAD: Final = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">"""

_EDGE_KEYS: Final = ("output_nr", "input_nr", "kind")
# The types of the other keys are text.
_KINDS: Final = {"slots": "int", "opaque": "boolean", "output_nr": "int", "input_nr": "int"}
_escape_markup: Final = partial(escape, quote=False)
# XML cannot hold these characters, not even as references (https://www.w3.org/TR/xml/#charsets).
_UNHOLDABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class GraphmlOptions(DetailOptions, frozen=True, kw_only=True):
    """The ids of the XML, and the details of each node."""

    ids: Annotated[
        Literal["names", "numbers"],
        msgspec.Meta(
            description="names: the graph's own ids; numbers: n0, n1, which the GraphML schema's NMTOKEN wants"
        ),
    ] = "names"


class GraphmlExporter:
    """GraphML, for networkx, igraph, Gephi and yEd."""

    suffix: ClassVar[str] = ".graphml"
    options: ClassVar[type[Options]] = GraphmlOptions

    def export(self, graph: Graph, options: GraphmlOptions) -> str:
        """Return a GraphML document with one directed graph, one node or edge a line."""
        return "\n".join(_lines(graph, options))


def _lines(graph: Graph, options: GraphmlOptions) -> Iterator[str]:
    make, is_numbered = FlatNodes(options, "dtype", "shape"), options.ids == "numbers"
    _, *fields = (field for field in msgspec.structs.fields(make.kind) if field.name != "parent")
    about = {"producer": graph.producer, "scopes": [*graph.scopes.values()], "cuts": [*graph.cuts]}
    keys = {"graph": [*about], "node": ["gir_id", *(field.name for field in fields)], "edge": [*_EDGE_KEYS]}
    yield _HEAD
    for owner, names in keys.items():
        for key in names:
            yield f'<key id="{key}" for="{owner}" attr.name="{key}" attr.type="{_KINDS.get(key, "string")}"/>'
    yield '<graph id="gradir" edgedefault="directed">'
    for key, value in about.items():
        yield from filter(None, _elements(key, [value], ([],)))
    ids = {id_: _escape_text(id_).replace('"', "&quot;") for id_ in graph.nodes}
    own_ids: Iterable[str] = repeat("")
    if is_numbered:
        ids = {id_: f"n{number}" for number, id_ in enumerate(graph.nodes)}
        own_ids = _elements("gir_id", [*graph.nodes], ())
    records = [*map(make, graph.nodes.values())]
    columns = (
        _elements(field.name, [*map(attrgetter(field.name), records)], (None, field.default, "")) for field in fields
    )
    for id_, own_id, *details in zip(ids.values(), own_ids, *filter(None, columns)):  # noqa: B905 (`repeat` has no end)
        yield f'<node id="{id_}">{own_id}{"".join(details)}</node>'
    for src, output_nr, dst, input_nr, kind in graph.edges:
        yield (
            f'<edge source="{ids[src]}" target="{ids[dst]}"><data key="output_nr">{output_nr}</data>'
            f'<data key="input_nr">{input_nr}</data><data key="kind">{kind}</data></edge>'
        )
    yield "</graph>\n</graphml>\n"


def _elements(key: str, values: Sequence[Any], omitted: Sequence[object]) -> list[str]:
    """Return the data element of each value: text as it is, others as JSON, and none for an omitted value."""
    shown = [value not in omitted for value in values]
    written = [*compress(values, shown)]
    if not written:
        return []
    is_text = all(isinstance(value, str) for value in written)
    texts, escape_value = (iter(written), _escape_text) if is_text else (json_texts(written), _escape_markup)
    elements: Memo[str, str] = Memo(lambda text: f'<data key="{key}">{escape_value(text)}</data>')
    return [elements[next(texts)] if is_shown else "" for is_shown in shown]


def _escape_text(text: str) -> str:
    marked = _escape_markup(text)
    if marked.isprintable():
        return marked
    spelled = _UNHOLDABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), marked)
    return "".join([char if char.isprintable() else f"&#{ord(char)};" for char in spelled])
