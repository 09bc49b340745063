"""Compare two graphs, matching nodes by id, scopes by path and cuts by parameter, in linear time."""

from __future__ import annotations

import operator
import re
from collections import Counter
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from gradir.diff.model import Change, Diff, FieldChange
from gradir.gcpause import paused_gc
from gradir.ir.text import quoted, ref_text, size_text, value_text, word
from gradir.ir.totals import totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Literal

    from gradir.ir import AttrValue, Cut, Graph, Node, Ref, Saved, Scope, Source, TensorMeta

    Kind = Literal["added", "removed", "changed"]

__all__ = ["CUT_FIELDS", "NODE_FIELDS", "SCOPE_FIELDS", "compare"]

T = TypeVar("T")

_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_TYPED_FIELDS: Final = frozenset({"attrs", "ext"})
"""The fields with values that can be equal and yet differ in type."""


class _Part(NamedTuple):
    """One part of a field as text, with what is compared one by one where it has several values."""

    text: str
    values: Mapping[str, str] = {}


def compare(a: Graph, b: Graph) -> Diff:
    """What changed from ``a`` to ``b``. The producers are not compared: what made a graph is no part of it.

    >>> from gradir.ir import Graph, Node
    >>> diff = compare(Graph.of([Node("exp:1", op="exp")]), Graph.of([Node("exp:1", op="exp", attrs={"dim": 1})]))
    >>> diff.changes[0].fields
    (FieldChange(path='attrs.dim', before=None, after='1'),)
    """
    cuts_a, cuts_b = _cuts_by_key(a.cuts), _cuts_by_key(b.cuts)
    changes = chain(
        _changes(a.scopes, b.scopes, operator.eq, SCOPE_FIELDS, _scope_change),
        _changes(cuts_a, cuts_b, operator.eq, CUT_FIELDS, _cut_change),
        _changes(a.nodes, b.nodes, _same_node, NODE_FIELDS, _node_change),
        _order_changes(nodes=(a.nodes, b.nodes), scopes=(a.scopes, b.scopes), cuts=(cuts_a, cuts_b)),
    )
    with paused_gc():
        return Diff(totals(a), totals(b), tuple(changes))


def _changes(
    before: Mapping[str, T],
    after: Mapping[str, T],
    same: Callable[[T, T], bool],
    fields: _Fields,
    change: Callable[[Kind, T, tuple[FieldChange, ...]], Change],
) -> Iterator[Change]:
    for _, old, new in _matched(before, after):
        if old is None and new is not None:
            yield change("added", new, ())
        elif new is None and old is not None:
            yield change("removed", old, ())
        elif old is not None and new is not None and not same(old, new):
            found = tuple(_field_changes(old, new, fields))
            if found:
                yield change("changed", new, found)


def _matched(before: Mapping[str, T], after: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    """Each key with both its values, in the order of ``after``; what it lacks stands where it stood in ``before``."""
    removed: dict[str | None, list[str]] = {}
    previous = None
    for key in before:
        if key in after:
            previous = key
        else:
            removed.setdefault(previous, []).append(key)
    for key in removed.get(None, ()):
        yield key, before[key], None
    for key, value in after.items():
        yield key, before.get(key), value
        for gone in removed.get(key, ()):
            yield gone, before[gone], None


def _out_of_place(before: Iterable[str], after: Iterable[str]) -> tuple[str, str] | None:
    """The first two keys that differ when only common keys are kept."""
    keys_before, keys_after = dict.fromkeys(before), dict.fromkeys(after)
    kept = zip(filter(keys_after.__contains__, keys_before), filter(keys_before.__contains__, keys_after), strict=True)
    return next(((old, new) for old, new in kept if old != new), None)


def _order_changes(**sides: tuple[Iterable[str], Iterable[str]]) -> Iterator[Change]:
    """One change for all that moved: in canonical order a node moves because an edge changed, which says so itself."""
    found = [(name, _out_of_place(*orders)) for name, orders in sides.items()]
    fields = tuple(FieldChange(name, *map(word, pair)) for name, pair in found if pair is not None)
    if fields:
        yield Change("changed", "graph", "order", fields=fields)


def _same_node(old: Node, new: Node) -> bool:
    """Whether two nodes are certainly equal: values of attributes in type too (``1``, ``1.0`` and ``true`` are not)."""
    if old != new:
        return False
    return not (old.attrs or old.ext) or (repr(old.attrs) == repr(new.attrs) and repr(old.ext) == repr(new.ext))


def _field_changes(old: object, new: object, fields: _Fields) -> Iterator[FieldChange]:
    for field, describe in fields.items():
        was, becomes = getattr(old, field), getattr(new, field)
        if was != becomes or field in _TYPED_FIELDS:
            yield from _part_changes(describe(was), describe(becomes))


def _part_changes(old: Mapping[str, _Part], new: Mapping[str, _Part]) -> Iterator[FieldChange]:
    for path, before, after in _matched(old, new):
        if before is None or after is None:
            yield FieldChange(path, before.text if before else None, after.text if after else None)
        elif not before.values and before.text != after.text:
            yield FieldChange(path, before.text, after.text)
        else:
            for name, was, becomes in _matched(before.values, after.values):
                if was != becomes:
                    yield FieldChange(f"{path}.{name}", was, becomes)
    if _out_of_place(old, new):
        # Only saved slots can: everything else is numbered, sorted or alone.
        yield FieldChange("saved", *(_listed(path.removeprefix("saved.") for path in parts) for parts in (old, new)))


def _cuts_by_key(cuts: Sequence[Cut]) -> dict[str, Cut]:
    return dict(zip(_numbered(word(_cut_name(cut)) for cut in cuts), cuts, strict=True))


def _cut_name(cut: Cut) -> str:
    return cut.names[0] if cut.names else cut.kind


def _numbered(words: Iterable[str]) -> Iterator[str]:
    """Each word, followed by ``#2``, ``#3`` … where it repeats; no word holds ``#`` unless it is quoted."""
    seen: Counter[str] = Counter()
    for text in words:
        seen[text] += 1
        yield text if seen[text] == 1 else f"{text}#{seen[text]}"


def _scope_change(kind: Kind, scope: Scope, fields: tuple[FieldChange, ...]) -> Change:
    summary = word(scope.class_name) if scope.class_name else ""
    return Change(kind, "scope", scope.path, scope.path, summary, fields)


def _cut_change(kind: Kind, cut: Cut, fields: tuple[FieldChange, ...]) -> Change:
    tensor = "" if cut.tensor is None else f" {_tensor(cut.tensor).text}"
    return Change(kind, "cut", _cut_name(cut), cut.scope, f"{word(cut.kind)}{tensor}", fields)


def _node_change(kind: Kind, node: Node, fields: tuple[FieldChange, ...]) -> Change:
    tensor = f" {_tensor(node.outputs[0]).text}" if node.outputs else ""
    return Change(kind, "node", node.id, node.scope, f"{word(node.op or node.role)}{tensor}", fields)


def _name_parts(path: str, text: str | None) -> Mapping[str, _Part]:
    return {path: _Part(word(text))} if text else {}


def _names_parts(names: tuple[str, ...]) -> Mapping[str, _Part]:
    return {"names": _Part(_listed(map(word, names)))} if names else {}


def _count_parts(path: str, count: int) -> Mapping[str, _Part]:
    return {path: _Part(str(count))}


def _flag_parts(path: str, flag: bool) -> Mapping[str, _Part]:
    return {path: _Part("true")} if flag else {}


def _optional_flag_parts(path: str, flag: bool | None) -> Mapping[str, _Part]:
    return {} if flag is None else {path: _Part(str(flag).lower())}


def _input_parts(inputs: tuple[Ref | None, ...]) -> Mapping[str, _Part]:
    return {f"in[{slot}]": _Part("-" if ref is None else ref_text(ref)) for slot, ref in enumerate(inputs)}


def _output_parts(outputs: tuple[TensorMeta, ...]) -> Mapping[str, _Part]:
    return {f"out[{nr}]": _tensor(tensor) for nr, tensor in enumerate(outputs)}


def _value_parts(path: str, values: Mapping[str, AttrValue]) -> Mapping[str, _Part]:
    return {f"{path}.{_key(key)}": _Part(value_text(values[key])) for key in sorted(values)}


def _saved_parts(slots: tuple[Saved, ...]) -> Mapping[str, _Part]:
    paths = _numbered(f"saved.{_key(saved.slot)}" for saved in slots)
    return dict(zip(paths, map(_saved, slots), strict=True))


def _tensor_parts(tensor: TensorMeta | None) -> Mapping[str, _Part]:
    return {} if tensor is None else {"tensor": _tensor(tensor)}


def _source_parts(source: Source | None) -> Mapping[str, _Part]:
    if source is None:
        return {}
    function = f" {word(source.function)}" if source.function else ""
    return {"source": _Part(f"{word(source.file)}:{source.line}{function}")}


_Fields = dict[str, "Callable[[Any], Mapping[str, _Part]]"]

SCOPE_FIELDS: Final[_Fields] = {
    "class_name": partial(_name_parts, "class"),
    "detail": partial(_name_parts, "detail"),
    **{field: partial(_count_parts, field) for field in ("calls", "own", "total", "trainable")},
    "training": partial(_optional_flag_parts, "training"),
}
CUT_FIELDS: Final[_Fields] = {
    "kind": partial(_name_parts, "kind"),
    "names": _names_parts,
    "scope": partial(_name_parts, "scope"),
    "tensor": _tensor_parts,
}
NODE_FIELDS: Final[_Fields] = {
    **{field: partial(_name_parts, field) for field in ("role", "op", "native", "scope")},
    "names": _names_parts,
    "inputs": _input_parts,
    "outputs": _output_parts,
    "attrs": partial(_value_parts, "attrs"),
    "saved": _saved_parts,
    "base": partial(_name_parts, "base"),
    "opaque": partial(_flag_parts, "opaque"),
    "source": _source_parts,
    "ext": partial(_value_parts, "ext"),
}


def _tensor(tensor: TensorMeta) -> _Part:
    values = {}
    if tensor.dtype is not None:
        values["dtype"] = word(tensor.dtype)
    if tensor.shape is not None:
        values["shape"] = _listed(map(size_text, tensor.shape))
    text = f"{values.get('dtype', '?')}{values.get('shape', '[?]')}"
    return _Part(text, {**values, "device": word(tensor.device), "layout": word(tensor.layout)})


def _saved(saved: Saved) -> _Part:
    tensor = _tensor(saved.tensor)
    values = {name: tensor.values[name] for name in ("dtype", "shape") if name in tensor.values}
    if saved.bytes is not None:
        values["bytes"] = str(saved.bytes)
    if saved.origin is not None:
        values["origin"] = ref_text(saved.origin)
    if saved.storage:
        values["storage"] = word(saved.storage)
    values["state"] = word(saved.state)
    size = "" if saved.bytes is None else f" {saved.bytes} bytes"
    return _Part(f"{tensor.text}{size}", values)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _key(text: str) -> str:
    return text if _KEY.fullmatch(text) else quoted(text)
