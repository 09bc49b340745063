"""``gradir completion``: print the script of a shell, and answer its request on each TAB."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from gradir import files
from gradir.cli.main import COMMANDS, make_parser
from gradir.cli.parser import Parser
from gradir.pictures import PICTURES

DESCRIPTION = "Print the script with which a shell completes commands, options, formats and files."

EXAMPLES = (
    'eval "$(gradir completion bash)"  # this shell only; in zsh after compinit',
    "gradir completion fish > ~/.config/fish/completions/gradir.fish",
    "gradir completion bash > ~/.local/share/bash-completion/completions/gradir",
    "gradir completion zsh > ~/.zfunc/_gradir",
)
DETAILS = """\
The script asks gradir on each TAB, so it completes the formats and options of
other packages too. In zsh, put 'fpath+=~/.zfunc' before compinit in ~/.zshrc.
"""

_SHELLS: Final = ("bash", "zsh", "fish")

_Completer: TypeAlias = Callable[..., Iterable[str]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=", ".join(_SHELLS))


def run(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    files.write_bytes("-", shellcode(["gradir"], shell=options.shell).encode())
    return 0


def complete(words: Sequence[str]) -> None:
    """Print the possible next arguments after these words for a shell, and end the process."""
    import argcomplete

    # Each command imports a module, so only the named command is loaded.
    parser = Parser(prog="gradir")
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers(metavar="COMMAND")
    named = words[0] if words else ""
    for name in (named,) if named in COMMANDS else COMMANDS:
        make_parser(name, partial(commands.add_parser, name, help=COMMANDS[name]))
    for action in _find_actions(parser):
        completer = _COMPLETERS.get((action.dest, action.metavar))
        if completer is not None:
            setattr(action, "completer", completer)  # noqa: B010 (argparse declares no such attribute)
    argcomplete.autocomplete(parser)


def _find_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    parsers = [parser]
    while parsers:
        for action in parsers.pop()._actions:  # noqa: SLF001 (argparse has no public name for them)
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                parsers += action.choices.values()
            else:
                yield action


def _list_exporters(**_: object) -> Iterable[str]:
    from gradir import registry

    return [*registry.exporter_names(), *PICTURES]


def _list_renderers(**_: object) -> Iterable[str]:
    from gradir import registry

    return {*registry.renderer_names(), registry.DRAWN}


def _list_option_keys(parser: Parser, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Return the options of the plug-in on the command line, each with an equals sign."""
    found = parser.options_of(parsed_args)
    return [] if found is None else [f"{name}=" for name in found[1].__struct_fields__]


# By the name of an option and its metavar.
_COMPLETERS: Final[dict[tuple[str, object], _Completer]] = {
    ("to", "NAME"): _list_exporters,
    ("names", "NAME"): _list_exporters,
    ("format", "NAME"): _list_renderers,
    ("option", "KEY=VALUE"): _list_option_keys,
}
