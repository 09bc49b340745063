"""The options of an exporter or a renderer: giving them, and a help text that lists them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradir.errors import ExportError

if TYPE_CHECKING:
    from gradir.options import OptionInfo
    from gradir.protocols import Options

__all__ = ["add_help", "add_option", "given_options", "help_of", "option_lines", "spelled"]


_Named = tuple[str, "type[Options]"]


def add_help(
    parser: argparse.ArgumentParser, more: str, options_of: Callable[[argparse.Namespace], _Named | None]
) -> None:
    """Add the option that prints the help, with the options of the plug-in that was named before it."""
    about = f"show this help; after {more} options"
    parser.add_argument("-h", "--help", action=_Help, options_of=options_of, help=about)


class _Help(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, options_of: Any, **more: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **more)
        self._options_of = options_of

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,  # noqa: ARG002 (argparse's signature)
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Print both, and end the program."""
        parser.print_help()
        found = self._options_of(namespace)
        if found is not None:
            name, kind = found
            print(f"\noptions of {name}, each as -O KEY=VALUE:", *(option_lines(kind) or ["it has none"]), sep="\n  ")
        parser.exit()


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


def spelled(name: str) -> str:
    """The name of an option that has a word of its own on a command line."""
    return f"--{name.replace('_', '-')}"


def help_of(info: OptionInfo) -> str:
    """The help text of such an option."""
    return (info.help if info.default is None else f"{info.help} (default: {info.default})").replace("%", "%%")


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ExportError(f"-O {text!r}: expected KEY=VALUE")
    return key.replace("-", "_"), value
