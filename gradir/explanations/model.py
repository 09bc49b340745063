"""The records of an explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import chain
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from gradir.errors import GraphError, did_you_mean
from gradir.explanations.verdict import verdict_of
from gradir.ir import Graph, Source
from gradir.ir.frozen import NOTHING
from gradir.ir.text import escape_unprintable
from gradir.overlays import MOST_OF_A_VERDICT, Channel, Look, Overlay
from gradir.vocabulary.causes import CauseText, describe_cause

__all__ = ["STATUSES", "Allowed", "ByNode", "Cause", "Examined", "Excerpt", "Explanation", "Level", "Term"]

Level = Literal["none", "note", "info", "error"]

STATUSES: Final[Mapping[str, str]] = {
    "reached": "a gradient arrives",
    "frozen": "it does not require grad",
    "unused": "the loss does not depend on it",
    "unreached": "no gradient arrives, and the reason was not recorded",
    "cut": "the loss depends on it, but no gradient arrives",
    "hidden": "it is not in the graph, and a function of the graph gives it its gradient",
    "zero": "the gradient that arrives is zero",
    "nonfinite": "the gradient that arrives is not finite",
    "nonleaf": "it is computed from other tensors and retains no gradient",
    "error": "the forward or the backward raises",
    "cleared": "its gradient was cleared before the optimizer's step",
    "wrong": "the gradient that arrives is not the derivative",
}
"""The statuses of a parameter or of a tensor with a name, and their meanings."""

_LOOKS: Final[Mapping[str, Look]] = {
    "reached": "good",
    "frozen": "quiet",
    "unused": "caution",
    "unreached": "caution",
    "hidden": "quiet",
    **dict.fromkeys(("cut", "zero", "nonfinite", "nonleaf", "error", "cleared", "wrong"), "alarm"),
}
_OFTEN_MEANT: Final = frozenset({"cut", "zero", "nonleaf"})
_MEANT: Final = ", may be intended"
LOOKS_OF_LEVELS: Final[Mapping[str, Look]] = {"error": "alarm", "info": "caution", "none": "quiet"}
_LOOKS_OF_GRADIENTS: Final[Mapping[str, Look]] = {"none": "quiet", "zero": "caution", "nonfinite": "alarm"}


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of an explanation's records."""


class Excerpt(Record, frozen=True):
    """A line of the user's program, with the columns of the operation from ``start`` to before ``end``."""

    text: str
    start: int = 0
    end: int = 0


class Cause(Record, frozen=True):
    """A reason why a gradient does not arrive as expected.

    ``level`` is ``error`` if a parameter does not learn, ``info`` if the cut may be intended, and ``note`` otherwise.
    ``op`` is the operation, ``names`` the parameters and tensors, ``source`` the line of the program and ``via`` that
    of a library. ``detail`` has further facts, and ``excerpt`` the text of the line. ``pattern`` is a word of
    `gradir.vocabulary.patterns.PATTERNS`.

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
        """Return a sentence that says what happened."""
        text = self.words().text
        return f"{text}: {escape_unprintable(self.detail)}" if self.detail else text

    @property
    def advice(self) -> str:
        """Return the advice in one sentence, or an empty text."""
        return self.words().advice

    def words(self, *shown: Callable[[str], str], named: str = "") -> CauseText:
        """Return the sentence without the detail, and the advice; ``shown`` formats names, ``named`` replaces them."""
        return describe_cause(
            self.kind,
            self.op,
            self.names,
            *shown,
            named=named,
            pattern=self.pattern,
            is_lost=self.level == "error",
            detail=self.detail,
            framework=self.framework,
        )


class Term(Record, frozen=True):
    """A summand of the loss: the leaves that it gives a gradient, its variable, its operation and its line.

    ``value`` is its number before a factor in the sum, if known.
    """

    names: tuple[str, ...] = ()
    variable: str = ""
    op: str = ""
    source: Source | None = None
    value: float | Literal["nan", "inf", "-inf"] | None = None


class ByNode(Record, frozen=True):
    """The names of parameters and the gradients by id of the node."""

    names: Mapping[str, str]
    gradients: Mapping[str, float | str] = NOTHING


class Examined(Record, frozen=True, omit_defaults=False):
    """How far an explanation examined the values of gradients.

    ``values`` is ``backward`` (a backward pass ran), ``grad`` (`.grad` was read) or ``none``. ``reason`` says why no
    backward pass ran, and ``advice`` how to get one.
    """

    values: Literal["backward", "grad", "none"] = "none"
    reason: str = ""
    advice: str = ""
    overwritten: bool = True


class Allowed(Record, frozen=True, omit_defaults=False):
    """A pattern of expected cuts, the place where it is written, and the number of causes that it allows."""

    pattern: str
    where: str = ""
    causes: int = 0


class Explanation(Record, frozen=True, dict=True):
    """The parameters that get a gradient, and the reasons why others get none.

    ``statuses`` has a word of `STATUSES` for every name, ``tied`` the names of one tensor, and ``allowed`` the
    patterns of expected cuts. ``gradients`` has the norms, or ``none``, ``zero`` or ``nonfinite``. It is true if
    `level` is not ``none``. Printing it gives the text of ``gradir explain``.

    >>> found = Explanation({"fc.weight": "cut"}, (Cause("detach", "error", "detach", ("fc.weight",)),))
    >>> found.status("fc.weight"), found.level, bool(found)
    ('cut', 'error', True)
    """

    statuses: Mapping[str, str]
    causes: tuple[Cause, ...] = ()
    terms: tuple[Term, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    gradients: Mapping[str, float | str] = NOTHING
    by_node: ByNode | None = None
    allowed: tuple[Allowed, ...] = ()
    examined: Examined = Examined()

    @property
    def verdict(self) -> str:
        """Return the answer in one line: how many parameters get a gradient, and the gravest cause.

        >>> cut = Cause("detach", "error", "detach", ("g.w", "g.b"), Source("gan.py", 5, "step"))
        >>> values = Examined("backward")
        >>> Explanation({"g.w": "cut", "g.b": "cut", "d.w": "reached"}, (cut,), examined=values).verdict
        '2 of 3 parameters get no gradient: detach() cuts all of g (gan.py:5 in step).'
        >>> Explanation({"w": "reached", "b": "reached"}, examined=values).verdict
        'Both parameters get a gradient.'
        """
        return verdict_of(self)

    def join_tied(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names, with those of one tensor joined.

        >>> Explanation({"e": "reached", "h": "reached"}, tied=(("e", "h"),)).join_tied(["e", "b", "h"])
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
        """Return the highest level of a cause."""
        levels = {cause.level for cause in self.causes}
        return "error" if "error" in levels else "info" if "info" in levels else "none"

    def __bool__(self) -> bool:
        return self.level != "none"

    def status(self, name: str) -> str:
        """Return the status of a parameter or tensor by any of its names, a word of `STATUSES`.

        Raises:
            KeyError: the name is unknown.
        """
        if name not in self.statuses:
            raise KeyError(f"no parameter or tensor {name!r}{did_you_mean(name, self.statuses)}")
        return self.statuses[name]

    def allow(self, patterns: Iterable[str], where: str = "") -> Explanation:
        """Return the explanation with expected causes as notes.

        A pattern matches the kind of a cause, or each of its names without a gradient; ``*`` is any text. ``where``
        says where the patterns are written.

        Raises:
            TypeError: ``patterns`` is a text, not a list.

        >>> found = Explanation({"ema.w": "cut"}, (Cause("detach", "error", "detach", ("ema.w",)),))
        >>> found.allow(["ema.*"]).level, found.allow(["detach"]).level, found.allow(["fc.*"]).level
        ('none', 'none', 'error')
        """
        if isinstance(patterns, str):
            raise TypeError(f"patterns are a list, such as [{patterns!r}], and this is one text")
        patterns = list(patterns)
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise TypeError(f"expected a pattern as text, got {pattern!r}")
        # Earlier patterns may match some names of a cause, and the new ones the others.
        wanted = [*self.allowed, *(Allowed(pattern, where) for pattern in patterns)]
        matches = {(each.pattern, each.where): _compile_pattern(each.pattern) for each in wanted}
        # Match each text once, since many causes may have the same names.
        texts = dict.fromkeys(chain(*((cause.kind, *cause.names) for cause in self.causes)))
        found = {text: [key for key, match in matches.items() if match(text)] for text in texts}
        causes, counts = list[Cause](), dict.fromkeys(matches, 0)
        for cause in self.causes:
            # The cause does not concern names that get a gradient another way.
            lacking = [name for name in cause.names if self.statuses.get(name) != "reached"] or cause.names
            of_kind, *of_names = (found[text] for text in (cause.kind, *lacking))
            is_allowed = bool(of_kind or (of_names and all(of_names)))
            causes.append(replace(cause, level="note") if is_allowed else cause)
            for key in {*of_kind, *chain(*of_names)} if is_allowed else ():
                counts[key] += 1
        return replace(self, causes=tuple(causes), allowed=tuple(Allowed(*key, count) for key, count in counts.items()))

    def overlay(self, graph: Graph | None = None) -> Overlay:
        """Return the overlay for a graph: the verdict, the status of each parameter, and known gradients.

        Without a graph it is for the explained one. In other graphs only parameters have values.

        Raises:
            GraphError: the graph has no parameter of the explanation, or there is no graph.

        >>> from gradir.ir import Node
        >>> found = Explanation({"w": "zero"}).overlay(Graph.of([Node("w", names=("w",))]))
        >>> dict(found.channels[0].values)
        {'w': 'zero, may be intended'}
        """
        if graph is not None:
            return self.locate_in(graph).overlay()
        if self.by_node is None:
            raise GraphError(
                "the explained program has no autograd graph; use the overlay of its forward graph (--graph forward)"
            )
        # A cut without an error may be intended.
        errors = frozenset(chain(*(cause.names for cause in self.causes if cause.level == "error")))
        statuses = {
            id_: f"{self.statuses[name]}{_MEANT if self.statuses[name] in _OFTEN_MEANT and name not in errors else ''}"
            for id_, name in self.by_node.names.items()
        }
        looks = {word: _LOOKS.get(word, "caution") for word in statuses.values()}
        channels = [Channel("status", statuses, looks=looks)]
        if gradients := self.by_node.gradients:
            channels.insert(0, Channel("gradient", gradients, "norm", "log", _LOOKS_OF_GRADIENTS))
        verdict = self.verdict
        if len(verdict) > MOST_OF_A_VERDICT:
            verdict = f"{verdict[: MOST_OF_A_VERDICT - 1]}…"
        return Overlay(tuple(channels), verdict, LOOKS_OF_LEVELS[self.level])

    def locate_in(self, graph: Graph) -> Explanation:
        """Return the explanation with its overlay for another graph, which must have one of the parameters."""
        known = self.by_node
        is_forward = graph.producer.options.get("graph") == "forward"
        if known and not is_forward and all(id_ in graph.nodes for id_ in (*known.names, *known.gradients)):
            return self
        names = {node.id: name for node in graph.nodes.values() for name in node.names if name in self.statuses}
        if not names:
            raise GraphError("no parameter of the explanation is in the graph: it is of something else")
        gradients = {id_: self.gradients[name] for id_, name in names.items() if name in self.gradients}
        return replace(self, by_node=ByNode(names, gradients))

    def to(self, format: str, *, all: bool = False) -> str:
        """Return the output of ``gradir explain --format``: ``text``, ``markdown`` or ``json``.

        ``all`` prints the notes too; JSON always has them.

        Raises:
            ExportError: the format is unknown, or JSON cannot represent a name.
        """
        # Not above, since that module imports this one.
        from gradir.explanations.formats import Layout, format_explanation

        return format_explanation(self, format, Layout(all))

    def __str__(self) -> str:
        """Return the output of ``gradir explain``, without the last line end."""
        return self.to("text").removesuffix("\n")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": str(self), "text/markdown": self.to("markdown")}


def _compile_pattern(pattern: str) -> Callable[[str], bool]:
    # fnmatch would also interpret `?` and `[`.
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
