"""``gradir export``: from a ``.gir`` file to any format."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.cli.capturing import (
    RAISED,
    add_graph_option,
    add_noting_options,
    add_run_options,
    captured_so_far,
    check_is_graph_file,
    names_file,
    running_program,
)
from gradir.cli.parser import Parser, add_output
from gradir.cli.plugin_options import add_option, add_pass_options, chosen_passes, given_options
from gradir.cli.report import is_terminal, one_line, report
from gradir.cli.suffixes import check_suffix, format_of
from gradir.errors import ExportError
from gradir.pictures import PICTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradir.files import Located
    from gradir.ir import Graph
    from gradir.overlays import Overlay
    from gradir.protocols import Options

__all__ = [
    "DESCRIPTION",
    "EPILOG",
    "HELP",
    "add_exporter_options",
    "add_options",
    "exporter_values",
    "graph_to_draw",
    "run",
]

HELP = "export a graph to DOT, Mermaid, a tree, text, ..."
DESCRIPTION = (
    "Write a graph in another format: that of a .gir file, or of a program, path/to/file.py:attr or "
    "package.module:attr, which is run as by 'gradir capture'. The format is that of --to, or the one that the name "
    "of -o FILE ends in."
)

EPILOG = f"""\
examples:
  gradir export model.gir --to mermaid --depth 2 -o model.mmd
  gradir export model.gir -o model.svg
  gradir export train.py:loss --sources -o loss.html
  gradir export model.gir --to svg -O theme=dark -O legend=true -o model.svg
  gradir export model.gir --to tree --drop accumulate_grad --hide-shape-ops --rollup
  gradir export model.gir --to mermaid --focus 'h.3.attn' --hops 2
  gradir export model.gir --to mermaid --depth 1 --into README.md --marker model
  gradir export model.gir --to svg --overlay gradients.json -o model.svg

With --into, the block between the lines
  <!-- gradir: model -->
  <!-- /gradir: model -->
of a Markdown file is replaced; with --check it is compared, and exit status 1 says that it is out of date. The two
lines do not count inside a code block or other HTML. What is Markdown itself goes in as it is, all else fenced.

'gradir exporters' lists the formats, 'gradir export --to NAME --help' the options of one.
{", ".join(PICTURES)} are pictures and take the options of dot; pdf needs Graphviz.
"""

_LONGEST_NAME: Final = 80
"""Characters of the name of a channel."""
_LONGEST: Final = 1_000_000
"""Seconds; what waits for a program takes about twice as many."""

_MARKDOWN: Final = ".md"
_LANGUAGES: Final = {".mmd": "mermaid", ".txt": "text", ".graphml": "xml", _MARKDOWN: "markdown"}


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    parser.tell_options(_options_of, "after --to NAME also that exporter's options")
    parser.add_argument(
        "file", metavar="FILE|SPEC", help="a .gir file ('-' is standard input), or what to capture and write"
    )
    parser.add_argument(
        "--to", metavar="NAME", help=f"the exporter, or {', '.join(PICTURES)} (default: what the name of -o ends in)"
    )
    add_output(parser)
    add_exporter_options(parser)
    parser.add_argument(
        "--no-fold", action="store_true", help="mermaid: fail where Mermaid would refuse the size, and fold nothing"
    )
    add_pass_options(parser)
    block = parser.add_argument_group("into Markdown")
    block.add_argument("--fence", action="store_true", help="write a fenced code block")
    block.add_argument("--into", metavar="FILE", help="put the block between two markers in this file")
    block.add_argument("--marker", metavar="NAME", help="the name in the markers")
    block.add_argument("--check", action="store_true", help="write nothing; exit status 1 when --into is out of date")
    add_run_options(parser, tell=False)
    add_noting_options(parser)
    add_graph_option(parser, "write of a program")
    parser.set_defaults(verify=False, raised="")


def add_exporter_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that reach the exporter, the overlay, and the time limit of pictures."""
    add_option(parser, "exporter")
    parser.add_argument(
        "--overlay",
        metavar="FILE",
        action="append",
        default=[],
        help="show beside each node what 'gradir explain --overlay' wrote of this graph; pictures are coloured by it; "
        "may be repeated: a page has every channel to choose from, anything else shows one",
    )
    parser.add_argument(
        "--channel", metavar="NAME", help="what of the overlay is shown, or comes first (default: its first channel)"
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=_seconds,
        default=60.0,
        help="pictures: how many seconds the layout may take (default: 60)",
    )


def _options_of(namespace: argparse.Namespace) -> tuple[str, type[Options]] | None:
    name = getattr(namespace, "to", None)
    if name is None:
        return None
    from gradir import registry

    return name, registry.exporter("dot" if name in PICTURES else name).options


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from error
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {_LONGEST:,} seconds")
    return seconds


def exporter_values(options: argparse.Namespace) -> dict[str, object]:
    """The values of ``-O`` and what stands for one.

    Raises:
        ExportError: one is no KEY=VALUE.
    """
    values = given_options(options)
    return {**values, "fold": "false"} if getattr(options, "no_fold", False) else values


def graph_to_draw(options: argparse.Namespace, exporter: str, *, may_be_absent: bool = False) -> Graph:
    """The graph of a file or a program, with the overlays asked for, as an exporter shows them.

    Of a program ``options.raised`` is what ended it before its time.

    Raises:
        CaptureError: there is no such file or program, or it cannot be run or captured.
        ExportError: the overlay is of another graph or has no such channel, or there is a channel alone.
        FormatError: a file is not what it should be.
    """
    from gradir import api

    if names_file(options.file):
        names = ("input", "seed", "frontend", "fake", "sources", "flow", "graph")
        check_is_graph_file(options.file, options, names, may_be_absent=may_be_absent)
        return _with_overlays(options, exporter, api.load)

    def run_program(spec: str) -> Graph:
        options.spec = spec
        with running_program(options, spec):
            graph, options.raised = captured_so_far(options)
        return graph

    return _with_overlays(options, exporter, run_program)


def _with_overlays(options: argparse.Namespace, exporter: str, load: Callable[[str], Graph]) -> Graph:
    from gradir import files, registry

    if not options.overlay:
        if options.channel is not None:
            raise ExportError("--channel belongs to --overlay FILE")
        return load(options.file)
    if [options.file, *options.overlay].count("-") > 1:
        raise ExportError("standard input is the graph or the overlay: give one of them as a file")
    from gradir.overlays import overlaid

    overlay = _overlay(options.overlay)
    graph = load(options.file)
    try:
        return overlaid(graph, overlay, options.channel or "", with_others=registry.shows_channels(exporter))
    except ExportError as error:
        raise ExportError(f"{' and '.join(map(files.name_of, options.overlay))}: {error}") from error


def _overlay(paths: Sequence[str]) -> Overlay:
    """The channels of all the files; those that have one name in several are called by their file too."""
    from msgspec.structs import replace

    from gradir import files
    from gradir.overlays import Overlay, decode

    found = []
    for path in dict.fromkeys(paths):
        with files.naming(path):
            found += [(files.name_of(path), channel) for channel in decode(files.read_bytes(path)).channels]
    counts = Counter(channel.name for _, channel in found)
    channels = []
    for file, channel in found:
        # Of a path the end tells most, and a name has its limits.
        more = f", {file[-max(1, _LONGEST_NAME - 2 - len(channel.name)) :]}" if counts[channel.name] > 1 else ""
        channels.append(replace(channel, name=f"{channel.name}{more}"))
    return Overlay(tuple(channels))


def run(options: argparse.Namespace) -> int:
    """Load or capture, apply passes, export, write."""
    from gradir import api, files, registry

    _check_combination(options)
    # A program may change the working directory.
    path = files.Located(options.output)
    into = files.Located(options.into) if options.into else None
    if options.to is None:
        options.to = format_of(options.output)
    for source in filter(None, (options.file, *options.overlay)):
        files.check_apart(source, options.output)
    is_picture = options.to in PICTURES and options.to not in registry.exporter_names()
    exporter = "dot" if is_picture else options.to
    # The names are checked first: loading a large file only to learn of a typing error takes a while.
    values = exporter_values(options)
    registry.exporter_options(exporter, values, f"a picture ({options.to})" if is_picture else "")
    own = f".{options.to}" if is_picture else registry.suffix(exporter, values)
    check_suffix(options.output, options.to, own, fenced=options.fence)
    if options.overlay:
        registry.expect_nodes(exporter)
    passes = chosen_passes(options)
    # An svg is text.
    if is_picture and options.to != "svg" and options.output == "-" and is_terminal():
        raise ExportError(f"a {options.to} is nothing for a terminal: give -o FILE, or use 'gradir view'")
    if is_picture and (options.fence or options.into):
        raise ExportError(f"{options.to} is no text to fence: write a file and link to it")
    graph = passes(graph_to_draw(options, exporter, may_be_absent=True))
    if is_picture:
        files.write_bytes(path, api.render(graph, options.to, seconds=options.seconds, **values))
        return _status(options)
    text = registry.export(exporter, graph, values)
    if into is not None and not options.fence and own == _MARKDOWN:
        # Some readers of Markdown want an empty line around a table.
        text = f"\n{text}\n"
    elif into is not None or options.fence:
        from gradir.markdown import fenced

        text = fenced(text, _LANGUAGES.get(own, own.lstrip(".")))
    if into is not None:
        return _embed(options, into, text) or _status(options)
    files.write_bytes(path, text.encode())
    return _status(options)


def _status(options: argparse.Namespace) -> int:
    """The exit status where it is written; it is said what ended a program before its time."""
    if not options.raised:
        return 0
    report(f"{options.raised}; the graph ends there")
    return RAISED


def _check_combination(options: argparse.Namespace) -> None:
    if options.into and not options.marker:
        raise ExportError("--into needs --marker NAME")
    if not options.into and (options.marker or options.check):
        raise ExportError("--marker and --check belong to --into FILE")
    if options.into == "-":
        raise ExportError("--into needs a file: standard input has no place to be put back")
    if options.into and options.output != "-":
        raise ExportError("--into and --output are two places: choose one")


def _embed(options: argparse.Namespace, path: Located, block: str) -> int:
    from gradir import files
    from gradir.markdown import embedded

    document = files.read_bytes(path)
    try:
        changed = embedded(document.decode(), options.marker, block).encode()
    except (ExportError, UnicodeDecodeError) as error:
        raise ExportError(f"{options.into}: {error}") from error
    if changed == document:
        return 0
    if options.check:
        print(f"{one_line(options.into)}: the block {options.marker!r} is out of date")
        return 1
    files.write_bytes(path, changed)
    return 0
