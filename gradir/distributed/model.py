"""What was found of the ranks of a training, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

__all__ = ["FORMAT", "KINDS", "VERSION", "Finding", "Group", "Kind", "Ranks"]

if TYPE_CHECKING:
    from gradir.distributed.timeline import Picture
    from gradir.ir import Graph

Kind = Literal["hang", "may hang", "mixed", "missing", "graphs", "cuts"]
KINDS: Final[tuple[Kind, ...]] = ("hang", "may hang", "mixed", "missing", "graphs", "cuts")

FORMAT: Final = "gir-ranks"
VERSION: Final = "1.0"
"""What the head of the JSON says, of which schemas/gir-ranks-1.0.schema.json is the schema."""

_GRAPHS: Final = "_graphs"
_PICTURE: Final = "_picture"


class _Data(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of the records here."""


class Finding(_Data, frozen=True):
    """Something in which ranks part.

    ``kind`` is ``hang`` (they wait for each other for ever, or what they issue together does not fit), ``may hang``
    (they wait in a circle across groups, which collectives that run beside each other can survive), ``mixed`` (what
    they issue together fits, and is of other modules, parameters or lines, so the result is wrong), ``missing`` (an
    exchange is left out, so gradients are not reduced), ``graphs`` (a graph is another than that of most) or ``cuts``
    (parameters get no gradient on some ranks only). ``lines`` says it, the first that differs first.
    """

    kind: Kind
    ranks: tuple[int, ...]
    lines: tuple[str, ...]


class Group(_Data, frozen=True):
    """Ranks whose graphs are the same, up to the sizes of their parts where ``uneven`` is set.

    ``saved_bytes`` is what the first of them keeps for backward, ``elements`` how many elements of parameters it holds,
    and ``collectives`` how many it issues. Of a pipeline, the graphs of one ``stage`` alone are compared.
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
    """What the ranks of a training do alike, and where they part. True where anything was found.

    ``ranks`` are those whose files were there, of the ``world``; where some are missing, no hang is claimed. The first
    of ``groups`` is the largest. ``proved`` is how many collectives were entered by all of their group in the same
    order, ``unreached`` the parameters that get no gradient on any rank. ``recorded`` is unset where no file says what
    its rank exchanges, so that graphs and parameters alone were compared.
    """

    world: int
    ranks: tuple[int, ...]
    groups: tuple[Group, ...]
    findings: tuple[Finding, ...] = ()
    proved: Annotated[int, msgspec.Meta(ge=0)] = 0
    unreached: tuple[str, ...] = ()
    recorded: bool = True

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __str__(self) -> str:
        """What ``gradir ranks`` prints, without the last line end."""
        return self.to("text").removesuffix("\n")

    @property
    def is_sample(self) -> bool:
        """Whether some ranks have no file.

        >>> Ranks(4, (0, 1), ()).is_sample
        True
        """
        return len(self.ranks) < self.world

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """A graph for each group, that of its first rank, read when it is asked for; none of ranks that were read back.

        Raises:
            FileError: a file is not there any more.
        """
        load = self.__dict__.get(_GRAPHS)
        return () if load is None else load()

    def to(self, form: str) -> str:
        """The same as ``text``, ``markdown``, ``json``, or ``html``, a page to open in a browser.

        Raises:
            ExportError: there is no such form.
        """
        from gradir.distributed.words import rendered

        return rendered(self, form)

    @property
    def picture(self) -> Picture | None:
        """The collectives of the ranks beside each other; none of ranks that were read back."""
        draw = self.__dict__.get(_PICTURE)
        return None if draw is None else draw()

    def with_files(self, load: Callable[[], tuple[Graph, ...]], draw: Callable[[], Picture]) -> Ranks:
        """The same, which knows how to come by a graph for each group, and by a picture."""
        self.__dict__.update({_GRAPHS: load, _PICTURE: draw})
        return self
