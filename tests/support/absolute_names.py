"""The inverse of `gradir.review.relative_changes`, which shows that nothing is lost of what a module sees."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gradir.diffs.changes import Change, FieldChange
from gradir.ir import Ref
from gradir.ir.ids import numbered
from gradir.review.relative_changes import RelativeChanges, RelativeName


def absolute_name(name: RelativeName, path: str) -> str:
    """The name as it is, for the module at ``path``: ``absolute_name(relative_name(path, name), path) == name``."""
    if name.above == -1:
        return name.rest
    if not name.above:
        return f"{path}{name.rest}"
    parts = path.rsplit(".", name.above)
    common = f"{parts[0]}." if len(parts) > name.above else ""
    if not name.step:
        return f"{common[:-1]}{name.rest}"
    list_, index = numbered(parts[-name.above]) or ("", 0)
    return f"{common}{list_}{index + name.step}{name.rest}"


def made_absolute(changes: RelativeChanges, path: str) -> tuple[Change, ...]:
    """The changes that the module at ``path`` sees so."""
    return tuple(
        replace(
            change.rest,
            id=absolute_name(change.id, path),
            scope=absolute_name(change.scope, path),
            was=absolute_name(change.was, path),
            fields=tuple(
                FieldChange(at, _value_in(before, path), _value_in(after, path)) for at, before, after in change.fields
            ),
        )
        for change in changes
    )


def _value_in(seen: Any, path: str) -> Any:
    if seen.name is None:
        return seen.value
    name = absolute_name(seen.name, path)
    return name if seen.value is None else Ref(name, seen.value)
