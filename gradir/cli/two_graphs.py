"""Compare programs and files by both of their graphs, autograd and forward."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.cli import comparing
from gradir.cli.report import one_line, report, write_shown
from gradir.errors import SpecError
from gradir.forwards import IGNORED, has_forward
from gradir.ir.marks import graph_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.cli.programs import Loaded
    from gradir.diffs.changes import Diff
    from gradir.ir import Graph

__all__ = ["TwoGraphs", "compare"]

# The forms that show both graphs; any other shows one.
_TOLD: Final = (comparing.TEXT, "markdown")

# Findings of which the forward graph knows nothing.
_OF_GRADIENT: Final = frozenset(
    {"cuts", "cut-added", "cut-removed", "lost-inputs", "gained-inputs", "frozen", "unfrozen", "unowned"}
)


class TwoGraphs(NamedTuple):
    """The diff of the autograd graphs, and that of the forward graphs or the reason why there is none."""

    autograd: Diff
    forward: Diff | None
    missing: str = ""

    def __bool__(self) -> bool:
        return bool(self.autograd) or self.has_other_forward

    @property
    def has_other_forward(self) -> bool:
        """Return whether the forward graphs differ."""
        return self.forward is not None and bool(self.forward)

    def show(self, options: argparse.Namespace) -> None:
        """Write the changes where the options say."""
        if options.format in _TOLD:
            write_shown(options.output, self._text(options).encode(), options.format)
            return
        if self.forward is None or not self.has_other_forward:
            comparing.show(self.autograd, options)
        elif self.autograd:
            report("the forward graph differs too; --format text or markdown shows both")
            comparing.show(self.autograd, options)
        else:
            report("the autograd graph has no difference; shown is the change of the forward graph")
            comparing.show(self.forward, options)

    def status(self, options: argparse.Namespace) -> int:
        """Return the status of the autograd graphs or, without a condition, 1 if the forward graphs differ."""
        if options.fail_on and self.has_other_forward and not self.autograd:
            report("the forward graph differs; --fail-on looks at the autograd graph alone")
        status = comparing.status_of(self.autograd, options)
        return status if options.fail_on else status or int(self.has_other_forward)

    def _text(self, options: argparse.Namespace) -> str:
        told = comparing.shown(self.autograd, options).decode()
        is_text = options.format == comparing.TEXT
        if not self:
            nothing = "" if self.forward is None else "### Autograd and forward graph: no difference\n"
            return (self._nothing() if is_text else nothing) or told
        if self.forward is None or not self.forward:
            return told
        from gradir.review.text import headline

        changed = comparing.shown(self.forward, options).decode()
        if not is_text:
            return f"{told}\n{changed.replace('### Autograd graph', '### Forward graph', 1)}"
        if not self.autograd:
            return f"no difference in the autograd graph; in the forward graph:\n\n{changed}"
        # Equal graphs deserve the sentence, if gradient flows alike.
        if not any(finding.kind in _OF_GRADIENT for finding in self.autograd.findings):
            same = [finding.text for finding in self.forward.findings if finding.kind == "same-result"]
            told = "\n".join([*same, told])
        if not (options.details or options.full):
            return f"{told}\nin the forward graph: {headline(self.forward)}; --details shows it\n"
        return f"{told}\nin the forward graph:\n\n{changed}"

    def _nothing(self) -> str:
        """Return the sentence for equal graphs, or an empty text if the comparison has its own."""
        sides = self.autograd.sides
        if sides is None or sides.in_shared_words:
            return ""
        if (kind := graph_kind(sides.before)) != "autograd":
            return f"no difference in the {kind} graph\n"
        if self.forward is None:
            why = one_line(self.missing)
            return f"no difference in the autograd graph; the forward graph was not compared: {why}\n"
        nodes = self.forward.sides.after.nodes.values() if self.forward.sides else ()
        opaque = sum(node.opaque for node in nodes)
        inside = f"; what runs inside {opaque} opaque operation{'s' * (opaque > 1)} was not compared" if opaque else ""
        return f"no difference in the autograd graph and the forward graph{inside}\n"


def compare(
    a: Loaded, b: Loaded, options: argparse.Namespace, programs: Sequence[str] = (), folder: str = ""
) -> TwoGraphs:
    """Compare both graphs of both sides, as far as both exist; ``programs`` run again in ``folder`` to find noise."""
    found = comparing.compared(a.graph, b.graph, options)
    if found and has_forward(a.graph) != has_forward(b.graph):
        report("only one graph was captured with its forward, where other operations may run; see --normalize")
    if a.forward is None or b.forward is None or options.vocabulary:
        is_left_out = options.graph == "autograd"
        return TwoGraphs(found, None, "--graph autograd leaves it out" if is_left_out else a.missing or b.missing)
    forward = comparing.diff_of(a.forward, b.forward, options, IGNORED)
    # Where only the forward graphs differ, random operations may be the reason, which differ in every run.
    if forward and not found and (other := _changing(options, programs, (a.forward, b.forward), folder)):
        return TwoGraphs(found, None, f"{other} gives another in every run")
    return TwoGraphs(found, forward)


def _changing(options: argparse.Namespace, programs: Sequence[str], forwards: Sequence[Graph], folder: str) -> str:
    """Return the program whose forward graph differs when it runs again, or an empty text."""
    from gradir.cli.subprocesses import capturing_apart

    with ExitStack() as running:
        runs = [
            (spec, graph, running.enter_context(capturing_apart(options, spec, folder)))
            for spec, graph in zip(programs, forwards, strict=True)
            if spec
        ]
        for spec, graph, again in runs:
            try:
                forward = again().forward
            except SpecError:
                # It ran a moment ago: whatever this is, the difference is told.
                continue
            if forward is not None and comparing.diff_of(graph, forward, options, IGNORED):
                return spec
    return ""
