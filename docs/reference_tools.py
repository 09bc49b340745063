"""What docs/build_reference.py writes of commands and plug-ins: the declarations that the command line itself uses."""

from __future__ import annotations

import argparse
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final

from gradir import entrypoints, registry
from gradir.cli.main import COMMANDS, make_parser
from gradir.cli.parser import Parser
from gradir.options import Options, option_infos
from gradir.pictures import PICTURES

__all__ = ["commands_page", "plugins_page"]

COMMANDS_HEAD: Final = """\
# Reference of the commands

Every command with its options. `gradir help COMMAND` has examples and the details, and [Using
gradir](using.md#on-the-command-line) the [exit status](using.md#exit-status).
"""

PLUGINS_HEAD: Final = """\
# Reference of exporters, passes and renderers

Every plug-in of gradir with its options. `gradir exporters` also lists those of other packages, and
[plugins.md](plugins.md) explains how to write one.
"""

_COMMON: Final = """\
## Options of several commands

A GRAPH is a .gir or .pt2 file, '-' (standard input), REVISION:FILE, or a program such as train.py:loss. A PATTERN is a
node id or name, a module path, or a glob over these. Passes run in the order of [passes.md](passes.md).
"""
_EMPTY: Final = "| | |\n|---|---|"
_TABLE: Final = "| Option | Default | |\n|---|---|---|"
_SEVERAL: Final = f"""\
## Options of several plug-ins

An option without values takes `true` or `false`.

{_TABLE}
"""

_EXPORTERS: Final = """\
Choose one with `gradir export --to NAME` or `gradir.export(graph, "NAME")`. Pass an option as `-O key=value`, in
Python as a keyword.
"""
_RENDERERS: Final = """\
Choose one with `gradir diff --format NAME` or `diff.to("NAME")`.
"""
_PASSES: Final = """\
Passes change a graph before an exporter writes it, in this order. Each is an [option of
commands](reference-commands.md#what-to-show), and [passes.md](passes.md) has an example.
"""
_FRONTENDS: Final = """\
gradir chooses one by the captured object, or use `--frontend NAME`.
"""


def commands_page() -> str:
    """Every command and subcommand, and the options of several once."""
    parsers = []
    for name in COMMANDS:
        parsers.append(make_parser(name))
        # Has the options and help texts added that are loaded late.
        parsers[-1].format_help()
    every = [parser for one in parsers for parser in (one, *_find_subcommands(one))]
    rows = Counter(row for parser in every for group in parser.sort_groups() for row in set(_rows(parser, group)))
    common: dict[str, set[str]] = defaultdict(set)
    for parser in every:
        for group in parser.sort_groups():
            of_several = {
                row for row in _rows(parser, group) if rows[row] > 1 and row.startswith(("| `--", "| `-o", "| `-O"))
            }
            common[f"{group.title}"] |= of_several - set().union(*common.values())
    tables = [
        f"### {title}\n\n{_EMPTY}\n" + "\n".join(sorted(found)) + "\n" for title, found in common.items() if found
    ]
    return "\n".join(
        [COMMANDS_HEAD, _COMMON, *tables, *(line for parser in every for line in _command(parser, common))]
    )


def plugins_page() -> str:
    """Every exporter, renderer, pass and front-end of gradir's own, with the options of several once."""
    exporters: list[tuple[str, Any]] = [(name, registry.exporter(name)) for name in _own("gradir.exporters")]
    renderers: list[tuple[str, Any]] = [(name, registry.renderer(name)) for name in _own("gradir.renderers")]
    rows = Counter(row for _, found in (*exporters, *renderers) for row in _options(found.options))
    common = {row for row, count in rows.items() if count > 1}
    sections = [PLUGINS_HEAD, _SEVERAL + "\n".join(sorted(common)), "\n## Exporters\n", _EXPORTERS]
    for name, found in exporters:
        sections += _plugin(found, name, common)
    drawn = f"`{'`, `'.join(PICTURES)}` are pictures. They take the options of [dot](#dot), and `pdf` needs Graphviz.\n"
    sections += [drawn, "## Passes\n", _PASSES]
    for name, found in registry.passes().items():
        if name in _own("gradir.passes"):
            sections += [f"### {name}\n", f"{_first_line(found)}\n"]
    sections += ["## Renderers\n", _RENDERERS]
    for name, found in renderers:
        sections += _plugin(found, f"diff as {name}", common)
    sections += ["## Front-ends\n", _FRONTENDS, "| Name | Takes |\n|---|---|"]
    sections += [f"| `{name}` | {_cell(registry.frontend.kind(name).takes)} |" for name in _own("gradir.frontends")]
    return "\n".join([*sections, ""])


def _own(group: str) -> list[str]:
    return sorted(point.name for point in entrypoints.entry_points(group) if point.value.startswith("gradir"))


def _plugin(found: Any, title: str, common: Set[str]) -> Iterator[str]:
    """A heading, what it makes, and its options."""
    yield f"### {title}\n"
    yield f"{_first_line(found)} Its files end in `{found.suffix}`.\n"
    rows = _options(found.options)
    if own := [row for row in rows if row not in common]:
        yield "\n".join([_TABLE, *own, ""])
    if also := [row.split("`")[1] for row in rows if row in common]:
        yield f"Also [{', '.join(f'`{name}`' for name in also)}](#options-of-several-plug-ins).\n"


def _first_line(found: Any) -> str:
    return _plain((inspect.getdoc(type(found)) or "").partition("\n")[0])


def _options(kind: type[Options]) -> list[str]:
    rows = []
    for info in option_infos(kind):
        default = f"`{info.default}`" if info.default else "empty"
        words = " ".join(f"`{word}`" for word in info.takes.split("|"))
        takes = "" if info.takes == "true|false" else f": {words}"
        rows.append(f"| `{info.name}`{takes} | {default} | {_cell(info.help)} |")
    return rows


def _find_subcommands(parser: Parser) -> Iterator[Parser]:
    """The subcommands of a command that a user calls."""
    for group in parser.sort_groups():
        for each in group._group_actions:  # noqa: SLF001 (argparse tells of these by private names only)
            if isinstance(each, argparse._SubParsersAction):  # noqa: SLF001
                yield from (choice for choice in each.choices.values() if "git calls this" not in choice.description)


def _command(parser: Parser, common: Mapping[str, Set[str]]) -> Iterator[str]:
    """A command: what it does, its arguments and options."""
    yield f"{'#' * len(parser.prog.split())} {parser.prog}\n"
    if parser.description:
        yield f"{_plain(parser.description)}\n"
    tables: dict[str, list[str]] = {}
    for group in parser.sort_groups():
        tables.setdefault(_plain(group.description or ""), []).extend(_rows(parser, group))
    for told, rows in tables.items():
        shared = {
            row for row in rows if row.startswith("| `GRAPH` |") or any(row in found for found in common.values())
        }
        if own := [row for row in rows if row not in shared]:
            yield (f"{told[0].upper()}{told[1:]}:\n\n" if told else "") + f"{_EMPTY}\n" + "\n".join(own) + "\n"
    given = {row for rows in tables.values() for row in rows}
    also = ["GRAPH"] if any(row.startswith("| `GRAPH` |") for row in given) else []
    for title, found in common.items():
        names = [f"`{re.findall('`(-[^` ]+)', row)[-1]}`" for row in sorted(found & given)]
        also += [f"[{title}](#{title.replace(' ', '-')})"] if names and found <= given and len(names) > 1 else names
    if also:
        yield f"{'Takes a' if also[0] == 'GRAPH' else 'Also'} {', '.join(also)}.\n"


def _rows(parser: argparse.ArgumentParser, group: argparse._ArgumentGroup) -> list[str]:
    rows = []
    for action in group._group_actions:  # noqa: SLF001
        is_hidden = action.help == argparse.SUPPRESS or "--help" in action.option_strings
        if not is_hidden and not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            names = (", " if action.option_strings else " or ").join(f"`{word}`" for word in _words(action))
            told = parser._get_formatter()._expand_help(action) if action.help else ""  # noqa: SLF001
            rows.append(f"| {names} | {_cell(told)} |")
    return rows


def _words(action: argparse.Action) -> Sequence[str]:
    """The option as it is given, with what it takes."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ()) or choices
    if not action.option_strings:
        return (metavar or action.dest).split("|")
    takes = "" if action.nargs == 0 else f" {metavar or action.dest.upper()}"
    return [*action.option_strings[:-1], f"{action.option_strings[-1]}{takes}"]


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("<", "&lt;")


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|").replace("*", "\\*")
