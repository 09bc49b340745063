"""The settings of what came, went or became another operation, without those that are so unless somebody sets them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gradir.diffs.changes import UNSET, FieldChange
from gradir.diffs.ignoring import names_field
from gradir.diffs.sequences import matched
from gradir.ir import Node, Scope
from gradir.ir.text import value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.diffs.field_changes import Path
    from gradir.ir import AttrValue, Cut
    from gradir.vocabulary import Vocabulary

_PART: Final = re.compile(r"(?:\([^()]*\)|\[[^\[\]]*\]|[^,])+")
"""One part of a description; a comma within brackets ends none."""

_OBJECT: Final = re.compile(r"<.*>", re.DOTALL)
_UNLESS_TOLD: Final = "false"
_ANY: Final = "*"


def setting_changes(
    old: Node | Scope | Cut | None, new: Node | Scope | Cut | None, words: Vocabulary
) -> list[FieldChange]:
    """The settings that differ between two records, of which one may be missing.

    Attributes that are null, false, sizes or at their default say nothing; `Vocabulary.defaults` knows the others.

    >>> from gradir.vocabulary import Vocabulary
    >>> words = Vocabulary(defaults={"alpha": "1"})
    >>> setting_changes(None, Node("mul:1", op="mul", attrs={"other": 0.5, "alpha": 1}), words)
    [FieldChange(path=('attrs', 'other'), before=UNSET, after=0.5)]
    >>> setting_changes(Scope("drop", detail="p=0.1, inplace=False"), None, words)
    [FieldChange(path=('detail',), before='p=0.1', after=UNSET)]
    """
    found = [{} if record is None else dict(_settings(record, words)) for record in (old, new)]
    return [
        FieldChange(path, UNSET if before is None else before[0], UNSET if after is None else after[0])
        for path, before, after in matched(*found)
        if repr(before) != repr(after)
    ]


def _settings(record: Node | Scope | Cut, words: Vocabulary) -> Iterator[tuple[Path, tuple[AttrValue]]]:
    """The settings of a record, each in a tuple of its own, since a value may be anything."""
    if isinstance(record, Node):
        for name in sorted(record.attrs):
            value = record.attrs[name]
            if _is_short(value) and _says(name, value_text(value), words) and not _follows(words, name):
                yield ("attrs", name), (value,)
    elif isinstance(record, Scope):
        parts = [part.strip() for part in _PART.findall(record.detail)]
        named = [(part, *part.partition("=")) for part in parts]
        said = ", ".join(part for part, name, mark, value in named if not mark or _says(name, value, words))
        if said:
            yield ("detail",), (said,)


def _is_short(value: AttrValue) -> bool:
    """Whether a value is one number or text, or a list of such: not nested, nor an object that a file cannot hold."""
    if isinstance(value, tuple):
        return not any(isinstance(each, tuple) for each in value)
    return value is not None and not (isinstance(value, str) and _OBJECT.fullmatch(value))


def _says(name: str, value: str, words: Vocabulary) -> bool:
    default = words.defaults.get(name, _UNLESS_TOLD)
    # A number for each dimension, all of which are the same, is that number.
    values = {each.strip() for each in value.lower().strip("()[]").split(",")} - {""}
    return default != _ANY and values not in ({default}, {"null"})


def _follows(words: Vocabulary, name: str) -> bool:
    return _names_a_size((*words.incidental, *words.sizes), f"attrs.{name}")


@lru_cache
def _names_a_size(patterns: tuple[str, ...], name: str) -> bool:
    return any(names_field(pattern, name) for pattern in patterns)
