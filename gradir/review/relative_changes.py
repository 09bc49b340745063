"""Changes as a module sees them: what is equal in equal modules once the module's own path is taken out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gradir.diffs.changes import Change, FieldChange
from gradir.ir import Ref, TensorMeta
from gradir.review.wording import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradir.diffs.changes import Kind, Subject
    from gradir.diffs.field_changes import Path

__all__ = ["Form", "Name", "changes_in", "form_of", "name_in", "name_seen_from", "names_a_record"]

_OWN_INDEX: Final = re.compile(r"(?:0|[1-9][0-9]{0,8})(?=\.|\Z)", re.ASCII)
_INDEX: Final = re.compile(r"(?:0|[1-9][0-9]{0,8})(?=[./]|\Z)", re.ASCII)
_BEHIND: Final = "./"
"""What can stand behind a path in a name: a component or an operation."""

_ELSEWHERE: Final = -1
_WITH_SLOT: Final = 2
"""Keys in the path of a saved slot; of slots with one name there are more."""


class Name(NamedTuple):
    """A name as a module sees it.

    ``above`` levels up from the module lies the path that the name starts with; ``rest`` is what follows it, and
    ``step`` how far the first index behind it lies from the module's own (-1 for the layer before). A name that starts
    with no path above the module is all ``rest``.
    """

    above: int
    rest: str
    step: int = 0


class _Value(NamedTuple):
    """A value of a field: ``name`` is what it calls a node or a module, else its text tells apart what is equal."""

    name: Name | None
    text: str
    value: Any


class _ChangeForm(NamedTuple):
    kind: Kind
    subject: Subject
    id: Name
    scope: Name
    what: str
    tensor: TensorMeta | None
    nodes: int
    fields: tuple[tuple[Path, _Value, _Value], ...]
    was: Name


Form = tuple[_ChangeForm, ...]
"""Changes as a module sees them. Two modules have the same changes exactly when the forms are equal."""


def form_of(changes: Iterable[Change], path: str, was: str | None = None) -> Form:
    """Changes as the module at ``path`` sees them; what the first graph says, as the module at ``was`` there.

    >>> one, other = (Change("added", "node", f"h.{n}.fc/exp:1", f"h.{n}.fc", "exp") for n in (0, 1))
    >>> form_of([one], "h.0.fc") == form_of([other], "h.1.fc")
    True
    """
    before = path if was is None else was
    return tuple([_form(change, before if change.kind == "removed" else path, before) for change in changes])


def changes_in(form: Form, path: str, was: str | None = None) -> tuple[Change, ...]:
    """What a form says of the module at ``path``: ``changes_in(form_of(changes, path), path) == changes``."""
    before = path if was is None else was
    return tuple([_change(change, before if change.kind == "removed" else path, before) for change in form])


def name_seen_from(path: str, name: str) -> Name:
    """A name as the module at ``path`` sees it.

    >>> name_seen_from("h.1.fc", "h.1.fc/exp:1"), name_seen_from("h.1.fc", "h.0/add:2")
    (Name(above=0, rest='/exp:1', step=0), Name(above=2, rest='/add:2', step=-1))
    """
    common = _common_path(path, name)
    if common == len(path):
        return Name(0, name[common:])
    at = common + 1 if common else 0
    own, other = _OWN_INDEX.match(path, at), _INDEX.match(name, at)
    if own and other and own[0] != other[0] and (not common or name[common] == "."):
        return Name(path.count(".", at) + 1, name[other.end() :], int(other[0]) - int(own[0]))
    return Name(path.count(".", common), name[common:]) if common else Name(_ELSEWHERE, name)


def name_in(name: Name, path: str) -> str:
    """The name as it is, for the module at ``path``: ``name_in(name_seen_from(path, name), path) == name``."""
    if name.above == _ELSEWHERE:
        return name.rest
    if not name.above:
        return f"{path}{name.rest}"
    parts = path.rsplit(".", name.above)
    common = f"{parts[0]}." if len(parts) > name.above else ""
    if not name.step:
        return f"{common[:-1]}{name.rest}"
    return f"{common}{int(parts[-name.above]) + name.step}{name.rest}"


def names_a_record(field: Path) -> bool:
    """Whether the values of a field are names of nodes or modules, and no other text.

    >>> names_a_record(("in", 0)), names_a_record(("saved", "mat1", "storage")), names_a_record(("detail",))
    (True, True, False)
    """
    if field[0] == "saved":
        return len(field) > _WITH_SLOT and field[-1] in {"origin", "storage"}
    return field[0] == "in" or field in {("base",), ("scope",)}


def _change(form: _ChangeForm, path: str, was: str) -> Change:
    fields = tuple(
        [FieldChange(at, _value_in(before, was), _value_in(after, path)) for at, before, after in form.fields]
    )
    return Change(
        form.kind,
        form.subject,
        name_in(form.id, path),
        name_in(form.scope, path),
        form.what,
        fields,
        name_in(form.was, was),
        form.tensor,
        form.nodes,
    )


def _form(change: Change, path: str, was: str) -> _ChangeForm:
    return _ChangeForm(
        change.kind,
        change.subject,
        name_seen_from(path, change.id),
        name_seen_from(path, change.scope),
        change.what,
        change.tensor,
        change.nodes,
        tuple([_field(field, path, was) for field in change.fields]),
        name_seen_from(was, change.was),
    )


def _field(field: FieldChange, path: str, was: str) -> tuple[Path, _Value, _Value]:
    return field.path, _seen(field, field.before, was), _seen(field, field.after, path)


def _seen(field: FieldChange, value: Any, path: str) -> _Value:
    if names_a_record(field.path):
        if isinstance(value, Ref):
            return _Value(name_seen_from(path, value.id), "", value.output_nr)
        if isinstance(value, str):
            return _Value(name_seen_from(path, value), "", None)
    return _Value(None, words(field.path, value), value)


def _value_in(seen: _Value, path: str) -> Any:
    if seen.name is None:
        return seen.value
    name = name_in(seen.name, path)
    return name if seen.value is None else Ref(name, seen.value)


def _common_path(path: str, name: str) -> int:
    """How many characters of a path are those whole components that a name starts with."""
    if name.startswith(path):
        same = len(path)
    else:
        same = next(at for at, char in enumerate(path) if at == len(name) or name[at] != char)
    ends_in_path = same == len(path) or path[same] == "."
    if ends_in_path and (same == len(name) or name[same] in _BEHIND):
        return same
    return max(path.rfind(".", 0, same), 0)
