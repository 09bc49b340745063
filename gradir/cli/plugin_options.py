"""The options of plug-ins on a command line: of an exporter or a renderer by ``-O``, of passes each by its own word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gradir.errors import ExportError, PassError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from gradir.cli.parser import Parser
    from gradir.ir import Graph
    from gradir.protocols import Options

__all__ = ["add_option", "add_pass_options", "chosen_passes", "given_options", "option_lines"]

_ABOUT: Final = """\
Run in the order listed. A PATTERN is a node's id or name, the path of a module, or a glob over these.
"""

_NUMBERS: Final = {"integer": int, "number": float}


def add_option(parser: argparse.ArgumentParser, noun: str) -> None:
    """Add ``-O``, by which a kind of plug-in is given its options."""
    parser.add_argument(
        "-O", "--option", metavar="KEY=VALUE", action="append", default=[], help=f"an option of the {noun}"
    )


def given_options(options: argparse.Namespace) -> dict[str, object]:
    """The values of ``-O``.

    Raises:
        ExportError: one is no KEY=VALUE.
    """
    return dict(map(_key_value, options.option))


def option_lines(kind: type[Options]) -> list[str]:
    """One line for each option: what it takes, what it does, its default."""
    from gradir.options import option_infos

    lines = []
    for name, takes, help_text, default in option_infos(kind):
        about = "required" if default is None else f"default: {default}"
        lines.append(f"{name}={takes}  {f'{help_text} ({about})'.lstrip()}")
    return lines


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ExportError(f"-O {text!r}: expected KEY=VALUE")
    return key.replace("-", "_"), value


def add_pass_options(parser: Parser) -> None:
    """Let a parser know the options of the installed passes, once it meets an option that it does not know."""
    group = parser.add_argument_group("what to show", _ABOUT)
    parser.add_later(lambda: _add_options(group))


def _add_options(group: argparse._ArgumentGroup) -> None:
    from gradir import registry
    from gradir.options import option_infos, option_schemas

    for each in registry.passes().values():
        schemas = option_schemas(each.options)
        for name, _, about, default in option_infos(each.options):
            text = about if default is None else f"{about} (default: {default})"
            # The default of argparse is none, which says that the option was not given.
            group.add_argument(_spelled(name), default=None, help=text.replace("%", "%%"), **_taken(schemas[name]))


def _taken(schema: Mapping[str, Any]) -> dict[str, Any]:
    """How an option with this schema is written on a command line."""
    if schema.get("type") == "boolean":
        return {"action": "store_true"}
    if "prefixItems" in schema:
        return {"nargs": len(schema["prefixItems"]), "metavar": tuple(map(_metavar, schema["prefixItems"]))}
    if schema.get("type") == "array":
        return {"action": "append", "metavar": _metavar(schema.get("items", {}))}
    number = _NUMBERS.get(str(schema.get("type")))
    return {"metavar": _metavar(schema), **({} if number is None else {"type": number})}


def _metavar(schema: Mapping[str, Any]) -> str:
    return str(schema.get("title", "VALUE"))


def chosen_passes(options: argparse.Namespace) -> Callable[[Graph], Graph]:
    """What runs the passes that the options ask for, once they are known to make sense.

    Raises:
        PassError: an option has a value that it does not take.
    """
    if not options.parser.is_complete:
        # No option of a pass was given. Imported when there is something to do: a plain export should start fast.
        return lambda graph: graph
    from gradir.plan import applied, option_names, planned

    steps = planned({name: getattr(options, name) for name in option_names()})

    def run(graph: Graph) -> Graph:
        try:
            return applied(steps, graph, _spelled)
        except PassError as error:
            raise PassError(f"{options.file}: {error}") from error

    return run


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"
