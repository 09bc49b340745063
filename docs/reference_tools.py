"""What docs/build_reference.py writes of commands and plug-ins: the declarations that the command line itself uses."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gradir import entrypoints, registry
from gradir.cli.main import COMMANDS, command_parser
from gradir.cli.parser import Parser, filled
from gradir.options import Options, option_infos
from gradir.pictures import PICTURES

__all__ = ["commands_page", "plugins_page"]

COMMANDS_HEAD: Final = """\
# Reference of the commands

Every command with all its options, written by `make reference` from what `gradir help COMMAND` prints. What the
commands are for: [using gradir](using.md#on-the-command-line); what an exit status means:
[there](using.md#exit-status).
"""

PLUGINS_HEAD: Final = """\
# Reference of exporters, passes and renderers

Every plug-in that gradir brings, with all its options, written by `make reference` from the records that check what
they are given. `gradir exporters` lists those that are installed, other people's too; [plugins.md](plugins.md) says how
one is written.
"""

_WIDTH: Final = 78

_EXPORTERS: Final = """\
What `gradir export --to NAME` and `gradir.export(graph, "NAME")` write. An option is given as `-O key=value`, and in
Python as a keyword.
"""
_RENDERERS: Final = """\
What `gradir diff --format NAME` and `diff.to("NAME")` write.
"""
_PASSES: Final = """\
What is done to a graph before it is written, in this order: [passes.md](passes.md) has an example of each. On the
command line an option is a word of its own, such as `--depth 2`.
"""
_FRONTENDS: Final = """\
What captures a graph, chosen by what it is given, or by `--frontend NAME`.
"""


def commands_page() -> str:
    """Every command and subcommand."""
    sections = [COMMANDS_HEAD]
    for name in COMMANDS:
        parser = command_parser(name)
        # Has the options and help texts added that are loaded late.
        parser.format_help()
        sections += _command(parser)
    return "\n".join(sections)


def plugins_page() -> str:
    """Every exporter, renderer, pass and front-end of gradir's own."""
    sections = [PLUGINS_HEAD, "## Exporters\n", _EXPORTERS]
    for name in _own("gradir.exporters"):
        sections += _plugin(registry.exporter(name), name, f", `{registry.exporter(name).suffix}`")
    drawn = f"`{'`, `'.join(PICTURES)}` are pictures. They take the options of [dot](#dot), and `pdf` needs Graphviz.\n"
    sections += [drawn, "## Passes\n", _PASSES]
    for name, found in registry.passes().items():
        if name in _own("gradir.passes"):
            sections += _plugin(found, name, "", spelled=lambda option: f"--{option.replace('_', '-')}")
    sections += ["## Renderers\n", _RENDERERS]
    for name in _own("gradir.renderers"):
        renderer = registry.renderer(name)
        sections += _plugin(renderer, f"diff-{name}", f", `{renderer.suffix}`", title=f"diff as {name}")
    sections += ["## Front-ends\n", _FRONTENDS, "| Name | Takes |\n|---|---|"]
    sections += [f"| `{name}` | {_cell(registry.frontend.kind(name).takes)} |" for name in _own("gradir.frontends")]
    return "\n".join([*sections, ""])


def _own(group: str) -> list[str]:
    """The names that gradir registers itself."""
    return sorted(point.name for point in entrypoints.entry_points(group) if point.value.startswith("gradir"))


def _plugin(found: Any, name: str, suffix: str, *, title: str = "", spelled: Any = str) -> Iterator[str]:
    """A heading, what it makes, and its options."""
    told = (inspect.getdoc(type(found)) or "").partition("\n")[0]
    yield f"### {title or name}\n"
    yield f"{_plain(told)}{suffix and f' Its files end in {suffix[2:]}.'}\n"
    yield from _options(found.options, spelled)


def _options(kind: type[Options], spelled: Any) -> Iterator[str]:
    infos = option_infos(kind)
    if not infos:
        return
    yield "| Option | Takes | Default | |\n|---|---|---|---|"
    for info in infos:
        default = "required" if info.default is None else f"`{info.default}`" if info.default else "empty"
        yield f"| `{spelled(info.name)}` | {_taken(info.takes)} | {default} | {_cell(info.help)} |"
    yield ""


def _taken(takes: str) -> str:
    return " ".join(f"`{word}`" for word in takes.split("|"))


def _command(parser: Parser) -> Iterator[str]:
    """A command: what it does, its arguments and options, its examples and what else there is to say."""
    yield f"{'#' * len(parser.prog.split())} {parser.prog}\n"
    if parser.description:
        yield f"{_plain(parser.description)}\n"
    below = []
    for group in parser.ordered_groups():
        yield from _group(parser, group)
        # argparse tells of these by private names only.
        commands = [each for each in group._group_actions if isinstance(each, argparse._SubParsersAction)]  # noqa: SLF001
        below += [choice for each in commands for choice in each.choices.values()]
    if ending := parser.ending(whole=True):
        yield _indented(ending)
    for each in below:
        yield from _command(each)


def _group(parser: argparse.ArgumentParser, group: argparse._ArgumentGroup) -> Iterator[str]:
    """The options of a group as a table."""
    told = [
        action
        for action in group._group_actions  # noqa: SLF001
        if not isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
        and action.help != argparse.SUPPRESS
        and "--help" not in action.option_strings
    ]
    if not told:
        return
    if group.title != "arguments":
        yield f"**{(group.title or '').capitalize()}**\n"
    if group.description:
        yield f"{_plain(group.description)}\n"
    yield "| | |\n|---|---|"
    yield from (_row(parser, action) for action in told)
    yield ""


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    names = (", " if action.option_strings else " or ").join(f"`{word}`" for word in _words(action))
    told = parser._get_formatter()._expand_help(action) if action.help else ""  # noqa: SLF001
    return f"| {names} | {_cell(told)} |"


def _words(action: argparse.Action) -> Sequence[str]:
    """The option as it is given, with what it takes."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ()) or choices
    if not action.option_strings:
        return (metavar or action.dest).split("|")
    takes = "" if action.nargs == 0 else f" {metavar or action.dest.upper()}"
    return [*action.option_strings[:-1], f"{action.option_strings[-1]}{takes}"]


def _indented(text: str) -> str:
    """A help text as it stands, with lines that a page has room for."""
    return f"```text\n{filled(text, _WIDTH)}```\n"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("<", "&lt;")


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|").replace("*", "\\*")
