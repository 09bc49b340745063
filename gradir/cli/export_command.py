"""``gradir export``: write a graph in another format."""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from gradir import api, files, registry
from gradir.cli import sources
from gradir.cli.parser import Parser, add_output, parse_as
from gradir.cli.plugin_options import add_option, add_pass_options, choose_passes, read_options
from gradir.cli.programs import Loaded
from gradir.cli.report import is_terminal, one_line, write_output
from gradir.cli.suffixes import check_suffix, find_format, find_suffix, is_picture
from gradir.errors import ExportError
from gradir.markdown import fence_code, replace_block
from gradir.pictures import PICTURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.files import Located
    from gradir.overlays import Overlay
    from gradir.protocols import Options

DESCRIPTION = "Write a graph in another format: that of --to, or of the suffix of -o."

EXAMPLES = (
    "gradir export train.py:loss -o loss.html",
    "gradir export model.gir --to mermaid --depth 2",
    "gradir export model.gir --to svg -O theme=dark -O legend=true -o model.svg",
    "gradir export model.gir --all -o model.svg  # every node, however many",
    "gradir export model.gir --to tree --drop accumulate_grad --hide-shape-ops --rollup",
    "gradir export model.gir --to mermaid --focus h.3.attn --hops 2",
    "gradir export model.gir --to mermaid --into README.md --marker model",
    "gradir export model.gir --to svg --overlay gradients.json -o model.svg",
)

DETAILS = f"""\
{", ".join(PICTURES)} show layers: one box for each module without modules in it, and no views and transposes.
--all draws every operation, and --layers shows layers in any other format.

A static picture (dot, mermaid, {", ".join(PICTURES)}) of more than 150 nodes is made small enough to read: gradir
leaves out gradient accumulators, draws equal layers and repeated steps once, and folds modules as little as it must.
The picture says so. --all draws every node, and --depth, --rollup, --drop and --focus choose by hand.

With --into, gradir replaces the block between these lines of a Markdown file:
  <!-- gradir: model -->
  <!-- /gradir: model -->
With --check it compares the block instead; exit status 1 means that it is out of date. Lines inside a code block or
other HTML do not count.

'gradir exporters' lists the formats, and 'gradir export --to NAME --help' the options of one.
{", ".join(PICTURES)} take the options of dot; pdf needs Graphviz.

Exit status: 0 done, 1 the program raised and the graph ends there, 2 trouble.
"""

# Characters of the name of a channel.
_LONGEST_NAME: Final = 80
# subprocess can wait for about twice as many.
_SECONDS: Final = Annotated[float, Meta(gt=0, le=1_000_000)]

_MARKDOWN: Final = ".md"
_LANGUAGES: Final = {".mmd": "mermaid", ".txt": "text", ".graphml": "xml", _MARKDOWN: "markdown"}


def add_options(parser: Parser) -> None:
    sources.add_graph_argument(parser)
    output = parser.group("output")
    about = f"exporter, or {', '.join(PICTURES)} (default: by the suffix of -o)"
    output.add_argument("--to", metavar="NAME", help=about)
    add_output(parser)
    add_drawing_options(parser)
    block = parser.group("Markdown")
    block.add_argument("--fence", action="store_true", help="write a fenced code block")
    block.add_argument("--into", metavar="FILE", help="replace the block between two markers of FILE")
    block.add_argument("--marker", metavar="NAME", help="name in the markers")
    block.add_argument("--check", action="store_true", help="write nothing; exit with 1 if --into is out of date")


def add_drawing_options(parser: Parser) -> None:
    """Add the options of the exporter, the passes, the overlay and pictures."""
    parser.tell_options(_find_options, "after --to NAME also that exporter's options")
    output = parser.group("output")
    add_option(output, "exporter")
    output.add_argument("--all", action="store_true", help="draw every node of a picture, however many")
    about = "time limit of a picture's layout (default: 60)"
    output.add_argument("--seconds", metavar="S", type=partial(parse_as, _SECONDS), default=60.0, help=about)
    add_pass_options(parser)
    shown = parser.group("what to show")
    about = "show values of 'gradir explain --overlay'; repeatable"
    shown.add_argument("--overlay", metavar="FILE", action="append", default=[], help=about)
    about = "channel of the overlay, or of --cost (default: the first)"
    shown.add_argument("--channel", metavar="NAME", help=about)


def _find_options(namespace: argparse.Namespace) -> tuple[str, type[Options]] | None:
    name = getattr(namespace, "to", None)
    if name is None:
        return None
    return name, registry.exporter("dot" if name in PICTURES else name).options


def _load(options: argparse.Namespace, source: sources.Source, exporter: str) -> Loaded:
    # A page shows the lines that cut gradients.
    load = sources.load_with_flow if exporter == "html" else sources.load
    if not options.overlay:
        return load(options, source)
    if [source.word, *options.overlay].count("-") > 1:
        raise ExportError("cannot read both the graph and the overlay from standard input; name one as a file")
    from gradir.overlays import apply_overlay

    overlay = _read_overlays(options.overlay)
    loaded = load(options, source)
    channel, with_others = options.channel or "", registry.shows_channels(exporter)
    with files.prefixing(" and ".join(map(files.name_of, options.overlay)), ExportError):
        return loaded._replace(graph=apply_overlay(loaded.graph, overlay, channel, with_others=with_others))


def _read_overlays(paths: Sequence[str]) -> Overlay:
    """Return the channels of all files and the first verdict; equal names also get the file's name."""
    from msgspec.structs import replace

    from gradir.overlays import Overlay, decode

    overlays = []
    for path in dict.fromkeys(paths):
        with files.naming(path):
            overlays.append((files.name_of(path), decode(files.read_bytes(path))))
    found = [(file, channel) for file, overlay in overlays for channel in overlay.channels]
    counts = Counter(channel.name for _, channel in found)
    channels = []
    for file, channel in found:
        # The end of a path distinguishes it best, and a name has a limit.
        more = f", {file[-max(1, _LONGEST_NAME - 2 - len(channel.name)) :]}" if counts[channel.name] > 1 else ""
        channels.append(replace(channel, name=f"{channel.name}{more}"))
    first = next((overlay for _, overlay in overlays if overlay.verdict), overlays[0][1])
    return Overlay(tuple(channels), first.verdict, first.look)


def run(options: argparse.Namespace) -> int:
    _check_combination(options)
    # A program may change the working directory.
    path = files.Located(options.output)
    into = files.Located(options.into) if options.into else None
    if options.to is None:
        options.to = find_format(options.output)
    source = sources.find_source(options.file)
    for read in filter(None, (source.path, *options.overlay)):
        files.check_apart(read, options.output)
    own = find_suffix(options.to, read_options(options))
    check_suffix(options.output, options.to, own, fenced=options.fence)
    if is_picture(options.to):
        # SVG is text.
        if options.to != "svg" and options.output == "-" and is_terminal():
            raise ExportError(f"cannot print a {options.to} on a terminal: give -o FILE, or use 'gradir view'")
        if options.fence or options.into:
            raise ExportError(f"cannot fence a {options.to}, which is not text; write a file and link to it")
    elif options.overlay:
        registry.expect_nodes(options.to)
    data, loaded = export_graph(options, source)
    if into is not None and not options.fence and own == _MARKDOWN:
        # Some readers of Markdown need an empty line around a table.
        data = b"\n%b\n" % data
    elif into is not None or options.fence:
        data = fence_code(data.decode(), _LANGUAGES.get(own, own.lstrip("."))).encode()
    if into is not None:
        return _embed(options, into, data.decode()) or sources.report_raised(loaded)
    write_output(path, data, own)
    return sources.report_raised(loaded)


def export_graph(options: argparse.Namespace, source: sources.Source) -> tuple[bytes, Loaded]:
    """Return the output of the exporter ``options.to``, and the graph."""
    is_drawn = is_picture(options.to)
    exporter = "dot" if is_drawn else options.to
    # Loading a graph may take long, so check the options first.
    values = read_options(options)
    passes, is_chosen = choose_passes(options)
    known = registry.exporter(exporter).options.__struct_fields__
    if "file" in known and source.word != "-":
        values.setdefault("file", sources.shorten_names([source.name])[0])
    if "all" in known:
        if options.all or is_chosen:
            values.setdefault("all", "true")
    elif options.all:
        raise ExportError(f"--all is for pictures: dot, mermaid, {', '.join(PICTURES)}; {exporter} leaves nothing out")
    registry.exporter_options(exporter, values, f"a picture ({options.to})" if is_drawn else "")
    loaded = _load(options, source, exporter)
    graph = loaded.graph
    if passes is not None:
        if registry.shows_channels(exporter):
            from gradir.explanations.from_cuts import add_verdict

            graph = add_verdict(graph)
        graph = passes(graph)
    if source.is_program and registry.shows_channels(exporter):
        from gradir.lines import add_lines

        graph = add_lines(graph)
    own = {"channel": options.channel} if options.channel and not options.overlay else {}
    if is_drawn:
        return api.render(graph, options.to, seconds=options.seconds, **own, **values), loaded
    if own:
        from gradir.exporting import add_costs

        registry.expect_nodes(exporter)
        graph = add_costs(graph, options.channel, exporter)
    return registry.export(exporter, graph, values).encode(), loaded


def _check_combination(options: argparse.Namespace) -> None:
    if options.into and not options.marker:
        raise ExportError("--into needs --marker NAME")
    if not options.into and (options.marker or options.check):
        raise ExportError("--marker and --check need --into FILE")
    if options.into == "-":
        raise ExportError("--into needs a file, not standard input")
    if options.into and options.output != "-":
        raise ExportError("cannot use --into with --output; choose one")


def _embed(options: argparse.Namespace, path: Located, block: str) -> int:
    document = files.read_bytes(path)
    try:
        changed = replace_block(document.decode(), options.marker, block).encode()
    except (ExportError, UnicodeDecodeError) as error:
        raise ExportError(f"{options.into}: {error}") from error
    if changed == document:
        return 0
    if options.check:
        print(f"{one_line(options.into)}: the block {options.marker!r} is out of date")
        return 1
    files.write_bytes(path, changed)
    return 0
