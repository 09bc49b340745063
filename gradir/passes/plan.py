"""From options to passes, for the command line and the Python functions alike."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from gradir.errors import PassError
from gradir.options import OptionError, filled
from gradir.passes.drop import drop
from gradir.passes.focus import between, focus
from gradir.passes.fold import fold
from gradir.passes.hide import hide_shape_ops
from gradir.passes.lineage import ancestors, descendants
from gradir.passes.rollup import rollup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradir.ir import Graph

__all__ = ["PassOptions", "applied", "planned"]

_Step: TypeAlias = "tuple[str, Callable[[Graph], Graph]]"


class PassOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which passes to run, in the order of the fields; `applied` runs them.

    >>> PassOptions.of({"focus": "h.0", "drop": "buffer"}).drop
    ('buffer',)
    """

    drop: tuple[str, ...] = ()
    hide_shape_ops: bool = False
    ancestors: str | None = None
    descendants: str | None = None
    between: tuple[str, str] | None = None
    focus: str | None = None
    hops: Annotated[int, msgspec.Meta(ge=0)] | None = None
    rollup: bool = False
    depth: Annotated[int, msgspec.Meta(ge=0)] | None = None

    @classmethod
    def of(cls, values: Mapping[str, object]) -> PassOptions:
        """The options given by name; ``drop`` may be one word.

        Raises:
            PassError: a value that an option does not take, or ``hops`` without ``focus``.
        """
        given = {**values, "drop": (values["drop"],)} if isinstance(values.get("drop"), str) else dict(values)
        try:
            options = filled(cls, given, "passes")
        except OptionError as error:
            raise PassError(str(error)) from error
        if options.hops is not None and options.focus is None:
            raise PassError("hops are counted from what focus names: give focus too")
        return options


def planned(options: PassOptions) -> list[Callable[[Graph], Graph]]:
    """The passes to run, in order.

    First goes what is not to be seen (``drop``, ``hide_shape_ops``), so that hops are counted in what is left. Then a
    part is chosen (``ancestors``, ``descendants``, ``between``, ``focus``), each out of what the one before left, while
    nodes still have their own names. ``rollup`` and ``depth``, which make one node of many, come last.

    >>> from gradir.ir import Node, Graph
    >>> graph = Graph.of([Node("b", role="buffer"), Node("x", role="leaf")])
    >>> for run in planned(PassOptions(focus="x", drop=("buffer",))):
    ...     graph = run(graph)
    ...     print(list(graph.nodes))
    ['x']
    ['x']
    """
    return [run for _, run in _steps(options)]


def applied(options: PassOptions, graph: Graph, spelled: Callable[[str], str] = str) -> Graph:
    """The graph after the passes that the options ask for; ``spelled`` writes the name of an option as its user does.

    Raises:
        PassError: a pass cannot do what was asked; where one before it left out what it names, the message says which.

    >>> from gradir.ir import Node, Graph
    >>> graph = Graph.of([Node("b", role="buffer"), Node("x", role="leaf")])
    >>> applied(PassOptions(focus="b", drop=("buffer",)), graph)
    Traceback (most recent call last):
    gradir.errors.PassError: focus 'b': drop, which runs before it, left out what it names
    """
    steps, left = _steps(options), graph
    try:
        for done, (name, run) in enumerate(steps):  # noqa: B007 (told below)
            left = run(left)
    except PassError as error:
        culprit = _culprit(steps[:done], run, graph)
        if culprit is None:
            raise
        value = getattr(options, name)
        named = " and ".join(map(repr, value if isinstance(value, tuple) else (value,)))
        raise PassError(f"{name} {named}: {spelled(culprit)}, which runs before it, left out what it names") from error
    return left


def _culprit(earlier: Sequence[_Step], run: Callable[[Graph], Graph], graph: Graph) -> str | None:
    """The pass after which another is no longer possible; ``None`` where it never was."""
    if not _is_possible(run, graph):
        return None
    for name, before in earlier:
        graph = before(graph)
        if not _is_possible(run, graph):
            return name
    return None


def _is_possible(run: Callable[[Graph], Graph], graph: Graph) -> bool:
    try:
        run(graph)
    except PassError:
        return False
    return True


def _steps(options: PassOptions) -> list[_Step]:
    """The passes to run, in order, each with the name of its option."""
    steps: list[_Step] = []
    if options.drop:
        steps.append(("drop", partial(drop, what=options.drop)))
    if options.hide_shape_ops:
        steps.append(("hide_shape_ops", hide_shape_ops))
    if options.ancestors is not None:
        steps.append(("ancestors", partial(ancestors, pattern=options.ancestors)))
    if options.descendants is not None:
        steps.append(("descendants", partial(descendants, pattern=options.descendants)))
    if options.between is not None:
        steps.append(("between", partial(between, one=options.between[0], other=options.between[1])))
    if options.focus is not None:
        steps.append(("focus", partial(focus, pattern=options.focus, hops=1 if options.hops is None else options.hops)))
    if options.rollup:
        steps.append(("rollup", rollup))
    if options.depth is not None:
        steps.append(("depth", partial(fold, depth=options.depth)))
    return steps
