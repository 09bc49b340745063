"""Leave out of a diff what its reader does not care for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec.structs import replace

from gradir.diffs.changes import CAME, UNSET, Change, Diff, FieldChange
from gradir.diffs.field_changes import fits, head_fields, names_field, record_fields
from gradir.errors import GradirError, did_you_mean
from gradir.ir import Cut, Graph, Node, Ref, Saved, Scope
from gradir.ir.edges import rewired
from gradir.ir.head import renamed_head
from gradir.ir.ids import storage_key
from gradir.vocabulary import Vocabulary, vocabulary_of

# What a pattern can name beside fields: all changes of scopes or cuts, another order, shifted indices.
WHOLE: Final = ("scopes", "cuts", "order", "indices", "sequence")
# What differs between releases of a framework although the program is the same.
_CHURN: Final = ("native", "source", "ext", "order", "indices")
# What two frameworks tell in ways of their own.
_BESIDE: Final = ("source", "ext", "order", "indices")
# The state of a saved slot of which nothing is known, so that it may be any.
_UNREAD: Final = "unread"


def ignoring(diff: Diff, patterns: Sequence[str]) -> Diff:
    """Return the diff without the fields that the patterns name, and without changes that are empty then.

    A pattern is the path of a field or a beginning of it (``source``, ``attrs``, ``attrs.eps``, ``saved.mat1.bytes``),
    with ``*`` for any text, or one of ``scopes``, ``cuts``, ``order``, ``indices`` and ``sequence``. The `Diff.script`
    stays whole.

    Raises:
        GradirError: a pattern names no field.
    """
    check_names(patterns)
    whole = {name for name in WHOLE if any(fits(name, pattern) for pattern in patterns)}
    changes = tuple(
        change
        for change in diff.changes
        if f"{change.subject}s" not in whole and (change.subject != "graph" or change.id not in whole)
    )

    def kept(change: Change) -> list[FieldChange]:
        return [field for field in change.fields if not any(names_field(each, field.name) for each in patterns)]

    return _with_fields(replace(diff, changes=changes), kept) if patterns else diff


def normalized(diff: Diff, words: Vocabulary | None = None) -> Diff:
    """Return the diff without what another release of the framework changes by itself.

    Left out are the framework's own names, source lines, ``ext``, sizes in attributes, the order, what another release
    writes into the description of a module, and an operation that became one which does the same. What one release does
    not let be read, as a saved slot or an attribute, matches any. What a program sets counts, as the ``eps`` of a norm.
    Call `without_identities` on both graphs before.
    """
    words = vocabulary_of() if words is None else words
    diff = ignoring(diff, (*_CHURN, *words.incidental))
    unread = {storage_key(name, slot) for change in diff.changes for name, slot in _unread_slots(change)}
    return _with_fields(diff, lambda change: [*_significant_fields(change, words, unread)])


def across(diff: Diff, before: Mapping[str, Node], after: Mapping[str, Node]) -> Diff:
    """Return the diff without source lines and order, and without what only one of two frameworks records."""

    def kept(change: Change) -> Sequence[FieldChange]:
        if change.kind in CAME:
            return change.fields
        fields = []
        for field in change.fields:
            is_half_known = any(value is UNSET or value is None for value in (field.before, field.after))
            if field.path[0] != "native" and not (field.path[0] in ("out", "attrs") and is_half_known):
                fields.append(field)
        old, new = before.get(change.was or change.id), after.get(change.id)
        # An operation that became another also has what each framework calls it, if that is not just the word for it.
        is_other = any(field.path == ("op",) for field in fields)
        if is_other and old and new and (old.native, new.native) != (old.op, new.op):
            fields.append(FieldChange(("native",), old.native, new.native))
        return fields

    return _with_fields(ignoring(diff, _BESIDE), kept)


def check_names(patterns: Sequence[str]) -> None:
    """Check that each pattern names a field.

    Raises:
        GradirError: the first that does not, with what it may have meant.
    """
    fields = [*(field for kind in (Node, Scope, Cut) for field in record_fields(kind)), *head_fields()]
    known = (*dict.fromkeys(field.key for field in fields), *WHOLE)
    for given in patterns:
        name = re.split(r"[.\[]", given, maxsplit=1)[0]
        if not any(fits(field, name) for field in known):
            raise GradirError(f"cannot ignore {given!r}{did_you_mean(name, known)}: choose from {', '.join(known)}")


def _with_fields(diff: Diff, kept: Callable[[Change], Sequence[FieldChange]]) -> Diff:
    """Return the diff with these fields of its changes, and without the changes that are empty then."""
    changes = []
    for change in diff.changes:
        fields = tuple(kept(change))
        if fields or not change.fields or change.kind != "changed":
            changes.append(change if fields == change.fields else replace(change, fields=fields))
    return replace(diff, changes=tuple(changes))


def _significant_fields(change: Change, words: Vocabulary, unread: AbstractSet[str]) -> Iterator[FieldChange]:
    """Yield the fields that say more than a release does by itself; ``unread`` slots may share a storage."""
    fields = change.fields
    slots = {field.path[:-1] for field in fields if field.path[-1] == "state" and _is_unread(field)}
    is_other_word = any(field.path == ("op",) and _says_the_same(field, words) for field in fields)
    unsettled, unexposed = words.unsettled.get(change.what, ()), words.unexposed.get(change.what, ())
    for field in fields:
        known = field.before is not UNSET and field.after is not UNSET and field.path[-1] != "state"
        if (field.path[:-1] in slots and not known) or _is_unread(field) or _says_the_same(field, words):
            continue
        if (is_other_word and field.path[0] == "kinds") or any(names_field(each, field.name) for each in unsettled):
            continue
        if UNSET in (field.before, field.after) and any(names_field(each, field.name) for each in unexposed):
            continue
        if field.path[-1] != "storage" or unread.isdisjoint((field.before, field.after)):
            yield field


def _unread_slots(change: Change) -> Iterator[tuple[str, str]]:
    """Yield the saved slots of a node that one side does not let be read, by both names of the node."""
    for field in change.fields:
        if field.path[0] == "saved" and len(field.path) > 1 and _is_unread(field):
            yield from ((name, str(field.path[1])) for name in (change.was or change.id, change.id))


def _is_unread(field: FieldChange) -> bool:
    """Return whether a saved slot, or a field of it, differs since one side does not let it be read."""
    values = (field.before, field.after)
    return field.path[0] == "saved" and any(
        value == _UNREAD if field.path[-1] == "state" else isinstance(value, Saved) and value.state == _UNREAD
        for value in values
    )


def _says_the_same(field: FieldChange, words: Vocabulary) -> bool:
    if not (isinstance(field.before, str) and isinstance(field.after, str)):
        return False
    if field.path == ("detail",):
        return words.describe_the_same(field.before, field.after)
    return field.path == ("op",) and words.are_same(field.before, field.after)


def without_identities(graph: Graph) -> Graph:
    """Return the graph without operations that return their input, which only some releases record."""
    # What read such an operation reads its input. A graph that has none is returned as it is.
    names = vocabulary_of(graph).identities
    instead: dict[str, Ref] = {}
    for node in graph.nodes.values():
        source = node.inputs[0] if node.op in names and len(node.inputs) == 1 else None
        if source is not None and _is_same(node, source, graph.nodes):
            instead[node.id] = instead.get(source.id, source)
    if not instead:
        return graph

    def slot(saved: Saved) -> Saved:
        origin = saved.origin and instead.get(saved.origin.id)
        return replace(saved, origin=origin) if origin else saved

    nodes = {
        node.id: replace(
            node, saved=tuple(map(slot, node.saved)), **rewired(node, lambda ref, _: instead.get(ref.id, ref))
        )
        for node in graph.nodes.values()
        if node.id not in instead
    }
    head = renamed_head(graph, lambda name: instead[name].id if name in instead else name)
    return replace(graph, nodes=nodes, **head)


def _is_same(node: Node, source: Ref, nodes: Mapping[str, Node]) -> bool:
    outputs = nodes[source.id].outputs
    if len(node.outputs) != 1 or source.output_nr >= len(outputs):
        return False
    shape = node.outputs[0].shape
    return shape is not None and None not in shape and shape == outputs[source.output_nr].shape
