"""Handle options of plug-ins: ``-O`` for exporters and renderers, and one option each for passes."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

from msgspec.structs import fields

from gradir.cli.parser import parse_as
from gradir.errors import ExportError, PassError
from gradir.files import name_of, prefixing
from gradir.options import option_infos, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gradir.cli.parser import Parser
    from gradir.ir import Graph
    from gradir.options import OptionInfo
    from gradir.protocols import Options
    from gradir.request import Declared

_ABOUT: Final = "applied in this order; a PATTERN is a node id or name, a module path, or a glob over these"


def add_option(group: argparse._ActionsContainer, noun: str) -> None:
    """Add ``-O``, which takes the options of a plug-in."""
    about = f"option of the {noun}; repeatable"
    group.add_argument("-O", "--option", metavar="KEY=VALUE", action="append", default=[], help=about)


def read_options(options: argparse.Namespace) -> dict[str, object]:
    """Return the values of ``-O``."""
    values: dict[str, object] = {}
    for text in options.option:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ExportError(f"-O {text!r}: expected KEY=VALUE")
        values[key.replace("-", "_")] = value
    return values


def describe_options(kind: type[Options]) -> list[str]:
    """Return a line for each option with its type, help and default."""
    lines = []
    for name, takes, help_text, default in option_infos(kind):
        about = "required" if default is None else f"default: {default}"
        lines.append(f"{name}={takes}  {f'{help_text} ({about})'.lstrip()}")
    return lines


def spell_option(name: str) -> str:
    """Return the name of an option on a command line."""
    return f"--{name.replace('_', '-')}"


def make_help(info: OptionInfo) -> str:
    """Return the help text of an option of a plug-in."""
    return (info.help if info.default is None else f"{info.help} (default: {info.default})").replace("%", "%%")


def add_pass_options(parser: Parser) -> None:
    """Add the options of the installed passes to a parser, at the first option that it does not know."""
    group = parser.group("what to show", _ABOUT)

    def add_options() -> None:
        from gradir import registry

        for each in registry.passes().values():
            for info, field in zip(option_infos(each.options), fields(each.options), strict=True):
                # The default None means that the option is not on the command line.
                settings = _make_settings(field.type)
                group.add_argument(spell_option(info.name), default=None, help=make_help(info), **settings)

    parser.add_later(add_options)


def _make_settings(type_: object) -> dict[str, Any]:
    schema = schema_of(type_)
    if schema.get("type") == "boolean":
        return {"action": "store_true"}
    if "prefixItems" in schema:
        return {"nargs": len(schema["prefixItems"]), "metavar": tuple(map(_metavar, schema["prefixItems"]))}
    if schema.get("type") == "array":
        return {"action": "append", "metavar": _metavar(schema.get("items", {}))}
    return {"metavar": _metavar(schema), "type": partial(parse_as, type_)}


def add_declared(group: argparse._ActionsContainer, each: Declared) -> None:
    """Add an option of a request, and check its value."""
    schema = schema_of(each.type)
    kinds = {str(branch.get("type")) for branch in schema.get("anyOf", [schema])}
    choices = [word for part in _walk_type(each.type) if get_origin(part) is Literal for word in get_args(part)]
    settings: dict[str, Any] = {"metavar": each.option.metavar, "type": partial(parse_as, each.type)}
    if kinds == {"boolean"} and each.default is False:
        settings = {"action": "store_true"}
    elif "boolean" in kinds:
        settings = {"action": argparse.BooleanOptionalAction}
    elif "array" in kinds:
        item = next(get_args(part)[0] for part in _walk_type(each.type) if get_origin(part) in {list, tuple})
        settings = {**settings, "type": partial(parse_as, item), "action": "append", "default": []}
    elif choices:
        settings = {"choices": choices, **({"nargs": "?", "const": each.option.alone} if each.option.alone else {})}
    group.add_argument(str(each.flag), dest=each.name, help=each.option.help, **{"default": each.default, **settings})


def _walk_type(type_: object) -> Iterator[object]:
    yield type_
    if get_origin(type_) is not Literal:
        for part in get_args(type_):
            yield from _walk_type(part)


def _metavar(schema: Mapping[str, Any]) -> str:
    return str(schema.get("title", "VALUE"))


def choose_passes(options: argparse.Namespace) -> tuple[Callable[[Graph], Graph] | None, bool]:
    """Return a function that runs the chosen passes, and whether they choose the content of a picture."""
    if not options.parser.is_complete:
        # No option is one of a pass, and an export without passes should start fast.
        return None, False
    from gradir.exporting import apply_passes, chooses, option_names, plan_passes

    values = {name: getattr(options, name) for name in option_names()}
    steps, name = plan_passes(values, strict=False), name_of(options.file)

    def run(graph: Graph) -> Graph:
        with prefixing(name, PassError):
            return apply_passes(steps, graph, spell_option)

    return run if steps else None, chooses(step.asked for step in steps)
