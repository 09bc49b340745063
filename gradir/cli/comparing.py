"""Share options, output and exit status among the commands that compare."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gradir.cli.plugin_options import add_option, read_options
from gradir.cli.report import add_colour, find_columns, one_line, report, wants_colour, write_output
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

TEXT: Final = "text"
# The formats that show both graphs; any other shows one.
_SHOWS_BOTH: Final = (TEXT, "markdown")
# Findings that only an autograd graph can have.
_GRADIENT_KINDS: Final = frozenset(
    {"cuts", "cut-added", "cut-removed", "lost-inputs", "gained-inputs", "frozen", "unfrozen", "unowned"}
)


def add_options(parser: Parser) -> None:
    """Add the options of a diff and its output."""
    parser.tell_options(_find_options, "after --format NAME also that renderer's options")
    output, group = parser.group("output"), parser.group("comparison")
    form = output.add_argument("--format", metavar="NAME", default=TEXT)
    add_option(output, "renderer")
    output.add_argument("--details", action="store_true", help="text form: list changes in each module, however long")
    output.add_argument("--full", action="store_true", help="text form: list every change by itself")
    add_colour(output)
    ignored = group.add_argument("--ignore", metavar="FIELDS", action="append", default=[])
    group.add_argument("--normalize", action="store_true", help="ignore changes by another release of the framework")
    group.add_argument("--vocabulary", action="store_true", help="compare a model with its port to another framework")
    failing = group.add_argument("--fail-on", metavar="CONDITIONS")
    parser.add_later(lambda: _set_help(form, ignored, failing))
    parser.set_defaults(output="-")


def check_options(options: argparse.Namespace) -> None:
    """Choose the format, and refuse wrong values before gradir loads a graph."""
    from gradir.cli.suffixes import find_diff_format
    from gradir.diffs.ignoring import check_names

    options.format = find_diff_format(options.output, options.format, TEXT)
    check_names(_split_ignored(options))
    if options.fail_on is not None:
        from gradir.review.conditions import parse_conditions

        if not options.fail_on.strip():
            raise GradirError("--fail-on needs a condition, such as cuts; leave it out to fail on any difference")
        parse_conditions(options.fail_on)
    if options.format != TEXT or options.option:
        from gradir import registry

        registry.renderer_options(_find_renderer(options.format), _make_renderer_options(options))


def make_diff(a: Graph, b: Graph, options: argparse.Namespace, also_ignored: Sequence[str] = ()) -> Diff:
    """Compare two graphs with the options of a command."""
    from gradir.review.reviewing import review_graphs

    ignored = [*_split_ignored(options), *also_ignored]
    return review_graphs(a, b, ignore=ignored, normalize=options.normalize, vocabulary=options.vocabulary)


def compare_and_warn(a: Graph, b: Graph, options: argparse.Namespace) -> Diff:
    """Return the diff, and report if another release or other options made one of the graphs."""
    diff = make_diff(a, b, options)
    first, second = ((graph.producer.framework, graph.producer.framework_version) for graph in (a, b))
    if first[0] and second[0] and first != second:
        hint = ""
        if not options.vocabulary and first[0] != second[0]:
            hint = "; --vocabulary compares in words that both share"
        elif not options.vocabulary and not options.normalize:
            hint = "; --normalize ignores these changes"
        report(f"comparing a graph of {' '.join(first)} with one of {' '.join(second)}{hint}")
    has_lines = [any(node.source is not None for node in graph.nodes.values()) for graph in (a, b)]
    if has_lines[0] != has_lines[1] and not options.vocabulary and "source" not in _split_ignored(options):
        nth = "first" if has_lines[0] else "second"
        report(f"only the {nth} graph has source lines; --ignore source,names ignores the difference")
    return diff


def write_diff(diff: Diff, options: argparse.Namespace) -> None:
    """Write a diff to the output and in the format of the options."""
    write_output(options.output, render_diff(diff, options), options.format)


def choose_status(diff: Diff, options: argparse.Namespace) -> int:
    """Return the exit status: 1 for a difference or for a true condition, which is reported."""
    if not options.fail_on:
        return 1 if diff else 0
    from gradir.review.conditions import judge_conditions, parse_conditions

    status = 0
    for outcome in judge_conditions(diff, parse_conditions(options.fail_on)):
        report(outcome.text)
        status = status or int(outcome.fails)
    return status


def _find_options(namespace: argparse.Namespace) -> tuple[str, type[Options]] | None:
    name = namespace.format
    if name is None:
        return None
    from gradir import registry

    return name, registry.renderer(_find_renderer(name)).options


def _split_ignored(options: argparse.Namespace) -> list[str]:
    return [name for words in options.ignore for name in words.split(",")]


def render_diff(diff: Diff, options: argparse.Namespace) -> bytes:
    """Return the diff in the format of the options."""
    values = _make_renderer_options(options)
    if options.format == TEXT and not options.option:
        # Searching for plug-ins takes longer than writing a small diff.
        from gradir.renderers.reports import TextOptions, TextRenderer

        return TextRenderer().render(diff, TextOptions(**values)).encode()
    from gradir import registry
    from gradir.renderers.diagrams import PictureOptions

    renderer = _find_renderer(options.format)
    is_drawn = issubclass(registry.renderer(renderer).options, PictureOptions)
    if is_drawn and diff and not any(change.subject in {"node", "cut"} for change in diff.changes):
        report("cannot draw the diff: no node changed; use --format text")
    text = registry.render(renderer, diff, values)
    if options.format == renderer:
        return text.encode()
    from gradir.pictures import render

    return render(text, options.format)


def _find_renderer(name: str) -> str:
    """Return the renderer of a format; pictures are drawn from the text of ``dot``."""
    from gradir import registry

    return "dot" if name == registry.DRAWN and name not in registry.renderer_names() else name


def _make_renderer_options(options: argparse.Namespace) -> dict[str, Any]:
    values = read_options(options)
    if options.format == TEXT:
        shown = {"details": options.details, "full": options.full}
        return {**shown, "color": wants_colour(options), "width": find_columns(options), **values}
    from gradir import registry

    if "before" in registry.renderer(_find_renderer(options.format)).options.__struct_fields__:
        values = {**dict(zip(("before", "after"), getattr(options, "names", ()), strict=False)), **values}
    return {"legend": True, **values} if options.format != _find_renderer(options.format) else values


def _set_help(form: argparse.Action, ignored: argparse.Action, failing: argparse.Action) -> None:
    """Write the help of the options that take names of renderers, fields or metrics."""
    from gradir import registry
    from gradir.diffs.ignoring import WHOLE
    from gradir.review.conditions import METRICS

    names = ", ".join(sorted({*registry.renderer_names(), registry.DRAWN}, key=lambda name: (name != TEXT, name)))
    default = f"by the suffix of -o, or {TEXT}" if form.default is None else TEXT
    form.help = f"{names} (default: {default})".replace("%", "%%")
    ignored.help = f"ignore fields, e.g. source,attrs.eps,saved; also {', '.join(WHOLE)}"
    metrics = ", ".join(METRICS)
    failing.help = f"exit with 1 only for these, e.g. params,nodes>5%%; of {metrics}"


class TwoDiffs(NamedTuple):
    """The diff of the autograd graphs, and that of the forward graphs or the reason why it is missing."""

    autograd: Diff
    forward: Diff | None
    missing: str = ""

    def __bool__(self) -> bool:
        return bool(self.autograd or self.forward)

    def write(self, options: argparse.Namespace) -> None:
        """Write the changes to the output and in the format of the options."""
        if options.format in _SHOWS_BOTH:
            write_output(options.output, self._render(options).encode(), options.format)
        elif not self.forward:
            write_diff(self.autograd, options)
        elif self.autograd:
            report("the forward graph differs too; --format text or markdown shows both")
            write_diff(self.autograd, options)
        else:
            report("the autograd graph has no difference; shown is the change of the forward graph")
            write_diff(self.forward, options)

    def choose_status(self, options: argparse.Namespace) -> int:
        """Return the status of the autograd graphs or, without a condition, 1 if the forward graphs differ."""
        if options.fail_on and self.forward and not self.autograd:
            report("the forward graph differs; --fail-on looks at the autograd graph alone")
        status = choose_status(self.autograd, options)
        return status if options.fail_on else status or int(bool(self.forward))

    def _render(self, options: argparse.Namespace) -> str:
        autograd = render_diff(self.autograd, options).decode()
        is_text = options.format == TEXT
        if not self:
            equal = "" if self.forward is None else "### Autograd and forward graph: no difference\n"
            return (self._describe_equal() if is_text else equal) or autograd
        if not self.forward:
            return autograd
        from gradir.review.text import headline

        forward = render_diff(self.forward, options).decode()
        if not is_text:
            return f"{autograd}\n{forward.replace('### Autograd graph', '### Forward graph', 1)}"
        if not self.autograd:
            return f"no difference in the autograd graph; in the forward graph:\n\n{forward}"
        # If gradients flow in the same way, say that the result is the same.
        if not any(finding.kind in _GRADIENT_KINDS for finding in self.autograd.findings):
            same = [finding.text for finding in self.forward.findings if finding.kind == "same-result"]
            autograd = "\n".join([*same, autograd])
        if not (options.details or options.full):
            return f"{autograd}\nin the forward graph: {headline(self.forward)}; --details shows it\n"
        return f"{autograd}\nin the forward graph:\n\n{forward}"

    def _describe_equal(self) -> str:
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
        inside = (
            f"; gradir did not compare the inside of {opaque} opaque operation{'s' * (opaque > 1)}" if opaque else ""
        )
        return f"no difference in the autograd graph and the forward graph{inside}\n"


def compare_both(a: Loaded, b: Loaded, options: argparse.Namespace, programs: Sequence[str], folder: str) -> TwoDiffs:
    """Compare the autograd and forward graphs of two sides; ``programs`` run again in ``folder`` to find noise."""
    autograd = compare_and_warn(a.graph, b.graph, options)
    if autograd and has_forward(a.graph) != has_forward(b.graph):
        report("only one graph was captured with its forward, where other operations may run; see --normalize")
    if a.forward is None or b.forward is None or options.vocabulary:
        is_left_out = options.graph == "autograd"
        return TwoDiffs(autograd, None, "--graph autograd leaves it out" if is_left_out else a.missing or b.missing)
    forward = make_diff(a.forward, b.forward, options, IGNORED)
    # If only the forward graphs differ, the reason may be random operations, which differ in every run.
    if forward and not autograd and (spec := _find_random(options, programs, (a.forward, b.forward), folder)):
        return TwoDiffs(autograd, None, f"{spec} gives another in every run")
    return TwoDiffs(autograd, forward)


def _find_random(options: argparse.Namespace, programs: Sequence[str], forwards: Sequence[Graph], folder: str) -> str:
    """Return the program whose forward graph differs when it runs again, or an empty text."""
    from gradir.cli.subprocesses import capture_apart

    with ExitStack() as running:
        runs = [
            (spec, graph, running.enter_context(capture_apart(options, spec, folder)))
            for spec, graph in zip(programs, forwards, strict=True)
            if spec
        ]
        for spec, graph, finish in runs:
            forward = None
            # The program ran a moment ago, so report the difference whatever this error is.
            with suppress(SpecError):
                forward = finish().forward
            if forward is not None and make_diff(graph, forward, options, IGNORED):
                return spec
    return ""
