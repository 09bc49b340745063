"""Share the arguments of commands that run an unchanged script, and run it."""

from __future__ import annotations

import argparse
import atexit
import gc
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.cli.sources import check_script
from gradir.errors import SpecError
from gradir.files import working_folder

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.protocols import Running

_MOST_DIGITS: Final = 19
# The exit status of Python where a program raises.
FAILED: Final = 1


class Script(NamedTuple):
    """A script to run, with its arguments."""

    name: str
    arguments: Sequence[str]
    is_module: bool

    def check(self) -> None:
        """Refuse anything but a script that can run."""
        if not self.is_module:
            check_script(self.name)
        if not working_folder():
            raise SpecError(f"cannot run {self.name}: the working directory was deleted; change to another one")

    def run(
        self, options: argparse.Namespace, is_enough: Callable[[], bool], failed: Callable[[BaseException], bool]
    ) -> object:
        """Run the script and return its exit status or message; ``failed`` says if an error needs no traceback."""
        from gradir.cli.program_errors import trimmed
        from gradir.spec import NoScriptError, run_script

        # There may be objects of the program that want to be finalized.
        atexit.unregister(gc.freeze)
        try:
            run_script(self.name, self.arguments, is_module=self.is_module, for_good=options.is_process)
        except (NoScriptError, KeyboardInterrupt):
            raise
        except SystemExit as left:
            return left.code
        except BaseException as error:  # noqa: BLE001 (it is the script's failure, whatever it is)
            # The run was ended in the middle of its work, where a script may not clean up well.
            if is_enough() or failed(error):
                return None
            found = error if options.traceback else trimmed(error)
            sys.excepthook(type(found), found, found.__traceback__)
            return FAILED
        return None


def add_script(parser: Parser, metavar: str, help: str) -> None:
    """Add the arguments for a script and its own arguments."""
    parser.add_argument("program", metavar=metavar, nargs=argparse.REMAINDER, help=help)
    parser.group("input").add_argument("-m", dest="is_module", action="store_true", help="run a module, as python -m")
    parser.set_defaults(parser=parser)


def divided(options: argparse.Namespace, *, is_script: Callable[[str], bool], foreign: Collection[str] = ()) -> Script:
    """Divide the arguments after the first into gradir's options, which are parsed, and the script's."""
    parser: Parser = options.parser
    if not options.program:
        parser.error("name what to run or to read")
    name, *words = options.program
    arguments: Sequence[str] = options.program_arguments
    own = words
    # Where nothing follows `--`, options at the end of the line are gradir's, except those that a script may have.
    if is_script(name) and not arguments:
        place = parser.options_at_end(words, foreign)
        own, arguments = words[place:], words[:place]
    options.program = []
    given = parser.parse_args(own, options)
    if given.program:
        parser.error(parser.unknown(given.program[0]))
    options.program_arguments = tuple(arguments)
    return Script(name, arguments, options.is_module)


def calls_of(seeing: Mapping[str, Running], step: int) -> str:
    """Return how often a script called backward, if that was not often enough."""
    from gradir.claims import unable
    from gradir.ir.text import counted

    calls = sum(each.calls for each in seeing.values())
    if not calls:
        why = " and ".join(unable("running"))
        return f"never called backward in this process{why and f' ({why})'}"
    return f"called backward {counted(calls, 'time')}, and --step is {step}"


def number(what: str, first: int = 1, last: int = sys.maxsize) -> Callable[[str], int]:
    """Return a parser of whole numbers from the first to the last."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS or not first <= int(text) <= last:
            from gradir.ir.text import excerpt

            raise argparse.ArgumentTypeError(f"{excerpt(text)} is not the number of a {what}: {first} is the first")
        return int(text)

    return read
