"""The parser of the command line: errors in one line, help in groups, options that load late."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from gradir.cli.report import COMPLETING, TROUBLE, one_line
from gradir.errors import did_you_mean

if TYPE_CHECKING:
    from gradir.protocols import Options

# Finds the plug-in on the command line, and its options.
_OptionsOf: TypeAlias = "Callable[[argparse.Namespace], tuple[str, type[Options]] | None]"

_ANY_WIDTH: Final = 80
# `COMMAND --help` prints this many examples, and `gradir help COMMAND` all.
_MOST_EXAMPLES: Final = 2
# The error for an option of other commands names at most this many of them.
_MOST_OTHERS: Final = 4

# The groups of options in the order of the help; any other group comes before the last.
_GROUPS: Final = ("arguments", "input", "output", "what to show", "comparison", "Markdown", "distributed", "advanced")

_REPEATED: Final = {"?": "[{0}]", "*": "[{0} ...]", "+": "{0} [{0} ...]"}


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fill paragraphs to the width of the terminal, but keep or continue indented lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fill_paragraphs(text, width, indent).rstrip()


class _Help(argparse.Action):
    """Print the help with the options of the plug-in on the command line."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, *_: object) -> None:
        # argparse's own print_help hides errors of the output.
        print(parser.format_help(), end="")
        found = parser.options_of(namespace)
        if found is not None:
            from gradir.cli.plugin_options import describe_options

            name, kind = found
            lines = describe_options(kind) or ["it has none"]
            print(f"\noptions of {name}, each as -O KEY=VALUE:", *lines, sep="\n  ")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Report a wrong command line in one line; help prints ``details`` after the examples."""

    def __init__(self, *, examples: Sequence[str] = (), details: str = "", **more: Any) -> None:
        # argparse makes a formatter for every option. Without a width each would import shutil to ask the terminal,
        # and shutil imports all compressions.
        super().__init__(formatter_class=partial(argparse.HelpFormatter, width=_ANY_WIDTH), add_help=False, **more)
        self._positionals.title = "arguments"
        self._examples, self._details = tuple(examples), details
        self._groups: dict[str, argparse._ArgumentGroup] = {}
        self._help = self.group("advanced").add_argument(
            "-h", "--help", action=_Help, nargs=0, help="show this help message and exit"
        )
        self._later: list[Callable[[], None]] = []
        self.options_of: _OptionsOf = lambda _: None
        self._takes_arguments = False

    def group(self, title: str, description: str | None = None) -> argparse._ArgumentGroup:
        """Return the group of options with a title; add a missing one."""
        if title not in self._groups:
            self._groups[title] = self.add_argument_group(title, description)
        return self._groups[title]

    def tell_options(self, options_of: _OptionsOf, when: str) -> None:
        """Print the options of the plug-in after the help; the help of --help says ``when``."""
        self.options_of = options_of
        self._help.help = f"show this help; {when}"

    def add_later(self, add: Callable[[], None]) -> None:
        """Call ``add`` at the first unknown option, or for the help: finding plug-ins takes time."""
        self._later.append(add)
        self.set_defaults(parser=self)

    def take_program_arguments(self) -> None:
        """Accept arguments of a program after ``--``."""
        self._takes_arguments = True
        self.set_defaults(program_arguments=())

    def find_options_at_end(self, words: Sequence[str], but: Collection[str] = ()) -> int:
        """Return the place at which the options at the end of a command line begin; ``but`` are not options."""
        place = len(words)
        while place:
            option, _, value = words[place - 1].partition("=")
            before = self._option_string_actions.get(words[place - 2] if place > 1 else "")
            last = self._option_string_actions.get(option)
            if option in but or (place > 1 and words[place - 2] in but):
                break
            if before is not None and before.nargs is None:
                place -= 2
            elif last is not None and last is not self._help and (last.nargs == 0) != bool(value):
                place -= 1
            else:
                break
        return place

    @property
    def is_complete(self) -> bool:
        """Return whether the parser has all late options."""
        return not self._later

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as argparse does, and add the late options if an option is unknown."""
        place = args.index("--") if self._takes_arguments and "--" in (args or ()) else 0
        # Without a word before "--", the word after it may be a file whose name looks like an option.
        if any(not word.startswith("-") for word in (args or ())[:place]):
            args, rest = args[:place], args[place + 1 :]
            namespace = argparse.Namespace() if namespace is None else namespace
            namespace.program_arguments = tuple(rest)
        if COMPLETING in os.environ or any(self._is_unknown(argument) for argument in args or ()):
            self._add_late_options()
            self._refuse_misspelt(args or ())
        found, left = super().parse_known_args(args, namespace)
        # The parser of all commands could not name the command in this error.
        if left and COMPLETING not in os.environ:
            self.error(self.describe_unknown(left[0]))
        return found, left

    def _refuse_misspelt(self, args: Sequence[str]) -> None:
        """End with an error for an unknown option, which argparse would report too late or not at all."""
        # A parser without abbreviations reads a script's arguments, and one with actions has a parser for each.
        if COMPLETING in os.environ or not self.allow_abbrev or self._subparsers is not None:
            return
        for word in args[: args.index("--")] if "--" in args else args:
            name = word.partition("=")[0]
            if self._is_unknown(word) and not any(known.startswith(name) for known in self._option_string_actions):
                self.error(self.describe_unknown(word))

    def format_help(self, *, whole: bool = False) -> str:
        """Return the help at the width of the terminal; with ``whole``, with all examples and details."""
        self._add_late_options()
        self.formatter_class = _HelpFormatter
        # argparse makes its help from these attributes only.
        self.usage = self.usage or self._short_usage()
        self.epilog = self._make_ending(whole=whole)
        self._action_groups = self.sort_groups()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """End with one line on standard error."""
        self.exit(TROUBLE, f"gradir: {one_line(message)}; see {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        # argparse names an action in its own errors by this private function only.
        noun = "command" if isinstance(action, argparse._SubParsersAction) else argparse._get_action_name(action)  # noqa: SLF001
        near = did_you_mean(str(value), known) or f": choose from {', '.join(known)}"
        raise argparse.ArgumentError(None, f"unknown {noun} {value!r}{near}")

    def describe_unknown(self, word: str) -> str:
        """Return the error for an unknown option."""
        if not word.startswith("-"):
            return f"unexpected argument {word!r}"
        from gradir.cli.main import COMMANDS, make_parser

        name = word.partition("=")[0]
        others = [each for each in COMMANDS if name in make_parser(each)._option_string_actions]  # noqa: SLF001
        if others:
            return f"unknown option {name!r}; it is an option of {', '.join(others[:_MOST_OTHERS])}"
        return f"unknown option {name!r}{did_you_mean(name, self._option_string_actions)}"

    def _short_usage(self) -> str:
        """Return the usage without the names of options, with percent signs doubled for argparse."""
        positionals = [action for action in self._actions if not action.option_strings]
        words = [_REPEATED.get(str(each.nargs), "{0}").format(each.metavar or each.dest) for each in positionals]
        more = ["[-- ARGS]"] if self._takes_arguments else []
        return " ".join([self.prog, "[OPTIONS]", *words, *more]).replace("%", "%%")

    def sort_groups(self) -> list[argparse._ArgumentGroup]:
        """Return the groups of options in the order of the help."""
        places = {title: place for place, title in enumerate(_GROUPS)}
        return sorted(self._action_groups, key=lambda group: places.get(group.title or "", len(_GROUPS) - 2))

    def _make_ending(self, *, whole: bool) -> str:
        """Return the end of the help: some examples, or with ``whole`` all of them and the details."""
        shown = self._examples if whole else self._examples[:_MOST_EXAMPLES]
        parts = ["\n".join(["examples:", *(f"  {line}" for line in shown)])] if shown else []
        if whole and self._details:
            parts.append(self._details.rstrip())
        elif not whole and (self._details or len(shown) < len(self._examples)):
            parts.append(f"Run 'gradir help {self.prog.removeprefix('gradir ')}' for more.")
        return "\n\n".join(parts)

    def _is_unknown(self, argument: str) -> bool:
        return argument.startswith("--") and argument.partition("=")[0] not in self._option_string_actions

    def _add_late_options(self) -> None:
        while self._later:
            self._later.pop(0)()


def parse_as(type_: object, text: str) -> Any:
    """Return the value of an option that may have any type of `gradir.options`."""
    from gradir.ir.text import shorten
    from gradir.options import OptionError, read

    try:
        return read(type_, text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(shorten(str(error))) from error


def add_input(parser: argparse.ArgumentParser, name: str = "file", *, nargs: str | None = None) -> None:
    """Add the argument for a ``.gir`` file to read."""
    metavar = name.removesuffix("s").upper()
    parser.add_argument(name, metavar=metavar, nargs=nargs, help="a .gir file; '-' is standard input")


def add_output(parser: Parser, more: str = "") -> None:
    """Add the option for a file to write; ``more`` continues its help after the name."""
    about = f"write to FILE{more} (default: '-', standard output)"
    parser.group("output").add_argument("-o", "--output", metavar="FILE", default="-", help=about)


def add_traceback(parser: Parser) -> None:
    """Add the option of commands that run a user's program."""
    about = "show the full traceback of a failing program or plug-in"
    parser.group("advanced").add_argument("--traceback", action="store_true", help=about)


def fill_paragraphs(text: str, width: int = 0, indent: str = "") -> str:
    """Return a text as wide as the terminal, or ``width``; an indented line is a paragraph."""
    import shutil

    width = width or shutil.get_terminal_size().columns - 2
    lines = _join_lines(text.strip("\n").splitlines())
    return "".join(f"{line}\n" for each in lines for line in _wrap_line(f"{indent}{each}", width)).lstrip("\n")


def _join_lines(lines: Iterable[str]) -> Iterator[str]:
    """Join the lines of paragraphs; indented lines and lines that end in a colon stay as they are."""
    paragraph: list[str] = []
    for line in (*lines, ""):
        is_text = bool(line) and not line.startswith(" ")
        if is_text:
            paragraph.append(line)
        if paragraph and (not is_text or line.endswith(":")):
            yield " ".join(paragraph)
            paragraph = []
        if not is_text:
            yield line


def _wrap_line(line: str, width: int) -> Iterator[str]:
    if len(line) <= width:
        yield line
        return
    import textwrap

    indent = line[: len(line) - len(line.lstrip())]
    command, comment = line.strip(), ""
    is_command = bool(indent) and command.startswith(("gradir ", "torchrun ", "git "))
    if is_command:
        command, _, comment = command.partition("  # ")
        if comment:
            yield from _wrap_line(f"{indent}# {comment}", width)
        if len(indent) + len(command.rstrip()) <= width:
            yield f"{indent}{command.rstrip()}"
            return
    end = " \\" if is_command else ""
    lines = textwrap.wrap(
        command.rstrip(),
        max(width - len(indent) - len(end) - 2, 10),
        break_long_words=False,
        # Readers copy a command, so no option may be broken.
        break_on_hyphens=not is_command,
    )
    hanging = indent + "  " * is_command
    for number, each in enumerate(lines):
        yield f"{hanging if number else indent}{each}{end if number < len(lines) - 1 else ''}"
