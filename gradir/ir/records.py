"""What the fields of the records may hold: exactly what comes back when a file is read.

A record is made without a look at its values, which keeps that fast. They are looked at here, all values of a field at
once, as long as nothing is wrong; only then one by one, for the first that is.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Sequence
from operator import attrgetter
from types import NoneType
from typing import Any, Final, NamedTuple

from gradir.ir.model import Cut, Node, NonFinite, Producer, Ref, Saved, Scope, Source, TensorMeta

__all__ = ["ATTRIBUTES", "Fault", "fault_in", "first_fault", "sound"]

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class _Rule(NamedTuple):
    """What a field holds: values of these very types, since a subclass would not come back as itself."""

    kinds: frozenset[type]
    expected: str
    lowest: int = 0
    entries: _Rule | None = None
    words: frozenset[str] = frozenset()


class Fault(NamedTuple):
    """A value that a field must not hold, and where in the record it is."""

    place: str
    problem: str


def _rule(expected: str, *kinds: type, **more: Any) -> _Rule:
    return _Rule(frozenset(kinds), expected, **more)


def _listed(expected: str, entries: _Rule, *others: type) -> _Rule:
    return _rule(expected, tuple, *others, entries=entries)


_TEXT: Final = _rule("text", str)
_TEXT_OR_NONE: Final = _rule("text or None", str, NoneType)
_BOOL: Final = _rule("True or False", bool)
_COUNT: Final = _rule("an integer from 0 to 2**63 - 1", int)
_SIZE: Final = _rule("an integer from 0 to 2**63 - 1, or text for a size that is not known, such as 'batch'", int, str)
_SHAPE: Final = _listed("a tuple of sizes, or None", _SIZE, NoneType)
_NAMES: Final = _listed("a tuple of text", _TEXT)

_ATTRIBUTE_WORDS: Final = "None, a bool, an integer of 64 bits, a float, text or NonFinite"
_SCALARS: Final = (NoneType, bool, int, float, str, NonFinite)
_SCALAR: Final = _rule(_ATTRIBUTE_WORDS, *_SCALARS, lowest=_LOWEST)
_ROW: Final = _rule(f"{_ATTRIBUTE_WORDS}, or a tuple of such", *_SCALARS, tuple, lowest=_LOWEST, entries=_SCALAR)
_ATTRIBUTE: Final = _rule(
    f"{_ATTRIBUTE_WORDS}, or a tuple of such or of such tuples", *_SCALARS, tuple, lowest=_LOWEST, entries=_ROW
)
ATTRIBUTES: Final = _rule("a dict", dict, entries=_ATTRIBUTE)
"""The rule of attributes by name."""

_FIELDS: Final[dict[type, dict[str, _Rule]]] = {
    NonFinite: {"float": _rule("'nan', 'inf' or '-inf'", str, words=frozenset({"nan", "inf", "-inf"}))},
    TensorMeta: {"dtype": _TEXT_OR_NONE, "shape": _SHAPE, "device": _TEXT, "layout": _TEXT},
    Ref: {"id": _TEXT, "output_nr": _COUNT},
    Source: {"file": _TEXT, "line": _COUNT, "function": _TEXT},
    Saved: {
        "slot": _TEXT,
        "dtype": _TEXT_OR_NONE,
        "shape": _SHAPE,
        "bytes": _rule("an integer from 0 to 2**63 - 1, or None", int, NoneType),
        "origin": _rule("a Ref or None", Ref, NoneType),
        "storage": _TEXT,
        "state": _TEXT,
    },
    Node: {
        "id": _TEXT,
        "role": _TEXT,
        "op": _TEXT,
        "native": _TEXT,
        "scope": _TEXT,
        "names": _NAMES,
        "inputs": _listed("a tuple of Ref or None", _rule("a Ref or None", Ref, NoneType)),
        "outputs": _listed("a tuple of TensorMeta", _rule("a TensorMeta", TensorMeta)),
        "attrs": ATTRIBUTES,
        "saved": _listed("a tuple of Saved", _rule("a Saved", Saved)),
        "base": _TEXT_OR_NONE,
        "opaque": _BOOL,
        "source": _rule("a Source or None", Source, NoneType),
        "ext": ATTRIBUTES,
    },
    Scope: {
        "path": _TEXT,
        "class_name": _TEXT,
        "detail": _TEXT,
        "calls": _COUNT,
        "own": _COUNT,
        "total": _COUNT,
        "trainable": _COUNT,
        "training": _rule("True, False or None", bool, NoneType),
    },
    Cut: {
        "kind": _TEXT,
        "names": _NAMES,
        "scope": _TEXT,
        "tensor": _rule("a TensorMeta or None", TensorMeta, NoneType),
    },
    Producer: {"gradir": _TEXT, "framework": _TEXT, "framework_version": _TEXT, "options": ATTRIBUTES},
}


def sound(records: Sequence[Any], kind: type) -> bool:
    """Whether all are records of that kind whose fields hold what they may.

    >>> sound([TensorMeta("float32", ("batch", 3))], TensorMeta), sound([TensorMeta("float32", (-1, 3))], TensorMeta)
    (True, False)
    """
    return _all_keep(records, _rule("", kind))


def _all_keep(values: Sequence[Any], rule: _Rule) -> bool:
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
    """Whether values of one kind keep a rule that allows the kind."""
    if kind is str:
        texts = set(values)
        return _is_unicode("".join(texts)) and (not rule.words or texts <= rule.words)
    if kind is int:
        return bool(rule.lowest <= min(values) and max(values) <= _HIGHEST)
    if kind is float:
        return all(map(math.isfinite, values))
    if kind is tuple and rule.entries:
        return _all_keep([entry for value in values if value for entry in value], rule.entries)
    if kind is dict and rule.entries:
        full = [value for value in values if value]
        keys = [key for value in full for key in value]
        return _all_keep(keys, _TEXT) and _all_keep([entry for value in full for entry in value.values()], rule.entries)
    return all(_all_keep(list(map(attrgetter(name), values)), field) for name, field in _FIELDS[kind].items())


def first_fault(record: object, kind: type) -> Fault | None:
    """The first value of a record that its field must not hold.

    >>> first_fault(TensorMeta("float32", (-1, 3)), TensorMeta).place
    'shape[0]'
    """
    return fault_in(record, _rule(f"a {kind.__name__}", kind), "")


def fault_in(value: Any, rule: _Rule, place: str) -> Fault | None:
    """The first place in a value where the rule is broken."""
    problem = _problem(value, rule)
    if problem:
        return Fault(place, problem)
    return next((found for part in _parts(value, rule, place) if (found := fault_in(*part))), None)


def _parts(value: Any, rule: _Rule, place: str) -> Iterator[tuple[Any, _Rule, str]]:
    kind = type(value)
    if kind in _FIELDS:
        prefix = place and f"{place}."
        yield from ((getattr(value, name), field, prefix + name) for name, field in _FIELDS[kind].items())
    elif kind is dict and rule.entries:
        for key, entry in value.items():
            yield key, _TEXT, f"a key of {place}"
            yield entry, rule.entries, f"{place}[{reprlib.repr(key)}]"
    elif kind is tuple and rule.entries:
        yield from ((entry, rule.entries, f"{place}[{number}]") for number, entry in enumerate(value))


def _problem(value: Any, rule: _Rule) -> str:
    """What is wrong with the value itself, apart from what is in it."""
    kind = type(value)
    if kind is float and float in rule.kinds and not math.isfinite(value):
        return f"is the float {value}, which a file cannot hold: write it as NonFinite('{value}')"
    if kind is str and str in rule.kinds and not _is_unicode(value):
        return f"is {reprlib.repr(value)}, with a lone surrogate, which a file cannot hold"
    fits = kind in rule.kinds
    if fits and kind is int:
        fits = rule.lowest <= value <= _HIGHEST
    if fits and kind is str and rule.words:
        fits = value in rule.words
    if fits:
        return ""
    made_of = "" if kind in (int, NoneType, bool, str, float) else f" of type {kind.__name__}"
    return f"is {reprlib.repr(value)}{made_of}; expected {rule.expected}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
