"""From options to passes, for the command line and the Python functions alike."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

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
    from collections.abc import Callable, Mapping

    from gradir.ir import Graph

__all__ = ["PassOptions", "planned"]


class PassOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which passes to run, in the order of the fields; `planned` runs them.

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
    passes: list[Callable[[Graph], Graph]] = []
    if options.drop:
        passes.append(partial(drop, what=options.drop))
    if options.hide_shape_ops:
        passes.append(hide_shape_ops)
    if options.ancestors is not None:
        passes.append(partial(ancestors, pattern=options.ancestors))
    if options.descendants is not None:
        passes.append(partial(descendants, pattern=options.descendants))
    if options.between is not None:
        passes.append(partial(between, one=options.between[0], other=options.between[1]))
    if options.focus is not None:
        passes.append(partial(focus, pattern=options.focus, hops=1 if options.hops is None else options.hops))
    if options.rollup:
        passes.append(rollup)
    if options.depth is not None:
        passes.append(partial(fold, depth=options.depth))
    return passes
