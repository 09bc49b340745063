"""The parser of the command line: errors in one line, help as wide as the terminal, options that are loaded late."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from gradir.cli.report import one_line

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from gradir.protocols import Options

__all__ = ["COMPLETING", "TROUBLE", "Parser", "add_input", "add_output", "add_traceback"]

_OptionsOf: TypeAlias = "Callable[[argparse.Namespace], tuple[str, type[Options]] | None]"
"""Finds the plug-in that was named, and its options."""

TROUBLE: Final = 2
"""The exit status where something is wrong."""

COMPLETING: Final = "_ARGCOMPLETE"
"""The variable by which a shell asks for what may come next: the name is argcomplete's."""

_ANY_WIDTH: Final = 80


class _Wrapped(argparse.RawDescriptionHelpFormatter):
    """Wraps the paragraphs that are one line, and keeps the lines of the others: of lists and examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        def wrapped(paragraph: str) -> str:
            if "\n" in paragraph or paragraph.startswith(" "):
                return textwrap.indent(paragraph, indent)
            return textwrap.fill(paragraph, width, initial_indent=indent, subsequent_indent=indent)

        return "\n\n".join(map(wrapped, text.rstrip().split("\n\n"))) + "\n"


class _Help(argparse.Action):
    """Prints the help, with the options of the plug-in that was named before it."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, *_: object) -> None:
        """Print both, and end the program."""
        parser.print_help()
        found = parser.options_of(namespace)
        if found is not None:
            from gradir.cli.plugin_options import option_lines

            name, kind = found
            print(f"\noptions of {name}, each as -O KEY=VALUE:", *(option_lines(kind) or ["it has none"]), sep="\n  ")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line, as every other error."""

    def __init__(self, **more: Any) -> None:
        # argparse makes a formatter for every option that is added. Without a width each asks the terminal for one,
        # for which it imports shutil, and that all of the compressions.
        super().__init__(formatter_class=partial(argparse.HelpFormatter, width=_ANY_WIDTH), add_help=False, **more)
        self._help = self.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help message and exit")
        self._later: list[Callable[[], None]] = []
        self.options_of: _OptionsOf = lambda _: None
        self._takes_arguments = False

    def tell_options(self, options_of: _OptionsOf, when: str) -> None:
        """Have the help end with the options of the plug-in that was named, and say when it does."""
        self.options_of = options_of
        self._help.help = f"show this help; {when}"

    def add_later(self, add: Callable[[], None]) -> None:
        """Have options added once one is met that is not known, or the help is asked for: to find them takes time."""
        self._later.append(add)
        self.set_defaults(parser=self)

    def take_program_arguments(self) -> None:
        """Have what stands behind ``--`` be the arguments of the program that the command runs."""
        self._takes_arguments = True
        self.set_defaults(program_arguments=())

    def options_at_end(self, words: Sequence[str]) -> int:
        """Where the last words begin that are options of this parser, with their values."""
        place = len(words)
        while place:
            option, _, value = words[place - 1].partition("=")
            before = self._option_string_actions.get(words[place - 2] if place > 1 else "")
            last = self._option_string_actions.get(option)
            if before is not None and before.nargs is None:
                place -= 2
            elif last is not None and last is not self._help and (last.nargs == 0) != bool(value):
                place -= 1
            else:
                break
        return place

    @property
    def is_complete(self) -> bool:
        """Whether the options that were to be added later are there."""
        return not self._later

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse does it, with the later options where an option is not among the others."""
        place = args.index("--") if self._takes_arguments and "--" in (args or ()) else 0
        # Where no word stands before it, one may be to come whose name looks like an option.
        if any(not word.startswith("-") for word in (args or ())[:place]):
            args, rest = args[:place], args[place + 1 :]
            namespace = argparse.Namespace() if namespace is None else namespace
            namespace.program_arguments = tuple(rest)
        if COMPLETING in os.environ or any(self._is_unknown(argument) for argument in args or ()):
            self._complete()
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """The help, as wide as the terminal."""
        self._complete()
        self.formatter_class = _Wrapped
        return super().format_help()

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help, and fail where it cannot be written, which argparse hides."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        """End with one line on standard error."""
        self.exit(TROUBLE, f"gradir: {one_line(message)}; see {self.prog} --help\n")

    def _is_unknown(self, argument: str) -> bool:
        return argument.startswith("--") and argument.partition("=")[0] not in self._option_string_actions

    def _complete(self) -> None:
        while self._later:
            self._later.pop(0)()


def add_input(parser: argparse.ArgumentParser, name: str = "file", *, nargs: str | None = None) -> None:
    """Add the word that names a ``.gir`` file to read."""
    metavar = name.removesuffix("s").upper()
    parser.add_argument(name, metavar=metavar, nargs=nargs, help="a .gir file; '-' is standard input")


def add_output(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the option that names a file to write; ``more`` is what else its help says of the name."""
    about = f"where to write{more}; '-' (default) is standard output"
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help=about)


def add_traceback(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that run a user's program."""
    about = "where the program or a plug-in raises, show all of the traceback, with gradir's part"
    parser.add_argument("--traceback", action="store_true", help=about)
