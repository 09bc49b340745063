"""Check the values of records: exactly those that reading a file returns.

Records are created unchecked, for speed. All values of a field are checked at once, and one by one after an error.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any, Final, NamedTuple

from msgspec import inspect

from gradir.ir.fields import fields_of
from gradir.ir.frozen import FrozenDict
from gradir.ir.model import MOST, Record
from gradir.ir.text import is_unicode

_NONE: Final = "None"


class _Rule(NamedTuple):
    """The values of a field: exactly these types, since a subclass would not be read back as itself."""

    kinds: frozenset[type]
    expected: str
    lowest: int = 0
    entries: _Rule | None = None
    words: frozenset[str] = frozenset()


class Fault(NamedTuple):
    """An invalid value of a field, and its place in the record."""

    place: str
    problem: str


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
            rule = _either([*map(_rule, kind.types)])
        case inspect.VarTupleType():
            entries = _rule(kind.item_type)
            is_of_one_kind = len(entries.kinds - {NoneType}) == 1
            expected = f"a tuple of {entries.expected.removeprefix('a ')}" if is_of_one_kind else "a tuple"
            rule = _Rule(frozenset({tuple}), expected, entries=entries)
        case inspect.LiteralType():
            words = frozenset(map(str, kind.values))
            rule = _Rule(frozenset({str}), " or ".join(map(repr, kind.values)), words=words)
        case inspect.IntType():
            lowest = -MOST - 1 if kind.ge is None else kind.ge
            expected = "an integer of 64 bits" if lowest else "an integer from 0 to 2**63 - 1"
            rule = _Rule(frozenset({int}), expected, lowest=lowest)
        case inspect.StructType():
            rule = _Rule(frozenset({kind.cls}), f"a {kind.cls.__name__}")
        case inspect.DictType():
            rule = _Rule(frozenset({FrozenDict}), "a dict", entries=_rule(kind.value_type))
        case _:
            rule = _PLAIN[type(kind)]
    return rule


def _either(rules: Sequence[_Rule]) -> _Rule:
    *most, last = sorted((rule.expected for rule in rules), key=lambda words: (words == _NONE, words == "a tuple"))
    return _Rule(
        frozenset().union(*(rule.kinds for rule in rules)),
        f"{', '.join(most)} or {last}",
        lowest=min(rule.lowest for rule in rules),
        entries=next((rule.entries for rule in rules if rule.entries), None),
        words=frozenset().union(*(rule.words for rule in rules)),
    )


def sound(records: Sequence[Any], kind: type) -> bool:
    """Return whether all values are records of a type with valid fields.

    >>> from gradir.ir.model import TensorMeta
    >>> sound([TensorMeta("float32", ("batch", 3))], TensorMeta), sound([TensorMeta("float32", (-1, 3))], TensorMeta)
    (True, False)
    """
    return _all_keep(records, _Rule(frozenset({kind}), ""))


def has_sound(record: Record, kind: type[Record], field: str) -> bool:
    """Return whether a field's value is valid."""
    return _all_keep((getattr(record, field),), rule_of(kind, field))


def _all_keep(values: Sequence[Any], rule: _Rule) -> bool:
    """Check the values of a field in all records at once, which is faster than one record at a time."""
    kinds = set(map(type, values))
    if not kinds <= rule.kinds:
        return False
    for kind in kinds:
        if kind is NoneType or kind is bool:
            continue
        these = values if len(kinds) == 1 else [value for value in values if type(value) is kind]
        if not _keep(these, kind, rule):
            return False
    return True


def _keep(values: Sequence[Any], kind: type, rule: _Rule) -> bool:
    if kind is str:
        texts = set(values)
        # Encoding one joined text is faster than many.
        return is_unicode("".join(texts)) and (not rule.words or texts <= rule.words)
    if kind is int:
        return bool(rule.lowest <= min(values) and max(values) <= MOST)
    if kind is float:
        return all(map(math.isfinite, values))
    if kind is tuple and rule.entries:
        return _all_keep([entry for value in values if value for entry in value], rule.entries)
    if kind is FrozenDict and rule.entries:
        full = [value for value in values if value]
        keys = [key for value in full for key in value]
        return _all_keep(keys, _TEXT) and _all_keep([entry for value in full for entry in value.values()], rule.entries)
    return all(_all_keep(list(map(attrgetter(name), values)), field) for name, field in _fields(kind).items())


def first_fault(record: object, kind: type) -> Fault | None:
    """Return the first invalid value of a record."""
    return fault_in(record, _Rule(frozenset({kind}), f"a {kind.__name__}"), "")


def fault_in(value: Any, rule: _Rule, place: str) -> Fault | None:
    """Return the first place in a value that breaks a rule."""
    # The recursion is as deep as the declarations, and not as the data.
    problem = _problem(value, rule)
    if problem:
        return Fault(place, problem)
    return next((found for part in _parts(value, rule, place) if (found := fault_in(*part))), None)


def _parts(value: Any, rule: _Rule, place: str) -> Iterator[tuple[Any, _Rule, str]]:
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
        return f"is the float {value}, which a file cannot hold: write it as NonFinite('{value}')"
    if kind is str and str in rule.kinds and not is_unicode(value):
        return f"is {reprlib.repr(value)}, with a lone surrogate, which a file cannot hold"
    fits = kind in rule.kinds
    if fits and kind is int:
        fits = rule.lowest <= value <= MOST
    if fits and kind is str and rule.words:
        fits = value in rule.words
    if fits:
        return ""
    made_of = "" if kind in (int, NoneType, bool, str, float) else f" of type {kind.__name__}"
    return f"is {reprlib.repr(value)}{made_of}; expected {rule.expected}"
