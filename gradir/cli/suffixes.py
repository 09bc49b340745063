"""Find the format that the name of an output file chooses."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from gradir.errors import ExportError, NewerFormatError
from gradir.pictures import PICTURES

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.ir import Graph
    from gradir.registry import Writers


class _Choices:
    """Load choices only for the option or the help, since codecs load slowly."""

    def __init__(self, declared: str, *more: str) -> None:
        self._declared, self._more = declared, more

    def __iter__(self) -> Iterator[str]:
        from gradir import codecs

        return iter((*getattr(codecs, self._declared), *self._more))


def add_encoding_options(parser: Parser) -> None:
    """Add ``--format`` and ``--compress``."""
    group = parser.group("output")
    encodings, compressions = _Choices("ENCODINGS"), _Choices("COMPRESSIONS", "none")
    about = "encoding, one of %(choices)s (default: json)"
    group.add_argument("--format", metavar="NAME", choices=encodings, default="json", help=about)
    about = "%(choices)s (default: by the suffix of the file)"
    group.add_argument("--compress", metavar="NAME", choices=compressions, help=about)


def add_lossy_option(parser: Parser) -> None:
    """Add ``--lossy``."""
    about = "drop fields that this gradir does not know"
    parser.group("advanced").add_argument("--lossy", action="store_true", help=about)


def load_to_rewrite(path: str, *, lossy: bool) -> Graph:
    """Load a file to write it again, and refuse unknown content unless ``lossy`` is set."""
    from gradir import api, codecs, files
    from gradir.codecs.codec import check_known

    if lossy:
        return api.load(path)
    data = files.read_bytes(path)
    with files.naming(path):
        graph = codecs.decode(data)
    if graph.read_from:
        raise NewerFormatError(
            f"GIR version {graph.read_from} is newer than this gradir, and its new fields would be lost",
            file=files.name_of(path),
            advice="upgrade gradir, or lose it with --lossy",
        )
    with files.naming(path, "it would be lost: correct it, or lose it with --lossy"):
        check_known(data)
    return graph


# Other suffixes of the same formats.
_ALSO: Final[Mapping[str, str]] = {".gv": ".dot", ".htm": ".html", ".mermaid": ".mmd"}
# A file of any text format may have this suffix.
_TEXT: Final = ".txt"
# A file of these formats may also have the more general suffix.
_JSON: Final = {".cyjs": ".json"}
_PROGRAMS: Final = (".py", ".pyi", ".pyc")
_OF_GRADIR: Final = ("", ".gir", ".gz", ".zst", ".json", _TEXT, ".html", ".svg", ".png", ".pdf", ".dot", ".mmd", ".md")
# The names of graphs.
GRAPHS: Final = (".gir", ".gir.gz", ".gir.zst")
_COMPRESSED: Final = (".gz", ".zst")
# A graph is JSON text, so its file may have any of these suffixes.
_ALSO_GRAPHS: Final = {"", ".gir", ".json", _TEXT}


def check_no_source(output: str) -> None:
    """Refuse an output file with the suffix of a program, a notebook or a checkpoint."""
    end = _read_suffix(output)
    if end in _OF_GRADIR:
        return
    from gradir.claims import other_format, reader_of

    if end in _PROGRAMS or other_format(output) or reader_of(output):
        raise ExportError(f"cannot write {output}: {end} is the suffix of a source; choose another name")


def find_format(output: str) -> str:
    """Return the exporter or picture format for the name of a file."""
    end = _read_suffix(output)
    if name := _choose_name(output, _find_formats(end) if end else [], "--to"):
        return name
    if output.lower().endswith(GRAPHS):
        raise ExportError(f"-o {output} means a graph; write it with 'gradir capture', or 'gradir convert' from a file")
    offers = "give -o a name such as x.svg, or pass --to NAME; see gradir export --help"
    raise ExportError(f"{output}: no exporter writes {end}; {offers}" if end else f"the format is missing; {offers}")


def is_picture(name: str) -> bool:
    """Return whether a format is a picture that gradir draws from the text of ``dot``."""
    from gradir import registry

    return name in PICTURES and name not in registry.exporter_names()


def find_suffix(name: str, values: Mapping[str, object]) -> str:
    """Return the suffix of a picture, or of an exporter with these options."""
    from gradir import registry

    return f".{name}" if is_picture(name) else registry.suffix(name, values)


def check_suffix(output: str, name: str, own: str, *, fenced: bool = False) -> None:
    """Refuse a file name of another format than the chosen one."""
    check_no_source(output)
    end = _read_suffix(output)
    if end in {"", own, _JSON.get(own, own)} or (end == _TEXT and name not in PICTURES) or (fenced and end == ".md"):
        return
    others = ["a graph"] if output.lower().endswith(GRAPHS) else _find_formats(end)
    if others and name not in others:
        raise ExportError(f"-o {output} means {_join_names(others)}, but --to is {name}; change one of them")


def check_graph_name(output: str) -> None:
    """Refuse to write a graph to a file with the suffix of a picture or another format."""
    check_no_source(output)
    path = output.lower()
    end = _read_suffix(next((path.removesuffix(each) for each in _COMPRESSED if path.endswith(each)), path))
    if end in _ALSO_GRAPHS:
        return
    others, then = _find_formats(end), f", then gradir export FILE.gir -o {output}"
    if not others:
        from gradir import registry

        others, then = [name for name, own in _find_suffixes(registry.renderer).items() if own == end], ""
    if others:
        advice = f"give it a name that ends in .gir{then}"
        raise ExportError(f"-o {output} means {_join_names(others)}, but this command writes a graph; {advice}")


def find_diff_format(output: str, chosen: str | None, default: str) -> str:
    """Return the format of a diff: the chosen one, or that of the file name, or the default."""
    check_no_source(output)
    end = _read_suffix(output)
    if end in {"", _TEXT}:
        return chosen or default
    from gradir import registry

    kinds = {registry.DRAWN: f".{registry.DRAWN}", **_find_suffixes(registry.renderer)}
    names = [name for name, own in kinds.items() if own == end]
    if chosen is None:
        if name := _choose_name(output, names, "--format"):
            return name
    elif kinds.get(chosen, end) == end:
        # The registry refuses an unknown format.
        return chosen
    elif names:
        raise ExportError(f"-o {output} means {_join_names(names)}, but --format is {chosen}; change one of them")
    if output.lower().endswith(GRAPHS):
        raise ExportError(
            f"-o {output} means a graph, but this command writes a diff; use a name such as x.txt or x.json"
        )
    if end[1:] in PICTURES:
        raise ExportError(
            f"cannot draw a diff as {end[1:]}; use -o with a name that ends in .{registry.DRAWN}, "
            f"or write a .dot and run dot -T{end[1:]}"
        )
    return chosen or default


def _read_suffix(output: str) -> str:
    # pathlib would delay the start of a command.
    end = os.path.splitext(output)[1].lower() if output != "-" else ""
    return _ALSO.get(end, end)


def _find_formats(suffix: str) -> list[str]:
    from gradir import registry

    found = [name for name in PICTURES if suffix == f".{name}"]
    kinds = _find_suffixes(registry.exporter)
    return found + [name for name, own in kinds.items() if suffix in {own, _JSON.get(own)} and name not in found]


# The cache makes gradir report a broken plug-in once.
@cache
def _find_suffixes(writers: Writers[Any]) -> Mapping[str, str]:
    return writers.working(lambda name: writers.kind(name).suffix)


def _choose_name(output: str, names: list[str], option: str) -> str:
    """Return the only name, if any, and refuse several."""
    if len(names) > 1:
        raise ExportError(f"{output} may be {_join_names(names)}: choose one with {option} NAME")
    return "".join(names)


def _join_names(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
