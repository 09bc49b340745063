"""``gradir export``: from a ``.gir`` file to any format."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.cli.parser import Parser, add_input, add_output
from gradir.cli.plugin_options import add_option, add_pass_options, chosen_passes, given_options
from gradir.cli.report import is_terminal, one_line
from gradir.errors import ExportError
from gradir.pictures import PICTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    "load_to_draw",
    "run",
]

HELP = "export a graph to DOT, Mermaid, a tree, text, ..."
DESCRIPTION = "Write a captured graph in another format."

EPILOG = f"""\
examples:
  gradir export model.gir --to mermaid --depth 2 -o model.mmd
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
{", ".join(PICTURES)} are drawn by Graphviz and take the options of dot.
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
    add_input(parser)
    parser.add_argument("--to", metavar="NAME", required=True, help=f"the exporter, or {', '.join(PICTURES)}")
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


def load_to_draw(options: argparse.Namespace, exporter: str, load: Callable[[str], Graph] | None = None) -> Graph:
    """The graph of a file, or what is loaded in another way, with the overlays asked for, as an exporter shows them.

    Raises:
        ExportError: the overlay is of another graph or has no such channel, or there is a channel alone.
        FormatError: a file is not what it should be.
    """
    from gradir import api, files, registry

    load = load or api.load
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
    """Load, apply passes, export, write."""
    from gradir import api, files, registry

    _check_combination(options)
    for source in filter(None, (options.file, *options.overlay)):
        files.check_apart(source, options.output)
    is_picture = options.to in PICTURES and options.to not in registry.exporter_names()
    exporter = "dot" if is_picture else options.to
    # The names are checked first: loading a large file only to learn of a typing error takes a while.
    values = exporter_values(options)
    registry.exporter_options(exporter, values, f"a picture ({options.to})" if is_picture else "")
    if options.overlay:
        registry.expect_nodes(exporter)
    passes = chosen_passes(options)
    # An svg is text.
    if is_picture and options.to != "svg" and options.output == "-" and is_terminal():
        raise ExportError(f"a {options.to} is nothing for a terminal: give -o FILE, or use 'gradir view'")
    if is_picture and (options.fence or options.into):
        raise ExportError(f"{options.to} is no text to fence: write a file and link to it")
    graph = passes(load_to_draw(options, exporter))
    if is_picture:
        files.write_bytes(options.output, api.render(graph, options.to, seconds=options.seconds, **values))
        return 0
    text = registry.export(exporter, graph, values)
    if options.into and not options.fence and registry.suffix(exporter, values) == _MARKDOWN:
        # Some readers of Markdown want an empty line around a table.
        return _embed(options, f"\n{text}\n")
    if options.into or options.fence:
        from gradir.markdown import fenced

        suffix = registry.suffix(exporter, values)
        text = fenced(text, _LANGUAGES.get(suffix, suffix.lstrip(".")))
    if options.into:
        return _embed(options, text)
    files.write_bytes(options.output, text.encode())
    return 0


def _check_combination(options: argparse.Namespace) -> None:
    if options.into and not options.marker:
        raise ExportError("--into needs --marker NAME")
    if not options.into and (options.marker or options.check):
        raise ExportError("--marker and --check belong to --into FILE")
    if options.into == "-":
        raise ExportError("--into needs a file: standard input has no place to be put back")
    if options.into and options.output != "-":
        raise ExportError("--into and --output are two places: choose one")


def _embed(options: argparse.Namespace, block: str) -> int:
    from gradir import files
    from gradir.markdown import embedded

    document = files.read_bytes(options.into)
    try:
        changed = embedded(document.decode(), options.marker, block).encode()
    except (ExportError, UnicodeDecodeError) as error:
        raise ExportError(f"{options.into}: {error}") from error
    if changed == document:
        return 0
    if options.check:
        print(f"{one_line(options.into)}: the block {options.marker!r} is out of date")
        return 1
    files.write_bytes(options.into, changed)
    return 0
