"""Define the report on the ranks of a training as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

__all__ = ["FORMAT", "KINDS", "VERSION", "Finding", "Group", "Kind", "Ranks"]

if TYPE_CHECKING:
    from gradir.distributed.page import Picture
    from gradir.distributed.reading import RankFile
    from gradir.distributed.simulation import Outcome
    from gradir.ir import Graph

Kind = Literal["hang", "may hang", "mixed", "missing", "values", "graphs", "cuts"]
KINDS: Final[tuple[Kind, ...]] = ("hang", "may hang", "mixed", "missing", "values", "graphs", "cuts")

FORMAT: Final = "gir-ranks"
VERSION: Final = "1.0"
"""The version in the head of the JSON, as in schemas/gir-ranks-1.0.schema.json."""

_GRAPHS: Final = "_graphs"
_RUN: Final = "_run"


class _Data(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of the records here."""


class Finding(_Data, frozen=True):
    """A difference between ranks.

    ``kind`` is one of the conditions of ``gradir ranks --fail-on``.
    """

    kind: Kind
    ranks: tuple[int, ...]
    lines: tuple[str, ...]


class Group(_Data, frozen=True):
    """Ranks with the same graph, up to the sizes of their parts if ``uneven`` is set.

    ``saved_bytes``, ``elements`` and ``collectives`` count saved bytes, parameter elements and collectives of the first
    rank. In a pipeline, a group has ranks of one ``stage``.
    """

    ranks: tuple[int, ...]
    nodes: int
    edges: int
    saved_bytes: int
    elements: int
    collectives: int
    uneven: bool = False
    stage: int | None = None


class Ranks(_Data, frozen=True, dict=True):
    """The report on the ranks of a distributed run, which is true if something was found.

    ``ranks`` are those with files, of the ``world``. The first of ``groups`` is the largest. ``proved`` counts the
    collectives that all of their group enter in the same order, and ``unreached`` has the parameters without a
    gradient on any rank. ``recorded`` is unset if no file has collectives. ``stopped`` has the ranks
    without a graph by reason, as in `Rank.stopped`, or ``cut off`` (by a captured step, which sends nothing). In the
    groups ``unaligned``, steps begin at different collectives.
    """

    world: int
    ranks: tuple[int, ...]
    groups: tuple[Group, ...]
    findings: tuple[Finding, ...] = ()
    proved: Annotated[int, msgspec.Meta(ge=0)] = 0
    unreached: tuple[str, ...] = ()
    recorded: bool = True
    stopped: Mapping[str, tuple[int, ...]] = {}
    unaligned: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __str__(self) -> str:
        """Return the text that ``gradir ranks`` prints, without the last line end."""
        return self.to("text").removesuffix("\n")

    @property
    def is_sample(self) -> bool:
        """Return whether some ranks have no file.

        >>> Ranks(4, (0, 1), ()).is_sample
        True
        """
        return len(self.ranks) < self.world

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Return the graph of the first rank of each group, read on demand.

        Raises:
            FileError: a file no longer exists.
        """
        load = self.__dict__.get(_GRAPHS)
        return () if load is None else load()

    def to(self, form: str) -> str:
        """Return the report as ``text``, ``markdown``, ``json``, or ``html``, a page to open in a browser.

        Raises:
            ExportError: there is no such form.
        """
        from gradir.distributed.words import render_ranks

        return render_ranks(self, form)

    @property
    def picture(self) -> Picture | None:
        """Return the collectives of the ranks side by side, or None for a report that was read from JSON."""
        from gradir.distributed.page import make_picture

        run = self.__dict__.get(_RUN)
        return None if run is None else make_picture(*run)

    def with_files(self, load: Callable[[], tuple[Graph, ...]], run: tuple[Sequence[RankFile], Outcome]) -> Ranks:
        """Return the report, with a function that loads its graphs, and what a picture shows."""
        self.__dict__.update({_GRAPHS: load, _RUN: run})
        return self
