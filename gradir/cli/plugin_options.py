"""Handle options of plug-ins: ``-O`` for exporters and renderers, and one option each for passes."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

from gradir.errors import ExportError, PassError
from gradir.files import name_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from gradir.cli.parser import Parser
    from gradir.ir import Graph
    from gradir.options import OptionInfo
    from gradir.protocols import Options
    from gradir.request import Declared

_ABOUT: Final = "in this order; a PATTERN is a node id or name, a module path, or a glob over these"

_NUMBERS: Final = {"integer": int, "number": float}


def add_option(group: argparse._ActionsContainer, noun: str) -> None:
    """Add ``-O``, by which a kind of plug-in is given its options."""
    group.add_argument(
        "-O", "--option", metavar="KEY=VALUE", action="append", default=[], help=f"option of the {noun}; repeatable"
    )


def given_options(options: argparse.Namespace) -> dict[str, object]:
    """Return the values of ``-O``."""
    values: dict[str, object] = {}
    for text in options.option:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ExportError(f"-O {text!r}: expected KEY=VALUE")
        values[key.replace("-", "_")] = value
    return values


def option_lines(kind: type[Options]) -> list[str]:
    """Return a line for each option with its type, help and default."""
    from gradir.options import option_infos

    lines = []
    for name, takes, help_text, default in option_infos(kind):
        about = "required" if default is None else f"default: {default}"
        lines.append(f"{name}={takes}  {f'{help_text} ({about})'.lstrip()}")
    return lines


def spelled(name: str) -> str:
    """Return the name of an option on a command line."""
    return f"--{name.replace('_', '-')}"


def help_of(info: OptionInfo) -> str:
    """Return the help text of such an option."""
    return (info.help if info.default is None else f"{info.help} (default: {info.default})").replace("%", "%%")


def add_pass_options(parser: Parser) -> None:
    """Let a parser know the options of the installed passes, once it meets an option that it does not know."""
    group = parser.group("what to show", _ABOUT)

    def add_options() -> None:
        from gradir import registry
        from gradir.options import option_infos, option_schemas

        for each in registry.passes().values():
            schemas = option_schemas(each.options)
            for info in option_infos(each.options):
                # The default of argparse is none, which says that the option was not given.
                group.add_argument(spelled(info.name), default=None, help=help_of(info), **_taken(schemas[info.name]))

    parser.add_later(add_options)


def _taken(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "boolean":
        return {"action": "store_true"}
    if "prefixItems" in schema:
        return {"nargs": len(schema["prefixItems"]), "metavar": tuple(map(_metavar, schema["prefixItems"]))}
    if schema.get("type") == "array":
        return {"action": "append", "metavar": _metavar(schema.get("items", {}))}
    number = _NUMBERS.get(str(schema.get("type")))
    return {"metavar": _metavar(schema), **({} if number is None else {"type": number})}


def add_declared(group: argparse._ActionsContainer, each: Declared) -> None:
    """Add an option of a request, whose value is checked as it is read."""
    from gradir.options import OptionError, read, schema_of

    def value(type_: object, text: str) -> object:
        try:
            return read(type_, text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    schema = schema_of(each.type)
    kinds = {str(branch.get("type")) for branch in schema.get("anyOf", [schema])}
    choices = [word for part in _parts(each.type) if get_origin(part) is Literal for word in get_args(part)]
    taken: dict[str, Any] = {"metavar": each.option.metavar, "type": partial(value, each.type)}
    if kinds == {"boolean"} and each.default is False:
        taken = {"action": "store_true"}
    elif "boolean" in kinds:
        taken = {"action": argparse.BooleanOptionalAction}
    elif "array" in kinds:
        of = next(get_args(part)[0] for part in _parts(each.type) if get_origin(part) in {list, tuple})
        taken = {**taken, "type": partial(value, of), "action": "append", "default": []}
    elif choices:
        taken = {"choices": choices, **({"nargs": "?", "const": each.option.alone} if each.option.alone else {})}
    group.add_argument(str(each.flag), dest=each.name, help=each.option.help, **{"default": each.default, **taken})


def _parts(type_: object) -> Iterator[object]:
    yield type_
    if get_origin(type_) is not Literal:
        for part in get_args(type_):
            yield from _parts(part)


def _metavar(schema: Mapping[str, Any]) -> str:
    return str(schema.get("title", "VALUE"))


def chosen_passes(options: argparse.Namespace) -> tuple[Callable[[Graph], Graph] | None, bool]:
    """Return a function that runs the chosen passes, if any, and whether they choose what a picture draws."""
    if not options.parser.is_complete:
        # No option of a pass was given. Imported when there is something to do: a plain export should start fast.
        return None, False
    from gradir.exporting import applied, chooses, option_names, planned

    values = {name: getattr(options, name) for name in option_names()}
    steps, name = planned(values), name_of(options.file)

    def run(graph: Graph) -> Graph:
        try:
            return applied(steps, graph, spelled)
        except PassError as error:
            raise PassError(f"{name}: {error}") from error

    return run if steps else None, chooses(step.asked for step in steps)
