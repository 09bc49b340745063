"""Share options, output and exit status among the commands that compare."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gradir.cli.plugin_options import add_option, given_options
from gradir.cli.report import add_colour, columns, one_line, report, wants_colour, write_shown
from gradir.errors import GradirError, SpecError
from gradir.forwards import IGNORED, has_forward
from gradir.ir.marks import graph_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.cli.parser import Parser
    from gradir.cli.programs import Loaded
    from gradir.diffs.changes import Diff
    from gradir.ir import Graph
    from gradir.protocols import Options

_NTH: Final = ("first", "second")
TEXT: Final = "text"


def add_options(parser: Parser) -> None:
    """Add the options that say how a diff is made and shown."""
    parser.tell_options(_options_of, "after --format NAME also that renderer's options")
    output, group = parser.group("output"), parser.group("comparison")
    form = output.add_argument("--format", metavar="NAME", default=TEXT)
    add_option(output, "renderer")
    output.add_argument("--details", action="store_true", help="text form: what changed in each module, however long")
    output.add_argument("--full", action="store_true", help="text form: list every change by itself")
    add_colour(output)
    ignored = group.add_argument("--ignore", metavar="FIELDS", action="append", default=[])
    group.add_argument("--normalize", action="store_true", help="ignore what another release of the framework changes")
    group.add_argument("--vocabulary", action="store_true", help="compare a model with its port to another framework")
    failing = group.add_argument("--fail-on", metavar="CONDITIONS")
    parser.add_later(lambda: _tell_names(form, ignored, failing))
    parser.set_defaults(output="-")


def check_options(options: argparse.Namespace) -> None:
    """Settle the format, and refuse wrong values before anything is loaded."""
    from gradir.cli.suffixes import format_of_diff
    from gradir.diffs.ignoring import check_names

    options.format = format_of_diff(options.output, options.format, TEXT)
    check_names(_ignored(options))
    if options.fail_on is not None:
        from gradir.review.conditions import parsed

        if not options.fail_on.strip():
            raise GradirError("--fail-on needs a condition, such as cuts; leave it out to fail on any difference")
        parsed(options.fail_on)
    if options.format != TEXT or options.option:
        from gradir import registry

        registry.renderer_options(_renderer(options.format), _values(options))


def diff_of(a: Graph, b: Graph, options: argparse.Namespace, also_ignored: Sequence[str] = ()) -> Diff:
    """Return the diff that the options ask for."""
    from gradir.review.reviewing import reviewed

    ignored = [*_ignored(options), *also_ignored]
    return reviewed(a, b, ignore=ignored, normalize=options.normalize, vocabulary=options.vocabulary)


def compared(a: Graph, b: Graph, options: argparse.Namespace) -> Diff:
    """Return the diff, and report if another release or other options made one of the graphs."""
    found = diff_of(a, b, options)
    made = [(graph.producer.framework, graph.producer.framework_version) for graph in (a, b)]
    if all(name for name, _ in made) and made[0] != made[1]:
        hint = ""
        if not options.vocabulary and made[0][0] != made[1][0]:
            hint = "; --vocabulary compares in words that both share"
        elif not options.vocabulary and not options.normalize:
            hint = "; --normalize leaves out what that changes"
        report(f"comparing a graph of {' '.join(made[0])} with one of {' '.join(made[1])}{hint}")
    noted = [any(node.source is not None for node in graph.nodes.values()) for graph in (a, b)]
    if noted[0] != noted[1] and not options.vocabulary and "source" not in _ignored(options):
        report(
            f"only the {_NTH[noted.index(True)]} graph has source lines; --ignore source,names leaves out what they add"
        )
    return found


def show(diff: Diff, options: argparse.Namespace) -> None:
    """Write a diff where the options say."""
    write_shown(options.output, shown(diff, options), options.format)


def status_of(diff: Diff, options: argparse.Namespace) -> int:
    """Return the exit status, 1 for a difference or for a condition that holds, and report the condition."""
    if not options.fail_on:
        return 1 if diff else 0
    from gradir.review.conditions import outcomes, parsed

    found = list(outcomes(diff, parsed(options.fail_on)))
    for outcome in found:
        report(outcome.text)
    return int(any(outcome.fails for outcome in found))


def _options_of(namespace: argparse.Namespace) -> tuple[str, type[Options]] | None:
    name = namespace.format
    if name is None:
        return None
    from gradir import registry

    return name, registry.renderer(_renderer(name)).options


def _ignored(options: argparse.Namespace) -> list[str]:
    return [name for words in options.ignore for name in words.split(",")]


def shown(diff: Diff, options: argparse.Namespace) -> bytes:
    """Return the diff in the form that the options choose."""
    values = _values(options)
    if options.format == TEXT and not options.option:
        # Not by the registry: to find what else there is takes longer than to write a small diff.
        from gradir.renderers.reports import TextOptions, TextRenderer

        return TextRenderer().render(diff, TextOptions(**values)).encode()
    from gradir import registry
    from gradir.renderers.diagrams import PictureOptions

    renderer = _renderer(options.format)
    is_drawn = issubclass(registry.renderer(renderer).options, PictureOptions)
    if is_drawn and diff and not any(change.subject in {"node", "cut"} for change in diff.changes):
        report("no node changed by itself: there is nothing to draw; --format text says what there is")
    text = registry.rendered(renderer, diff, values)
    if options.format == renderer:
        return text.encode()
    from gradir.pictures import render

    return render(text, options.format)


def _renderer(name: str) -> str:
    """Return the renderer of a format; pictures are drawn from the text of ``dot``."""
    from gradir import registry

    return "dot" if name == registry.DRAWN and name not in registry.renderer_names() else name


def _values(options: argparse.Namespace) -> dict[str, Any]:
    values = given_options(options)
    if options.format == TEXT:
        told = {"details": options.details, "full": options.full}
        return {**told, "color": wants_colour(options), "width": columns(options), **values}
    from gradir import registry

    if "before" in registry.renderer(_renderer(options.format)).options.__struct_fields__:
        values = {**dict(zip(("before", "after"), getattr(options, "names", ()), strict=False)), **values}
    return {"legend": True, **values} if options.format != _renderer(options.format) else values


def _tell_names(form: argparse.Action, ignored: argparse.Action, failing: argparse.Action) -> None:
    """Write the help of options that take names, which their declarations list."""
    from gradir import registry
    from gradir.diffs.ignoring import WHOLE
    from gradir.review.conditions import METRICS

    names = ", ".join(sorted({*registry.renderer_names(), registry.DRAWN}, key=lambda name: (name != TEXT, name)))
    default = f"by the suffix of -o, or {TEXT}" if form.default is None else TEXT
    form.help = f"{names} (default: {default})".replace("%", "%%")
    ignored.help = f"ignore fields, e.g. source,attrs.eps,saved; also {', '.join(WHOLE)}"
    metrics = ", ".join(METRICS)
    failing.help = f"exit with 1 only for these, e.g. params,nodes>5%%; of {metrics}"


# The forms that show both graphs; any other shows one.
_TOLD: Final = (TEXT, "markdown")

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
            show(self.autograd, options)
        elif self.autograd:
            report("the forward graph differs too; --format text or markdown shows both")
            show(self.autograd, options)
        else:
            report("the autograd graph has no difference; shown is the change of the forward graph")
            show(self.forward, options)

    def status(self, options: argparse.Namespace) -> int:
        """Return the status of the autograd graphs or, without a condition, 1 if the forward graphs differ."""
        if options.fail_on and self.has_other_forward and not self.autograd:
            report("the forward graph differs; --fail-on looks at the autograd graph alone")
        status = status_of(self.autograd, options)
        return status if options.fail_on else status or int(self.has_other_forward)

    def _text(self, options: argparse.Namespace) -> str:
        told = shown(self.autograd, options).decode()
        is_text = options.format == TEXT
        if not self:
            nothing = "" if self.forward is None else "### Autograd and forward graph: no difference\n"
            return (self._nothing() if is_text else nothing) or told
        if self.forward is None or not self.forward:
            return told
        from gradir.review.text import headline

        changed = shown(self.forward, options).decode()
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
    found = compared(a.graph, b.graph, options)
    if found and has_forward(a.graph) != has_forward(b.graph):
        report("only one graph was captured with its forward, where other operations may run; see --normalize")
    if a.forward is None or b.forward is None or options.vocabulary:
        is_left_out = options.graph == "autograd"
        return TwoGraphs(found, None, "--graph autograd leaves it out" if is_left_out else a.missing or b.missing)
    forward = diff_of(a.forward, b.forward, options, IGNORED)
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
            if forward is not None and diff_of(graph, forward, options, IGNORED):
                return spec
    return ""
