"""What a new schema of the format breaks of an older one, so that the version says so.

A minor version may add definitions, and optional properties with a default. Everything else asks for a major version:
a file that some reader took would be refused, or be read as something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["breaking_changes"]

_PROSE: Final = frozenset({"$id", "description", "examples", "title"})
_COMPARED_APART: Final = frozenset({"$defs", "properties", "required"})


def breaking_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Each change that is not allowed within a major version, as one line; both are schemas with ``$defs``.

    >>> breaking_changes({"properties": {"a": {}}}, {"properties": {}})
    ['the document: property a was removed']
    >>> breaking_changes({"properties": {}}, {"properties": {"a": {"default": 0}}})
    []
    """
    changes = [*_changes_of("the document", old, new)]
    news = new.get("$defs", {})
    for name, definition in old.get("$defs", {}).items():
        changes += _changes_of(name, definition, news[name]) if name in news else [f"{name} was removed"]
    return changes


def _changes_of(owner: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if _meaning(old, _COMPARED_APART) != _meaning(new, _COMPARED_APART):
        yield f"{owner}: its type changed"
    if set(old.get("required", ())) != set(new.get("required", ())):
        yield f"{owner}: the required properties changed"
    olds, news = old.get("properties", {}), new.get("properties", {})
    for name in olds:
        if name not in news:
            yield f"{owner}: property {name} was removed"
        elif _meaning(olds[name]) != _meaning(news[name]):
            yield f"{owner}: property {name} changed"
    for name in news:
        if name not in olds and "default" not in news[name]:
            yield f"{owner}: property {name} was added without a default"


def _meaning(schema: Any, left_out: frozenset[str] = frozenset()) -> Any:
    """A schema without what is only there for people."""
    if isinstance(schema, Mapping):
        # A property may be called title or description: its name is no prose.
        return {
            key: {name: _meaning(value) for name, value in entry.items()} if key == "properties" else _meaning(entry)
            for key, entry in schema.items()
            if key not in _PROSE and key not in left_out
        }
    return [_meaning(entry) for entry in schema] if isinstance(schema, list) else schema
