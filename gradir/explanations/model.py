"""An explanation is data: what each parameter gets, why some get nothing, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from gradir.ir import Source
from gradir.ir.text import printable
from gradir.vocabulary.causes import worded

__all__ = ["STATUSES", "Cause", "Explanation", "Level", "Term"]

Level = Literal["none", "note", "info", "error"]

STATUSES: Final[Mapping[str, str]] = {
    "reached": "a gradient arrives",
    "frozen": "it does not require grad",
    "unused": "nothing that was captured is computed of it",
    "unreached": "no gradient arrives, and why was not recorded",
    "cut": "what was captured is computed of it, and no gradient comes back",
    "hidden": "it is not in the graph, and a function of the graph gives it its gradient",
    "zero": "the gradient that arrives is zero",
    "nonfinite": "the gradient that arrives is not finite",
    "nonleaf": "it is computed of others, and keeps no gradient of its own",
    "error": "the forward or the backward raises",
    "cleared": "its gradient was wiped before the optimizer's step",
    "wrong": "the gradient that arrives is not the derivative",
}
"""What can be said of a parameter, or of a tensor with a name."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of an explanation's records."""


class Cause(Record, frozen=True):
    """One reason why a gradient does not arrive as one may expect.

    ``level`` is ``error`` where a parameter that should learn does not, ``info`` for what may well be meant, and
    ``note`` for what no change of the program would mend. ``op`` is the operation or function, ``names`` are the
    parameters and tensors concerned, ``source`` is the line of the user's program and ``via`` the line of a library
    that it called. ``detail`` is what the framework itself says, or what else is known.

    >>> Cause("detach", "error", "detach", ("fc.weight",)).text
    'detach() cuts fc.weight'
    """

    kind: str
    level: Level
    op: str = ""
    names: tuple[str, ...] = ()
    source: Source | None = None
    via: Source | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        """What happened, in one sentence."""
        text = worded(self.kind, self.op, self.names).text
        return f"{text}: {printable(self.detail)}" if self.detail else text

    @property
    def advice(self) -> str:
        """What to do, in one sentence; empty where nothing is known."""
        return worded(self.kind, self.op, self.names).advice


class Term(Record, frozen=True):
    """A summand of the loss: the leaves that it gives a gradient, its variable, its operation and its line."""

    names: tuple[str, ...] = ()
    variable: str = ""
    op: str = ""
    source: Source | None = None


class Explanation(Record, frozen=True):
    """Which parameters get a gradient, and why the others get none.

    ``statuses`` has a word of `STATUSES` for every parameter and tensor by name, and ``tied`` the names that are of one
    tensor. It is true where there is something to tell, so `level` is not ``none``. Printed, it is the text of ``gradir
    explain``, and `to` gives the other forms.

    >>> found = Explanation({"fc.weight": "cut"}, (Cause("detach", "error", "detach", ("fc.weight",)),))
    >>> found.status("fc.weight"), found.level, bool(found)
    ('cut', 'error', True)
    """

    statuses: Mapping[str, str]
    causes: tuple[Cause, ...] = ()
    terms: tuple[Term, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()

    def joined(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names with those of one tensor as one.

        >>> Explanation({"e": "reached", "h": "reached"}, tied=(("e", "h"),)).joined(["e", "b", "h"])
        ('e = h', 'b')
        """
        listed = dict.fromkeys(names)
        together = {name: " = ".join(group) for group in self.tied if listed.keys() >= set(group) for name in group}
        return tuple(dict.fromkeys(together.get(name, name) for name in listed))

    @property
    def level(self) -> Level:
        """The highest level of a cause."""
        levels = {cause.level for cause in self.causes}
        return "error" if "error" in levels else "info" if "info" in levels else "none"

    def __bool__(self) -> bool:
        return self.level != "none"

    def status(self, name: str) -> str:
        """What is known of a parameter or tensor, by any of its names: a word of `STATUSES`.

        Raises:
            KeyError: nothing has this name.
        """
        return self.statuses[name]

    def allowing(self, patterns: Iterable[str]) -> Explanation:
        """The explanation with what is meant told as a note, which is no alarm.

        That is a cause whose kind a pattern matches, or each of whose names one does; ``*`` is any text, dots included.

        >>> found = Explanation({"ema.w": "cut"}, (Cause("detach", "error", "detach", ("ema.w",)),))
        >>> found.allowing(["ema.*"]).level, found.allowing(["detach"]).level, found.allowing(["fc.*"]).level
        ('none', 'none', 'error')
        """
        meant = [*patterns]

        def is_meant(text: str) -> bool:
            return any(fnmatchcase(text, pattern) for pattern in meant)

        causes = [
            replace(cause, level="note")
            if is_meant(cause.kind) or (cause.names and all(map(is_meant, cause.names)))
            else cause
            for cause in self.causes
        ]
        return replace(self, causes=tuple(causes))

    def to(self, format: str) -> str:
        """What ``gradir explain --format`` prints: ``text``, ``markdown`` or ``json``.

        Raises:
            ExportError: there is no such format, or a name holds what JSON cannot spell.
        """
        # As `gradir.Graph.to`: the forms are made of records, and import these.
        text: str = sys.modules["gradir.api"].explanation_text(self, format)
        return text

    def __str__(self) -> str:
        """What ``gradir explain`` prints, without the last line end."""
        return self.to("text").removesuffix("\n")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """What a notebook shows."""
        return {"text/plain": str(self), "text/markdown": self.to("markdown")}
