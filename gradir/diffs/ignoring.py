"""Drop the changes from a diff that its reader wants to ignore."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.changes import ADDED_OR_REMOVED, Change, Diff, FieldChange
from gradir.diffs.field_changes import fits, head_fields, names_any, record_fields
from gradir.errors import GradirError, did_you_mean
from gradir.ir import Cut, Graph, Node, Ref, Saved, Scope
from gradir.ir.edges import move_edges
from gradir.ir.head import rename_in_head
from gradir.ir.ids import storage_key
from gradir.vocabulary import Vocabulary, vocabulary_of

# The names beside fields that a pattern can match: all changes of scopes or cuts, another order, shifted indices.
WHOLE: Final = ("scopes", "cuts", "order", "indices", "sequence")
# The fields that differ between releases of a framework although the program is the same.
_CHURN: Final = ("native", "source", "ext", "order", "indices")
# The fields that have no common form in two frameworks.
_BY_FRAMEWORK: Final = ("source", "ext", "order", "indices")
# The state of a saved slot that capture could not read.
_UNREAD: Final = "unread"


def ignore_fields(diff: Diff, patterns: Sequence[str]) -> Diff:
    """Return the diff without the fields that the patterns match, and without changes that are empty then.

    A pattern is the path of a field or the beginning of a path, such as ``attrs`` or ``saved.mat1.bytes``, with ``*``
    for any text. It can also be ``scopes``, ``cuts``, ``order``, ``indices`` or ``sequence``. The `Diff.script` does
    not change.

    Raises:
        GradirError: a pattern matches no field.
    """
    if not patterns:
        return diff
    check_names(patterns)
    whole = {name for name in WHOLE if any(fits(name, pattern) for pattern in patterns)}
    changes = tuple(
        change
        for change in diff.changes
        if f"{change.subject}s" not in whole and (change.subject != "graph" or change.id not in whole)
    )
    return _filter_fields(
        replace(diff, changes=changes),
        lambda change: [field for field in change.fields if not names_any((*patterns,), field.name)],
    )


def normalize_diff(diff: Diff, vocabulary: Vocabulary | None = None) -> Diff:
    """Return the diff without the differences between releases of the framework.

    The result has no framework names, source lines, ``ext``, sizes in attributes and order. Synonyms of operations and
    other spellings of module descriptions are equal. A saved slot or attribute that one release does not expose equals
    any. Settings of the program count, such as the ``eps`` of a norm. Call `drop_identities` on both graphs before.
    """
    vocabulary = vocabulary_of() if vocabulary is None else vocabulary
    diff = ignore_fields(diff, (*_CHURN, *vocabulary.incidental))
    # Each slot has two names of its node, since a storage may have either.
    unread = {
        storage_key(name, str(field.path[1]))
        for change in diff.changes
        for field in change.fields
        if field.path[0] == "saved" and len(field.path) > 1 and _is_unread(field)
        for name in (change.old_id or change.id, change.id)
    }
    return _filter_fields(diff, lambda change: [*_significant_fields(change, vocabulary, unread)])


def drop_framework_details(diff: Diff, before: Mapping[str, Node], after: Mapping[str, Node]) -> Diff:
    """Return the diff without source lines, order, and values that only one of two frameworks records."""

    def keep(field: FieldChange) -> bool:
        is_half_known = any(value is UNSET or value is None for value in (field.before, field.after))
        return field.path[0] != "native" and not (field.path[0] in ("out", "attrs") and is_half_known)

    def filter_fields(change: Change) -> Sequence[FieldChange]:
        if change.kind in ADDED_OR_REMOVED:
            return change.fields
        fields = [*filter(keep, change.fields)]
        old, new = before.get(change.old_id or change.id), after.get(change.id)
        # Another operation is also shown by its framework names, unless they are the shared ones.
        is_other = any(field.path == ("op",) for field in fields)
        if is_other and old and new and (old.native, new.native) != (old.op, new.op):
            fields.append(FieldChange(("native",), old.native, new.native))
        return fields

    return _filter_fields(ignore_fields(diff, _BY_FRAMEWORK), filter_fields)


def check_names(patterns: Sequence[str]) -> None:
    """Check that each pattern can match a field.

    Raises:
        GradirError: a pattern cannot; the message suggests a similar name.
    """
    fields = [*(field for kind in (Node, Scope, Cut) for field in record_fields(kind)), *head_fields()]
    known = (*dict.fromkeys(field.key for field in fields), *WHOLE)
    for given in patterns:
        name = re.split(r"[.\[]", given, maxsplit=1)[0]
        if not any(fits(field, name) for field in known):
            raise GradirError(f"cannot ignore {given!r}{did_you_mean(name, known)}: choose from {', '.join(known)}")


def _filter_fields(diff: Diff, filter_fields: Callable[[Change], Sequence[FieldChange]]) -> Diff:
    """Return the diff with filtered fields, and without the changes that are empty then."""
    changes = []
    for change in diff.changes:
        fields = tuple(filter_fields(change))
        if fields or not change.fields or change.kind != "changed":
            changes.append(change if fields == change.fields else replace(change, fields=fields))
    return replace(diff, changes=tuple(changes))


def _significant_fields(change: Change, vocabulary: Vocabulary, unread: AbstractSet[str]) -> Iterator[FieldChange]:
    """Yield the fields that releases do not change by themselves; ``unread`` slots may share a storage."""
    fields = change.fields
    slots = {field.path[:-1] for field in fields if field.path[-1] == "state" and _is_unread(field)}
    is_synonym = any(field.path == ("op",) and _are_synonyms(field, vocabulary) for field in fields)
    unsettled, unexposed = vocabulary.unsettled.get(change.label, ()), vocabulary.unexposed.get(change.label, ())
    for field in fields:
        is_half_known = UNSET in (field.before, field.after)
        by_release = (
            (field.path[:-1] in slots and (is_half_known or field.path[-1] == "state"))
            or _is_unread(field)
            or _are_synonyms(field, vocabulary)
            or (is_synonym and field.path[0] == "kinds")
            or names_any(unsettled, field.name)
            or (is_half_known and names_any(unexposed, field.name))
            or (field.path[-1] == "storage" and not unread.isdisjoint((field.before, field.after)))
        )
        if not by_release:
            yield field


def _is_unread(field: FieldChange) -> bool:
    """Return whether a saved slot, or a field of it, differs since capture could not read it on one side."""
    values = (field.before, field.after)
    return field.path[0] == "saved" and any(
        value == _UNREAD if field.path[-1] == "state" else isinstance(value, Saved) and value.state == _UNREAD
        for value in values
    )


def _are_synonyms(field: FieldChange, vocabulary: Vocabulary) -> bool:
    if not (isinstance(field.before, str) and isinstance(field.after, str)):
        return False
    if field.path == ("detail",):
        return vocabulary.describe_the_same(field.before, field.after)
    return field.path == ("op",) and vocabulary.are_same(field.before, field.after)


def drop_identities(graph: Graph) -> Graph:
    """Return the graph without operations that return their input, which only some releases record."""
    # The consumers of such an operation read its input instead.
    names = vocabulary_of(graph).identities
    inputs: dict[str, Ref] = {}
    for node in graph.nodes.values():
        source = node.inputs[0] if node.op in names and len(node.inputs) == 1 else None
        if source is not None and _is_identity(node, source, graph.nodes):
            inputs[node.id] = inputs.get(source.id, source)
    if not inputs:
        return graph

    def move_origin(slot: Saved) -> Saved:
        origin = slot.origin and inputs.get(slot.origin.id)
        return replace(slot, origin=origin) if origin else slot

    nodes = {
        node.id: replace(
            node, saved=tuple(map(move_origin, node.saved)), **move_edges(node, lambda ref, _: inputs.get(ref.id, ref))
        )
        for node in graph.nodes.values()
        if node.id not in inputs
    }
    head = rename_in_head(graph, lambda name: inputs[name].id if name in inputs else name)
    return replace(graph, nodes=nodes, **head)


def _is_identity(node: Node, source: Ref, nodes: Mapping[str, Node]) -> bool:
    outputs = nodes[source.id].outputs
    if len(node.outputs) != 1 or source.output_nr >= len(outputs):
        return False
    shape = node.outputs[0].shape
    return shape is not None and None not in shape and shape == outputs[source.output_nr].shape
