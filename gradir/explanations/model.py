"""An explanation is data: what each parameter gets, why some get nothing, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import chain
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from gradir.errors import GraphError
from gradir.explanations.verdict import verdict_of
from gradir.hints import did_you_mean
from gradir.ir import Graph, Source
from gradir.ir.frozen import NOTHING
from gradir.ir.text import printable
from gradir.overlays import MOST_OF_A_VERDICT, Channel, Look, Overlay
from gradir.vocabulary.causes import Words, worded

__all__ = [
    "STATUSES",
    "Allowed",
    "Cause",
    "Examined",
    "Excerpt",
    "Explanation",
    "Level",
    "OfGraph",
    "Term",
]

Level = Literal["none", "note", "info", "error"]

STATUSES: Final[Mapping[str, str]] = {
    "reached": "a gradient arrives",
    "frozen": "it does not require grad",
    "unused": "the loss does not depend on it",
    "unreached": "no gradient arrives, and why was not recorded",
    "cut": "the loss depends on it, and no gradient comes back",
    "hidden": "it is not in the graph, and a function of the graph gives it its gradient",
    "zero": "the gradient that arrives is zero",
    "nonfinite": "the gradient that arrives is not finite",
    "nonleaf": "it is computed from others, and keeps no gradient of its own",
    "error": "the forward or the backward raises",
    "cleared": "its gradient was wiped before the optimizer's step",
    "wrong": "the gradient that arrives is not the derivative",
}
"""What can be said of a parameter, or of a tensor with a name."""

_LOOKS: Final[Mapping[str, Look]] = {
    "reached": "good",
    "frozen": "quiet",
    "unused": "caution",
    "unreached": "caution",
    "hidden": "quiet",
    **dict.fromkeys(("cut", "zero", "nonfinite", "nonleaf", "error", "cleared", "wrong"), "alarm"),
}
_OFTEN_MEANT: Final = frozenset({"cut", "zero", "nonleaf"})
_MEANT: Final = ", may be meant"
LOOKS_OF_LEVELS: Final[Mapping[str, Look]] = {"error": "alarm", "info": "caution", "none": "quiet"}
_LOOKS_OF_GRADIENTS: Final[Mapping[str, Look]] = {"none": "quiet", "zero": "caution", "nonfinite": "alarm"}


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of an explanation's records."""


class Excerpt(Record, frozen=True):
    """A line of the user's program, with the columns of the operation in it: from ``start`` to before ``end``."""

    text: str
    start: int = 0
    end: int = 0


class Cause(Record, frozen=True):
    """One reason why a gradient does not arrive as one may expect.

    ``level`` is ``error`` where a parameter that should learn does not, ``info`` for what may well be meant, and
    ``note`` for what no change of the program would mend. ``op`` is the operation or function, ``names`` are the
    parameters and tensors concerned, ``source`` is the line of the user's program and ``via`` the line of a library
    that it called. ``detail`` is what is known beside: what the framework itself says, or which numbers and which other
    line did it. ``excerpt`` is the line ``source`` as the program has it, where it can be read. ``pattern`` is a word
    of `gradir.vocabulary.patterns.PATTERNS` that the cause belongs to, such as ``straight-through``. ``framework`` is
    the one whose functions the advice names, where it has words of its own.

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
    excerpt: Excerpt | None = None
    pattern: str = ""
    framework: str = ""

    @property
    def text(self) -> str:
        """What happened, in one sentence."""
        text = self.words().text
        return f"{text}: {printable(self.detail)}" if self.detail else text

    @property
    def advice(self) -> str:
        """What to do, in one sentence; empty where nothing is known."""
        return self.words().advice

    def words(self, *shown: Callable[[str], str], named: str = "") -> Words:
        """Return its sentence without the detail, and its advice.

        ``shown`` writes a name as a format needs it, and ``named`` stands for the names where a phrase is known.
        """
        is_lost = self.level == "error"
        return worded(
            self.kind,
            self.op,
            self.names,
            *shown,
            named=named,
            pattern=self.pattern,
            is_lost=is_lost,
            detail=self.detail,
            framework=self.framework,
        )


class Term(Record, frozen=True):
    """A summand of the loss: the leaves that it gives a gradient, its variable, its operation and its line.

    ``value`` is its number as the line computed it, before a factor that it has in the sum, where values were asked for
    and it is one number.
    """

    names: tuple[str, ...] = ()
    variable: str = ""
    op: str = ""
    source: Source | None = None
    value: float | Literal["nan", "inf", "-inf"] | None = None


class OfGraph(Record, frozen=True):
    """Where an explanation is in a graph: by id of the node the name of a parameter, and the gradient that comes."""

    names: Mapping[str, str]
    gradients: Mapping[str, float | str] = NOTHING


class Examined(Record, frozen=True, omit_defaults=False):
    """How far an explanation looked at the values of gradients.

    ``values`` is ``backward`` where a backward was run, ``grad`` where `.grad` was read after the program's own, and
    ``none`` where no value is known. ``reason`` says why it was not a backward, and ``advice`` how to get one.
    ``overwritten`` is false where a write to a saved tensor, unseen by the framework, could not be looked for.
    """

    values: Literal["backward", "grad", "none"] = "none"
    reason: str = ""
    advice: str = ""
    overwritten: bool = True


class Allowed(Record, frozen=True, omit_defaults=False):
    """A pattern of what is meant, where it is written, and how many causes it took part in allowing."""

    pattern: str
    where: str = ""
    causes: int = 0


class Explanation(Record, frozen=True, dict=True):
    """Which parameters get a gradient, and why the others get none.

    ``statuses`` has a word of `STATUSES` for every parameter and tensor by name, ``tied`` the names that are of one
    tensor, and ``allowed`` what was said to be meant. ``gradients`` has the norms of what arrives, or ``none``,
    ``zero`` or ``nonfinite``, ``of_graph`` is where all this is in the graph that was explained, and ``examined`` how
    far values were looked at. It is true where there is something to tell, so `level` is not ``none``. Printed, it is
    the text of ``gradir explain``, and `to` gives the other forms.

    >>> found = Explanation({"fc.weight": "cut"}, (Cause("detach", "error", "detach", ("fc.weight",)),))
    >>> found.status("fc.weight"), found.level, bool(found)
    ('cut', 'error', True)
    """

    statuses: Mapping[str, str]
    causes: tuple[Cause, ...] = ()
    terms: tuple[Term, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    gradients: Mapping[str, float | str] = NOTHING
    of_graph: OfGraph | None = None
    allowed: tuple[Allowed, ...] = ()
    examined: Examined = Examined()

    @property
    def verdict(self) -> str:
        """The answer in one line: how many parameters get a gradient, and the gravest reason why others do not.

        >>> cut = Cause("detach", "error", "detach", ("g.w", "g.b"), Source("gan.py", 5, "step"))
        >>> values = Examined("backward")
        >>> Explanation({"g.w": "cut", "g.b": "cut", "d.w": "reached"}, (cut,), examined=values).verdict
        '2 of 3 parameters get no gradient: detach() cuts all of g (gan.py:5 in step).'
        >>> Explanation({"w": "reached", "b": "reached"}, examined=values).verdict
        'Both parameters get a gradient.'
        """
        return verdict_of(self)

    def joined(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names with those of one tensor as one.

        >>> Explanation({"e": "reached", "h": "reached"}, tied=(("e", "h"),)).joined(["e", "b", "h"])
        ('e = h', 'b')
        """
        listed = dict.fromkeys(names)
        groups = dict.fromkeys(group for name in listed if (group := self._tied.get(name)))
        together = {
            name: " = ".join(group) for group in groups if all(name in listed for name in group) for name in group
        }
        return tuple(dict.fromkeys(together.get(name, name) for name in listed))

    @cached_property
    def _tied(self) -> Mapping[str, tuple[str, ...]]:
        return {name: group for group in self.tied for name in group}

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
        if name not in self.statuses:
            raise KeyError(f"no parameter or tensor {name!r}{did_you_mean(name, self.statuses)}")
        return self.statuses[name]

    def allowing(self, patterns: Iterable[str], where: str = "") -> Explanation:
        """The explanation with what is meant told as a note, which is no alarm.

        That is a cause whose kind a pattern matches, or each of whose names that lack their gradient one does; ``*`` is
        any text, dots included, and no other character stands for another. ``where`` says where the patterns are
        written.

        Raises:
            TypeError: ``patterns`` is one text, and no list of them.

        >>> found = Explanation({"ema.w": "cut"}, (Cause("detach", "error", "detach", ("ema.w",)),))
        >>> found.allowing(["ema.*"]).level, found.allowing(["detach"]).level, found.allowing(["fc.*"]).level
        ('none', 'none', 'error')
        """
        if isinstance(patterns, str):
            raise TypeError(f"patterns are a list, such as [{patterns!r}], and this is one text")
        patterns = list(patterns)
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise TypeError(f"a pattern is a text, and {pattern!r} is none")
        # What was allowed before may have been a part of the names of a cause.
        wanted = [*self.allowed, *(Allowed(pattern, where) for pattern in patterns)]
        matches = {(each.pattern, each.where): _matching(each.pattern) for each in wanted}
        texts = dict.fromkeys(chain(*((cause.kind, *cause.names) for cause in self.causes)))
        # Each once, since many causes may be about the same parameters.
        found = {text: [key for key, match in matches.items() if match(text)] for text in texts}
        causes, counts = list[Cause](), dict.fromkeys(matches, 0)
        for cause in self.causes:
            # What gets its gradient another way is not what the cause is told for.
            lacking = [name for name in cause.names if self.statuses.get(name) != "reached"] or cause.names
            of_kind, *of_names = (found[text] for text in (cause.kind, *lacking))
            is_meant = bool(of_kind or (of_names and all(of_names)))
            causes.append(replace(cause, level="note") if is_meant else cause)
            for key in {*of_kind, *chain(*of_names)} if is_meant else ():
                counts[key] += 1
        return replace(self, causes=tuple(causes), allowed=tuple(Allowed(*key, count) for key, count in counts.items()))

    def overlay(self, graph: Graph | None = None) -> Overlay:
        """What is to be drawn over a graph: the verdict, the status of each parameter, and gradients that are known.

        Without a graph it is for the one that was explained, as capturing the same tensors gives it, with the gradient
        that comes to each of its operations. In others, such as that of the forward, parameters are known by name.

        Raises:
            GraphError: nothing of the explanation is in the graph, or there was none.

        >>> from gradir.ir import Node
        >>> found = Explanation({"w": "zero"}).overlay(Graph.of([Node("w", names=("w",))]))
        >>> dict(found.channels[0].values)
        {'w': 'zero, may be meant'}
        """
        if graph is not None:
            return self.located_in(graph).overlay()
        if self.of_graph is None:
            raise GraphError(
                "what was explained has no autograd graph: take the overlay of the forward's graph (--graph forward)"
            )
        # What nobody calls an error may be meant.
        errors = frozenset(chain(*(cause.names for cause in self.causes if cause.level == "error")))
        statuses = {
            id_: f"{self.statuses[name]}{_MEANT if self.statuses[name] in _OFTEN_MEANT and name not in errors else ''}"
            for id_, name in self.of_graph.names.items()
        }
        looks = {word: _LOOKS.get(word, "caution") for word in statuses.values()}
        by_status = Channel("status", statuses, looks=looks)
        gradients = self.of_graph.gradients
        by_gradient = Channel("gradient", gradients, "norm", "log", _LOOKS_OF_GRADIENTS)
        verdict = self.verdict
        if len(verdict) > MOST_OF_A_VERDICT:
            verdict = f"{verdict[: MOST_OF_A_VERDICT - 1]}…"
        return Overlay((by_gradient, by_status) if gradients else (by_status,), verdict, LOOKS_OF_LEVELS[self.level])

    def located_in(self, graph: Graph) -> Explanation:
        """The explanation with its overlay that of another graph with the same parameters.

        Raises:
            GraphError: none of them is in the graph.
        """
        known = self.of_graph
        is_forward = graph.producer.options.get("graph") == "forward"
        if known and not is_forward and all(id_ in graph.nodes for id_ in (*known.names, *known.gradients)):
            return self
        names = {node.id: name for node in graph.nodes.values() for name in node.names if name in self.statuses}
        if not names:
            raise GraphError("no parameter of the explanation is in the graph: it is of something else")
        gradients = {id_: self.gradients[name] for id_, name in names.items() if name in self.gradients}
        return replace(self, of_graph=OfGraph(names, gradients))

    def to(self, format: str, *, all: bool = False) -> str:
        """Return what ``gradir explain --format`` prints: ``text``, ``markdown`` or ``json``.

        ``all`` writes out the notes, which are counted otherwise; JSON has them in any case.

        Raises:
            ExportError: there is no such format, or a name holds what JSON cannot spell.
        """
        # As `gradir.Graph.to`: the forms are made of records, and import these.
        text: str = sys.modules["gradir.api"].explanation_text(self, format, all=all)
        return text

    def __str__(self) -> str:
        """What ``gradir explain`` prints, without the last line end."""
        return self.to("text").removesuffix("\n")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": str(self), "text/markdown": self.to("markdown")}


def _matching(pattern: str) -> Callable[[str], bool]:
    """What tells whether a text is as a pattern says; names have brackets, so ``*`` alone is special."""
    first, *parts = pattern.split("*")
    if not parts:
        return pattern.__eq__
    *between, last = parts
    wanted = [part for part in between if part]

    def matches(text: str) -> bool:
        at, end = len(first), len(text) - len(last)
        if end < at or not (text.startswith(first) and text.endswith(last)):
            return False
        # The first place of each part leaves the most to the others.
        for part in wanted:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    return matches
