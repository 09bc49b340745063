"""Parse the arguments of commands that run an unchanged script, and run it."""

from __future__ import annotations

import argparse
import atexit
import gc
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from msgspec import Meta

from gradir.cli.parser import parse_as
from gradir.cli.sources import check_script
from gradir.errors import SpecError
from gradir.files import working_folder

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.protocols import Running

# The exit status of Python if a program raises.
FAILED: Final = 1

parse_count: Final = partial(parse_as, Annotated[int, Meta(ge=1)])


class Script(NamedTuple):
    """A script to run, with its arguments."""

    name: str
    arguments: Sequence[str]
    is_module: bool

    def check(self) -> None:
        """Refuse a name that is no script, and a deleted working directory."""
        if not self.is_module:
            check_script(self.name)
        if not working_folder():
            raise SpecError(f"cannot run {self.name}: the working directory was deleted; change to another one")

    def run(
        self, options: argparse.Namespace, is_enough: Callable[[], bool], failed: Callable[[BaseException], bool]
    ) -> object:
        """Run the script and return its exit status or message; ``failed`` returns whether an error is no failure."""
        from gradir.cli.program_errors import trim_tracebacks
        from gradir.spec import NoScriptError, run_script

        # Python must finalize the objects of the program.
        atexit.unregister(gc.freeze)
        try:
            run_script(self.name, self.arguments, is_module=self.is_module, for_good=options.is_process)
        except (NoScriptError, KeyboardInterrupt):
            raise
        except SystemExit as exit_:
            return exit_.code
        except BaseException as error:  # noqa: BLE001 (any error is the script's failure)
            # gradir ended the script in the middle of its work, so its cleanup may fail.
            if is_enough() or failed(error):
                return None
            shown = error if options.traceback else trim_tracebacks(error)
            sys.excepthook(type(shown), shown, shown.__traceback__)
            return FAILED
        return None


def add_script(parser: Parser, metavar: str, help: str) -> None:
    """Add the arguments for a script and its own arguments."""
    parser.add_argument("program", metavar=metavar, nargs=argparse.REMAINDER, help=help)
    parser.group("input").add_argument("-m", dest="is_module", action="store_true", help="run a module, as python -m")
    parser.set_defaults(parser=parser, required=metavar.partition(" ")[0])


def split_arguments(
    options: argparse.Namespace, *, is_script: Callable[[str], bool], foreign: Collection[str] = ()
) -> Script:
    """Parse gradir's options among the arguments after the first, and return the script with the others.

    Options in ``foreign`` belong to the script.
    """
    parser: Parser = options.parser
    if not options.program:
        parser.error(f"the following arguments are required: {options.required}")
    name, *words = options.program
    arguments: Sequence[str] = options.program_arguments
    own = words
    # Without arguments after `--`, options at the end of the line are gradir's.
    if is_script(name) and not arguments:
        place = parser.find_options_at_end(words, foreign)
        own, arguments = words[place:], words[:place]
    options.program = []
    given = parser.parse_args(own, options)
    if given.program:
        parser.error(parser.describe_unknown(given.program[0]))
    options.program_arguments = tuple(arguments)
    return Script(name, arguments, options.is_module)


def describe_calls(seeing: Mapping[str, Running], step: int) -> str:
    """Return a text for a script that called backward less than ``step`` times."""
    from gradir.claims import describe_lacking
    from gradir.ir.text import pluralize

    if calls := sum(each.calls for each in seeing.values()):
        return f"called backward {pluralize(calls, 'time')}, and --step is {step}"
    why = " and ".join(describe_lacking("running"))
    return f"never called backward in this process{why and f' ({why})'}"
