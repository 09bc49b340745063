"""Check the rules that every graph follows."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from operator import attrgetter, eq
from typing import Final

from gradir.errors import GraphError
from gradir.ir.edges import DATA, KINDS, edges_into
from gradir.ir.fields import Field, fields_of, is_list, noun
from gradir.ir.frozen import FrozenDict
from gradir.ir.graph import Graph
from gradir.ir.head import Head
from gradir.ir.model import Node, Scope
from gradir.ir.records import Fault, fault_in, first_fault, has_sound, rule_of, sound
from gradir.ir.text import shortened

# Checking few nodes at a time keeps them in the processor's cache.
_CHUNK: Final = 512
_VOUCHED: Final = "_vouched"
_FIELDS: Final = {kind: field for field, kind in KINDS.items()}
_BESIDE_INPUTS: Final = tuple(field for field in KINDS if field != _FIELDS[DATA])


def check(graph: Graph) -> None:
    """Raise for the first broken rule.

    Raises:
        GraphError: an input, view base or saved origin names no node, names an output that the node does not have,
            or stands after its consumer; an id is empty or holds an unprintable character.
    """
    found = by_id(list(graph.nodes.values()))
    if found is None or not all(map(eq, graph.nodes, found)):
        raise GraphError(shortened(next(problems(graph))))


def check_all(graph: Graph) -> None:
    """Raise an error for the first invalid field, or else for the first broken rule.

    Raises:
        GraphError: see `check`; a field has a value that a file could not return; a scope's key is not its path.
    """
    if _VOUCHED not in graph.__dict__:
        _check_records(graph)
        check(graph)
        vouch(graph)


def vouch(graph: Graph) -> None:
    """Remember that `check_all` passes; a valid graph cannot change."""
    graph.__dict__[_VOUCHED] = True


def _check_records(graph: Graph) -> None:
    lists = (field.name for field in fields_of(Head) if is_list(field))
    for name, wanted in {"nodes": FrozenDict, "scopes": FrozenDict, **dict.fromkeys(lists, tuple)}.items():
        held = getattr(graph, name)
        if type(held) is not wanted:
            expected = "dict" if wanted is FrozenDict else "tuple"
            raise GraphError(f"the {name} of the graph are of type {type(held).__name__}; expected {expected}")
    nodes = list(graph.nodes.values())
    for start in range(0, len(nodes), _CHUNK):
        chunk = nodes[start : start + _CHUNK]
        if not sound(chunk, Node):
            _refuse_first(chunk, Node)
    scopes = list(graph.scopes.values())
    if not sound(scopes, Scope):
        _refuse_first(scopes, Scope)
    for field in fields_of(Head):
        if not has_sound(graph, Head, field.name):
            _refuse_field(graph, field)
    for path, scope in graph.scopes.items():
        if path != scope.path:
            raise GraphError(f"scope {scope.path!r} is stored under the path {path!r}")


def _refuse_first(records: Sequence[object], kind: type) -> None:
    for number, record in enumerate(records):
        name = f"{kind.__name__.lower()} {number}"
        if type(record) is Node:
            name = f"node {record.id!r}"
        elif type(record) is Scope:
            name = f"scope {record.path!r}"
        _refuse(name, first_fault(record, kind))


def _refuse(name: str, fault: Fault | None) -> None:
    if fault is not None:
        raise GraphError(" ".join(filter(None, (f"{name}:", fault.place, fault.problem))))


def _refuse_field(graph: Graph, field: Field) -> None:
    held, rule = getattr(graph, field.name), rule_of(Head, field.name)
    named = {f"the {field.key}": held}
    if is_list(field):
        rule = rule.entries or rule
        named = {f"{noun(field)} {number}": value for number, value in enumerate(held)}
    for name, value in named.items():
        _refuse(name, fault_in(value, rule, ""))


def by_id(nodes: Sequence[Node]) -> dict[str, Node] | None:
    """Return nodes by their ids; ``None`` if they break a rule."""
    seen: dict[str, Node] = {}
    later: list[str] = []
    # Few nodes have such an edge, so one look at all of them is faster than one at each.
    beside = [field for field in _BESIDE_INPUTS if list(map(attrgetter(field), nodes)).count(None) < len(nodes)]
    for node in nodes:
        for ref in node.inputs:
            if ref is not None and (
                ref.id not in seen or (ref.output_nr and not _has_output(seen[ref.id], ref.output_nr))
            ):
                return None
        for field in beside:
            if getattr(node, field) is not None and any(_wrong_edges(node, seen, seen)):
                return None
        for saved in node.saved:
            origin = saved.origin
            # A saved tensor may come from a node that stands later.
            if origin is not None and origin.id not in seen:
                later.append(origin.id)
        seen[node.id] = node
    is_sound = len(seen) == len(nodes) and "" not in seen and "".join(seen).isprintable()
    return seen if is_sound and all(map(seen.__contains__, later)) else None


def problems(graph: Graph) -> Iterator[str]:
    """Yield every broken rule on one line, in node order.

    >>> from gradir.ir.model import Ref
    >>> list(problems(Graph.of([Node("exp:1", inputs=(Ref("x", 0),))])))
    ["node 'exp:1': input 0 names 'x', which is not a node"]
    """
    nodes = graph.nodes
    seen: set[str] = set()
    for key, node in nodes.items():
        if key != node.id:
            yield f"node {node.id!r} is stored under the id {key!r}"
        if not node.id or not node.id.isprintable():
            yield f"node {node.id!r}: an id is not empty and has printable characters only"
        yield from _wrong_edges(node, nodes, seen)
        for saved in node.saved:
            if saved.origin is not None and saved.origin.id not in nodes:
                yield f"node {node.id!r}: saved tensor {saved.slot!r} names {saved.origin.id!r}, which is not a node"
        seen.add(node.id)


def _wrong_edges(node: Node, nodes: Mapping[str, Node], seen: Container[str]) -> Iterator[str]:
    for edge in edges_into(node):
        what = (
            f"node {node.id!r}: {f'input {edge.input_nr}' if edge.input_nr >= 0 else f'its {_FIELDS[edge.kind]}'} names"
        )
        if edge.src not in nodes:
            yield f"{what} {edge.src!r}, which is not a node"
        elif edge.src not in seen:
            yield f"{what} {edge.src!r}, which stands after it (a cycle, or not in topological order)"
        elif edge.output_nr and not _has_output(nodes[edge.src], edge.output_nr):
            yield f"{what} output {edge.output_nr} of {edge.src!r}, which has no such output"


def _has_output(node: Node, output_nr: int) -> bool:
    # A front-end that knows nothing of a node's outputs records none.
    return output_nr >= 0 and (not node.outputs or output_nr < len(node.outputs))
