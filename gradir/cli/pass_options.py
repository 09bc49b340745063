"""The options of a command that runs passes before it does its own work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.errors import PassError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gradir.ir import Graph

__all__ = ["add_pass_options", "chosen_passes"]

_NAMES: Final = (
    "drop",
    "hide_shape_ops",
    "ancestors",
    "descendants",
    "between",
    "focus",
    "hops",
    "rollup",
    "depth",
)

_ABOUT: Final = """\
Run in the order listed. A PATTERN is a node's id or name, the path of a module, or a glob over these.
"""


def add_pass_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each pass, under the names of the fields of `gradir.passes.PassOptions`."""
    group = parser.add_argument_group("what to show", _ABOUT)
    group.add_argument(
        "--drop",
        metavar="WHAT",
        action="append",
        help="leave out a role (buffer, view_base, output ...), accumulate_grad, saved or views; may be repeated",
    )
    group.add_argument("--hide-shape-ops", action="store_true", help="leave out views, reshapes, transposes ...")
    group.add_argument("--ancestors", metavar="PATTERN", help="only these nodes and all they depend on")
    group.add_argument("--descendants", metavar="PATTERN", help="only these nodes and all that depends on them")
    group.add_argument(
        "--between", metavar=("PATTERN", "PATTERN"), nargs=2, help="only the nodes on paths that join these"
    )
    group.add_argument("--focus", metavar="PATTERN", help="only these nodes and those near them")
    group.add_argument("--hops", metavar="K", type=int, help="how many edges away is near, for --focus; default 1")
    group.add_argument("--rollup", action="store_true", help="show a stack of equal layers once, with its number")
    group.add_argument("--depth", metavar="N", type=int, help="fold every module below this depth into one node")


def chosen_passes(options: argparse.Namespace) -> Callable[[Graph], Graph]:
    """What runs the passes that the options ask for, once they are known to make sense.

    Raises:
        PassError: an option has a value that it does not take.
    """
    chosen = {name: getattr(options, name) for name in _NAMES}
    given = {name: value for name, value in chosen.items() if value is not None and value is not False}
    if not given:
        return lambda graph: graph
    # Imported when there is something to do: a plain export should start fast.
    from gradir.passes.plan import PassOptions, applied

    chosen_options = PassOptions.of(given)

    def run(graph: Graph) -> Graph:
        try:
            return applied(chosen_options, graph, _spelled)
        except PassError as error:
            raise PassError(f"{options.file}: {error}") from error

    return run


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"
