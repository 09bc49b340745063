"""Fill in records of options, and report invalid values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gradir.errors import did_you_mean

_Record = TypeVar("_Record", bound=msgspec.Struct)
_Schema = Mapping[str, Any]

_NONE: Final = "none"
_NULLS: Final = (_NONE, "null")
_BOUNDS: Final = {
    "minimum": "{:,} or more",
    "exclusiveMinimum": "above {:,}",
    "maximum": "{:,} or less",
    "exclusiveMaximum": "below {:,}",
}


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a plug-in's options: one field per option, with its type, its default and its help.

    >>> from typing import Annotated, Literal
    >>> class MyOptions(Options, frozen=True, kw_only=True):
    ...     direction: Annotated[Literal["TB", "LR"], msgspec.Meta(description="where the arrows point")] = "TB"
    >>> MyOptions(direction="LR").direction
    'LR'
    """


class NoOptions(Options, frozen=True, kw_only=True):
    """The options of a plug-in that has none."""


class OptionError(ValueError):
    """An option that is unknown, missing, or does not take its value."""


class OptionInfo(NamedTuple):
    """The description of an option: its name, type, help and default, which is ``None`` if required."""

    name: str
    takes: str
    help: str
    default: str | None


def option_infos(kind: type[msgspec.Struct]) -> list[OptionInfo]:
    """Return a description of every option of a record, in order.

    >>> class Mine(msgspec.Struct, kw_only=True):
    ...     ops: list[str]
    ...     shapes: bool = True
    ...     depth: int | None = None
    >>> for info in option_infos(Mine):
    ...     print(info.name, info.takes, info.default)
    ops string,... None
    shapes true|false true
    depth integer none
    """
    return [
        OptionInfo(
            field.name,
            _takes(schema_of(field.type)),
            schema_of(field.type).get("description", ""),
            None if field.required else _format_value(_default_of(field)),
        )
        for field in msgspec.structs.fields(kind)
    ]


def expect_sound(kind: type[msgspec.Struct], reserved: Collection[str]) -> None:
    """Raise TypeError for a record with an option that nobody can pass, or that refuses its own default.

    >>> class Mine(msgspec.Struct, kw_only=True):
    ...     scale: float = "abc"
    >>> expect_sound(Mine, ())
    Traceback (most recent call last):
    TypeError: its option scale is number, and its default is 'abc'
    """
    try:
        fields = _fields(kind)
    except Exception as error:
        raise TypeError(f"its options cannot be read: {type(error).__name__}: {error}") from error
    for name, field in fields.items():
        schema = schema_of(field.type)
        if name in reserved:
            raise TypeError(f"its option {name} has the name of an argument of the function that takes the options")
        if _holds_objects(schema):
            raise TypeError(f"its option {name} has a type with keys and values, which no option can take")
        if not field.required:
            default = _default_of(field)
            try:
                msgspec.convert(default, field.type)
            except msgspec.ValidationError as error:
                raise TypeError(
                    f"its option {name} is {_describe_type(schema)}, and its default is {default!r}"
                ) from error


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the options of a record by name, cached since msgspec is slow."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


def fill_options(kind: type[_Record], values: Mapping[str, object], owner: str, *, strict: bool = True) -> _Record:
    """Return a record with values. Unless ``strict``, parse texts: commas separate a list, and ``none`` is None.

    >>> class Mine(msgspec.Struct, kw_only=True):
    ...     sizes: tuple[int, ...] = ()
    >>> fill_options(Mine, {"sizes": "1,2"}, "mine", strict=False)
    Mine(sizes=(1, 2))
    >>> fill_options(Mine, {"sizes": (1, "b")}, "mine")
    Traceback (most recent call last):
    gradir.options.OptionError: mine: option sizes: expected integer,..., not (1, 'b')
    """
    fields = _fields(kind)
    for name in values:
        if name not in fields:
            choices = f"its options are {', '.join(fields)}" if fields else "it has no options"
            raise OptionError(f"{owner} has no option {name!r}{did_you_mean(name, fields)}: {choices}")
    for name, field in fields.items():
        if field.required and name not in values:
            raise OptionError(f"{owner}: option {name} has to be given: it is {_takes(schema_of(field.type))}")
    given = {
        fields[name].encode_name: value if strict else _read(schema_of(fields[name].type), value)
        for name, value in values.items()
    }
    try:
        return msgspec.convert(given, kind, strict=strict)
    except msgspec.ValidationError as error:
        # msgspec names the path of a wrong value, such as `$.sizes[0]`.
        path = re.search(r"\$\.([^.\[`]+)", str(error))
        wrong = [field for name, field in fields.items() if path and path[1] == field.encode_name and name in values]
        problem = str(error).replace("`", "'")
        if wrong:
            expected = _describe_type(schema_of(wrong[0].type))
            problem = f"option {wrong[0].name}: expected {expected}, not {values[wrong[0].name]!r}"
        raise OptionError(f"{owner}: {problem}") from error


def expect(type_: object, value: object) -> object:
    """Convert a value to an option's type, or raise if it is invalid.

    >>> expect(int | None, 7)
    7
    """
    return _convert(type_, value, value, strict=True)


def read(type_: object, text: str) -> object:
    """Parse a text as a value of an option's type.

    >>> read(int | None, "7")
    7
    """
    return _convert(type_, _read(schema_of(type_), text), text, strict=False)


def _convert(type_: object, value: object, given: object, *, strict: bool) -> object:
    try:
        return msgspec.convert(value, type_, strict=strict)
    except msgspec.ValidationError as error:
        raise OptionError(f"expected {_describe_type(schema_of(type_))}, not {given!r}") from error


def _read(schema: _Schema, value: object) -> object:
    """Return a text as a list or None if the type needs one, else unchanged."""
    if not isinstance(value, str):
        return value
    branches = _branches(schema)
    kinds = {branch.get("type") for branch in branches}
    if "string" in kinds or any(value in branch.get("enum", ()) for branch in branches):
        return value
    if "null" in kinds and value.lower() in _NULLS:
        return None
    if "array" in kinds:
        return [item.strip() for item in value.split(",")] if value else []
    return value


def schema_of(type_: object) -> _Schema:
    """Return the JSON Schema of an option's type, or an empty one."""
    try:
        schema = msgspec.json.schema(type_)
    except (TypeError, RuntimeError):
        # JSON lacks the type, so only Python can pass such a value.
        return {}
    definitions: Mapping[str, _Schema] = schema.get("$defs", {})

    # An option's choices are at the top level or in the branches of a union, so resolve references there.
    def resolve(part: _Schema) -> dict[str, Any]:
        return {**definitions.get(str(part.get("$ref", "")).rpartition("/")[2], {}), **part}

    found = resolve(schema)
    return {**found, "anyOf": [*map(resolve, found["anyOf"])]} if "anyOf" in found else found


def _branches(schema: _Schema) -> Sequence[Any]:
    return [*schema.get("anyOf", [schema])]


def _holds_objects(schema: _Schema) -> bool:
    for branch in _branches(schema):
        # The items of a tuple of a fixed length are false.
        inside = [*branch.get("prefixItems", ()), branch.get("items") or {}]
        if branch.get("type") == "object" or any(part and _holds_objects(part) for part in inside):
            return True
    return False


def _describe_type(schema: _Schema) -> str:
    """Describe the values of an option, with the bounds of the first branch that has some."""
    for branch in _branches(schema):
        least, most = branch.get("minimum"), branch.get("maximum")
        bounds = [words.format(branch[key]) for key, words in _BOUNDS.items() if key in branch]
        if bounds:
            both = f"{least:,} to {most:,}" if least is not None and most is not None else " and ".join(bounds)
            return f"{_takes(schema)}, {both}"
    return _takes(schema)


def _takes(schema: _Schema) -> str:
    branches = [branch for branch in _branches(schema) if branch.get("type") != "null"]
    return "|".join(words for branch in branches for words in _words(branch))


def _words(schema: _Schema) -> list[str]:
    if "enum" in schema:
        return [str(word) for word in schema["enum"]]
    kind = schema.get("type", "value")
    if kind == "boolean":
        return ["true", "false"]
    if kind != "array":
        return [str(kind)]
    if "prefixItems" in schema:
        return [",".join(map(_takes, schema["prefixItems"]))]
    return [f"{_takes(schema.get('items', {}))},..."]


def _default_of(field: Any) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _format_value(value: object) -> str:
    if value is None:
        return _NONE
    try:
        plain = msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, (list, tuple)):
        return ",".join(map(_format_value, plain)) or "empty"
    return str(plain) if plain != "" else "empty"
