"""Check the rules of every graph, and that a file could return the values of its records.

Records are created unchecked, for speed. All values of a field are checked at once, and one by one after an error.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter, eq
from types import NoneType
from typing import Any, Final, NamedTuple

from msgspec import inspect

from gradir.errors import GraphError
from gradir.ir.edges import DATA, KINDS, edges_into
from gradir.ir.fields import Field, fields_of, is_list, noun
from gradir.ir.frozen import FrozenDict
from gradir.ir.graph import Graph
from gradir.ir.head import Head
from gradir.ir.model import INT64_MAX, Node, Record, Scope
from gradir.ir.text import is_unicode, shorten

_NONE: Final = "None"


class _Rule(NamedTuple):
    """The valid values of a field: exactly these types, since a file would not return a subclass."""

    kinds: frozenset[type]
    expected: str
    lowest: int = 0
    entries: _Rule | None = None
    literals: frozenset[str] = frozenset()


_TEXT: Final = _Rule(frozenset({str}), "text")
_PLAIN: Final[Mapping[type, _Rule]] = {
    inspect.NoneType: _Rule(frozenset({NoneType}), _NONE),
    inspect.BoolType: _Rule(frozenset({bool}), "True or False"),
    inspect.StrType: _TEXT,
    inspect.FloatType: _Rule(frozenset({float}), "a float"),
}


def rule_of(record: type[Record], field: str) -> _Rule:
    """Return the rule of a record's field by name."""
    return _fields(record)[field]


@cache
def _fields(record: type[Record]) -> Mapping[str, _Rule]:
    return {field.name: _rule(field.type) for field in fields_of(record)}


def _rule(kind: Any) -> _Rule:
    match kind:
        case inspect.Metadata():
            plain = _rule(kind.type)
            rule = plain._replace(expected=(kind.extra or {}).get("expected", plain.expected))
        case inspect.UnionType():
            rule = _join_rules([*map(_rule, kind.types)])
        case inspect.VarTupleType():
            entries = _rule(kind.item_type)
            is_of_one_kind = len(entries.kinds - {NoneType}) == 1
            expected = f"a tuple of {entries.expected.removeprefix('a ')}" if is_of_one_kind else "a tuple"
            rule = _Rule(frozenset({tuple}), expected, entries=entries)
        case inspect.LiteralType():
            literals = frozenset(map(str, kind.values))
            rule = _Rule(frozenset({str}), " or ".join(map(repr, kind.values)), literals=literals)
        case inspect.IntType():
            lowest = -INT64_MAX - 1 if kind.ge is None else kind.ge
            expected = "an integer of 64 bits" if lowest else "an integer from 0 to 2**63 - 1"
            rule = _Rule(frozenset({int}), expected, lowest=lowest)
        case inspect.StructType():
            rule = _Rule(frozenset({kind.cls}), f"a {kind.cls.__name__}")
        case inspect.DictType():
            rule = _Rule(frozenset({FrozenDict}), "a dict", entries=_rule(kind.value_type))
        case _:
            rule = _PLAIN[type(kind)]
    return rule


def _join_rules(rules: Sequence[_Rule]) -> _Rule:
    *most, last = sorted((rule.expected for rule in rules), key=lambda text: (text == _NONE, text == "a tuple"))
    return _Rule(
        frozenset().union(*(rule.kinds for rule in rules)),
        f"{', '.join(most)} or {last}",
        lowest=min(rule.lowest for rule in rules),
        entries=next((rule.entries for rule in rules if rule.entries), None),
        literals=frozenset().union(*(rule.literals for rule in rules)),
    )


def are_valid(records: Sequence[Any], kind: type) -> bool:
    """Return whether all values are records of a type with valid fields.

    >>> from gradir.ir.model import TensorMeta
    >>> are_valid([TensorMeta("float32", ("batch", 3))], TensorMeta)
    True
    >>> are_valid([TensorMeta("float32", (-1, 3))], TensorMeta)
    False
    """
    return _all_follow(records, _Rule(frozenset({kind}), ""))


def _all_follow(values: Sequence[Any], rule: _Rule) -> bool:
    """Check the values of a field in all records at once, which is faster than one record at a time."""
    kinds = set(map(type, values))
    return kinds <= rule.kinds and all(
        _follow(values if len(kinds) == 1 else [value for value in values if type(value) is kind], kind, rule)
        for kind in kinds - {NoneType, bool}
    )


def _follow(values: Sequence[Any], kind: type, rule: _Rule) -> bool:
    if kind is str:
        texts = set(values)
        # Encoding one joined text is faster.
        return is_unicode("".join(texts)) and (not rule.literals or texts <= rule.literals)
    if kind is int:
        return bool(rule.lowest <= min(values) and max(values) <= INT64_MAX)
    if kind is float:
        return all(map(math.isfinite, values))
    if kind is tuple and rule.entries:
        return _all_follow([entry for value in values if value for entry in value], rule.entries)
    if kind is FrozenDict and rule.entries:
        full = [value for value in values if value]
        keys = [key for value in full for key in value]
        return _all_follow(keys, _TEXT) and _all_follow(
            [entry for value in full for entry in value.values()], rule.entries
        )
    return all(_all_follow(list(map(attrgetter(name), values)), field) for name, field in _fields(kind).items())


def fault_in(value: Any, rule: _Rule, place: str) -> str:
    """Return the first place in a value that breaks a rule, with the problem, or an empty text."""
    # The depth of the recursion depends on the declarations, not on the data.
    problem = _problem(value, rule)
    if problem:
        return f"{place} {problem}".lstrip()
    return next((found for part in _list_parts(value, rule, place) if (found := fault_in(*part))), "")


def _list_parts(value: Any, rule: _Rule, place: str) -> Iterator[tuple[Any, _Rule, str]]:
    kind = type(value)
    if issubclass(kind, Record):
        prefix = place and f"{place}."
        yield from ((getattr(value, name), field, prefix + name) for name, field in _fields(kind).items())
    elif kind is FrozenDict and rule.entries:
        for key, entry in value.items():
            yield key, _TEXT, f"a key of {place}"
            yield entry, rule.entries, f"{place}[{reprlib.repr(key)}]"
    elif kind is tuple and rule.entries:
        yield from ((entry, rule.entries, f"{place}[{number}]") for number, entry in enumerate(value))


def _problem(value: Any, rule: _Rule) -> str:
    kind = type(value)
    if kind is float and float in rule.kinds and not math.isfinite(value):
        return f"is the float {value}, which a file cannot contain: write it as NonFinite('{value}')"
    if kind is str and str in rule.kinds and not is_unicode(value):
        return f"is {reprlib.repr(value)}, with a lone surrogate, which a file cannot contain"
    fits = kind in rule.kinds
    if fits and kind is int:
        fits = rule.lowest <= value <= INT64_MAX
    if fits and kind is str and rule.literals:
        fits = value in rule.literals
    if fits:
        return ""
    of_type = "" if kind in (int, NoneType, bool, str, float) else f" of type {kind.__name__}"
    return f"is {reprlib.repr(value)}{of_type}; expected {rule.expected}"


# Checking few nodes at a time keeps them in the processor's cache.
_CHUNK: Final = 512
_VOUCHED: Final = "_vouched"
_FIELDS: Final = {kind: field for field, kind in KINDS.items()}
_SLOTLESS: Final = tuple(field for field in KINDS if field != _FIELDS[DATA])


def check(graph: Graph) -> None:
    """Raise for the first broken rule.

    Raises:
        GraphError: an input, view base or saved origin names no node, names an output that the node does not have,
            or comes after its consumer; an id is empty or has an unprintable character.
    """
    found = index_by_id(list(graph.nodes.values()))
    if found is None or not all(map(eq, graph.nodes, found)):
        raise GraphError(shorten(next(problems(graph))))


def check_all(graph: Graph) -> None:
    """Raise an error for the first invalid field, or else for the first broken rule.

    Raises:
        GraphError: see `check`; a field has a value that a file could not return; a scope's key is not its path.
    """
    if _VOUCHED not in graph.__dict__:
        _check_records(graph)
        check(graph)
        mark_valid(graph)


def mark_valid(graph: Graph) -> None:
    """Record that `check_all` passes, since a graph cannot change."""
    graph.__dict__[_VOUCHED] = True


def _check_records(graph: Graph) -> None:
    lists = (field.name for field in fields_of(Head) if is_list(field))
    for name, wanted in {"nodes": FrozenDict, "scopes": FrozenDict, **dict.fromkeys(lists, tuple)}.items():
        value = getattr(graph, name)
        if type(value) is not wanted:
            expected = "dict" if wanted is FrozenDict else "tuple"
            raise GraphError(f"the {name} of the graph are of type {type(value).__name__}; expected {expected}")
    found: tuple[tuple[type, list[Any]], ...] = (Node, [*graph.nodes.values()]), (Scope, [*graph.scopes.values()])
    for kind, records in found:
        for start in range(0, len(records), _CHUNK):
            chunk = records[start : start + _CHUNK]
            if not are_valid(chunk, kind):
                _raise_first_fault(chunk, kind, start)
    for field in fields_of(Head):
        if not _all_follow((getattr(graph, field.name),), rule_of(Head, field.name)):
            _raise_field_fault(graph, field)
    for path, scope in graph.scopes.items():
        if path != scope.path:
            raise GraphError(f"scope {scope.path!r} is stored under the path {path!r}")


def _raise_first_fault(records: Sequence[object], kind: type, start: int) -> None:
    for number, record in enumerate(records, start):
        name = f"{kind.__name__.lower()} {number}"
        if type(record) is Node:
            name = f"node {record.id!r}"
        elif type(record) is Scope:
            name = f"scope {record.path!r}"
        _raise_fault(name, record, _Rule(frozenset({kind}), f"a {kind.__name__}"))


def _raise_fault(name: str, value: object, rule: _Rule) -> None:
    if fault := fault_in(value, rule, ""):
        raise GraphError(f"{name}: {fault}")


def _raise_field_fault(graph: Graph, field: Field) -> None:
    value, rule = getattr(graph, field.name), rule_of(Head, field.name)
    values = {f"the {field.key}": value}
    if is_list(field):
        rule = rule.entries or rule
        values = {f"{noun(field)} {number}": entry for number, entry in enumerate(value)}
    for name, each in values.items():
        _raise_fault(name, each, rule)


def index_by_id(nodes: Sequence[Node]) -> dict[str, Node] | None:
    """Return nodes by their ids; ``None`` if they break a rule."""
    seen: dict[str, Node] = {}
    later: list[str] = []
    # Few nodes have such an edge, so one test for all nodes is faster.
    slotless = [field for field in _SLOTLESS if list(map(attrgetter(field), nodes)).count(None) < len(nodes)]
    for node in nodes:
        for ref in node.inputs:
            if ref is not None and (
                ref.id not in seen or (ref.output_nr and not _has_output(seen[ref.id], ref.output_nr))
            ):
                return None
        for field in slotless:
            if getattr(node, field) is not None and any(_wrong_edges(node, seen, seen)):
                return None
        for saved in node.saved:
            origin = saved.origin
            # A saved tensor may come from a later node.
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
        field = f"input {edge.input_nr}" if edge.input_nr >= 0 else f"its {_FIELDS[edge.kind]}"
        start = f"node {node.id!r}: {field} names"
        if edge.src not in nodes:
            yield f"{start} {edge.src!r}, which is not a node"
        elif edge.src not in seen:
            yield f"{start} {edge.src!r}, which comes after it (a cycle, or not in topological order)"
        elif edge.output_nr and not _has_output(nodes[edge.src], edge.output_nr):
            yield f"{start} output {edge.output_nr} of {edge.src!r}, which has no such output"


def _has_output(node: Node, output_nr: int) -> bool:
    # A front-end records no outputs if it does not know them.
    return output_nr >= 0 and (not node.outputs or output_nr < len(node.outputs))
