"""Find and load the graph that an argument names: a ``.gir`` file, ``-``, a file in git, or a program."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir import api, files, forwards
from gradir.cli.programs import Loaded, add_request_options, capture_program, running_program
from gradir.cli.report import RAISED, report
from gradir.cli.suffixes import GRAPHS
from gradir.errors import FileError, GradirError, SpecError

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.git.repository import Side
    from gradir.ir import Graph

GRAPH_HELP: Final = "a .gir or .pt2 file, '-' (standard input), REVISION:FILE, or a program such as train.py:loss"
_ALSO_GRAPHS: Final = (".json", ".msgpack", ".txt")
_MOST_NAMES: Final = 8
# gradir looks for names in this many bytes of a script.
_LARGEST_SCRIPT: Final = 1_000_000


class Source(NamedTuple):
    """The object that an argument names: a program, a file, or a file of a revision in git."""

    word: str
    side: Side | None = None
    is_program: bool = False

    def read(self, other: Source | None = None) -> bytes:
        """Return the bytes of the file; git finds a renamed one by the ``other`` source."""
        if self.side is None or not self.side.revision:
            return files.read_bytes(self.word if self.side is None else self.side.path)
        return self.side.blob(other.side if other is not None else None)

    @property
    def name(self) -> str:
        """Return the name for messages."""
        return files.name_of(self.word if self.side is None else self.side.name)

    @property
    def path(self) -> str:
        """Return the file in the working directory, or an empty text for a program or a revision."""
        if self.is_program or (self.side is not None and self.side.revision):
            return ""
        return self.word if self.side is None else self.side.path


def add_graph_argument(parser: Parser) -> None:
    """Add the argument for a graph, and the options of a program."""
    parser.add_argument("file", metavar="GRAPH", help=GRAPH_HELP)
    add_program_options(parser)


def add_program_options(parser: Parser) -> None:
    """Add the options to run and capture a program."""
    add_request_options(parser, "graph")
    parser.set_defaults(parser=parser, verify=False)


def find_source(word: str) -> Source:
    """Return the source that an argument names, without running or reading it."""
    # pathlib would delay the start of a command.
    if word == "-" or os.path.isfile(word):
        _refuse_other_format(word)
        return Source(word)
    if _is_program(word):
        return Source(word, is_program=True)
    if ":" in word and not os.path.exists(word):
        from gradir.git.repository import side

        location, _, attribute = word.rpartition(":")
        # The user forgot the suffix .py.
        if "/" in location and attribute.isidentifier() and os.path.isfile(f"{location}.py"):
            raise SpecError(f"{word}: no such file; {location}.py:{attribute} names a program")
        return _make_source(side(word))
    if not word or word.endswith(GRAPHS) or os.path.exists(word):
        # Reading the file reports its fault.
        return Source(word)
    if other := _name_other_format(word):
        raise SpecError(f"{word}: no such file; it would be {other}")
    raise SpecError(f"{word}: no such file; name a .gir file, or a program such as train.py:loss")


def find_two_sources(options: argparse.Namespace) -> tuple[Source, Source]:
    """Return the two graphs that the arguments of a comparison name."""
    from gradir.git.repository import sides

    words = list(options.sides)
    if any(map(_is_program, words)):
        if len(words) != 2:
            raise GradirError(f"expected two graphs, got {len(words)}: {' '.join(words)}; see gradir diff --help")
        first, second = map(find_source, words)
        return first, second
    if words == ["-", "-"]:
        raise GradirError("cannot read two graphs from standard input; name one as a file")
    # Without a program, arguments after `--` are files, as in git.
    words += options.program_arguments
    options.program_arguments = ()
    arguments = options.arguments
    before, after = sides(words, len(arguments) - 1 - arguments.index("--") if "--" in arguments else 0)
    return _make_source(before), _make_source(after)


def shorten_names(names: Sequence[str]) -> list[str]:
    """Return names with the fewest folders that tell them apart."""
    heads, paths = list[str](), list[list[str]]()
    for name in names:
        head, colon, path = name.rpartition(":") if ":" in name.rpartition("/")[0] else ("", "", name)
        # The letter of a drive is no revision.
        heads.append("" if len(head) == 1 else f"{head}{colon}")
        paths.append(path.replace("\\", "/").split("/"))
    shortened = list(names)
    for depth in range(1, max(map(len, paths)) + 1):
        shortened = [f"{head}{'/'.join(path[-depth:])}" for head, path in zip(heads, paths, strict=True)]
        if len({*shortened}) == len({*names}):
            break
    return shortened


def is_program(word: str) -> bool:
    """Return whether an argument names a program, and not a file that a front-end reads."""
    if os.path.isfile(word):
        _refuse_other_format(word)
        from gradir.claims import reader_of

        if reader_of(word):
            return False
        raise SpecError(f"{word} is a file, not a program; open a graph with 'gradir view {word}'")
    return True


def is_script(word: str) -> bool:
    """Return whether an argument names a script to run."""
    return word.endswith(".py") and os.path.isfile(word)


def check_script(word: str) -> None:
    """Refuse a word that is no script: a graph, a file of another format, or a PROGRAM argument."""
    if word.endswith(GRAPHS):
        raise SpecError(f"{word} is a graph, not a script; open it with 'gradir view {word}'")
    if other := _name_other_format(word):
        raise SpecError(f"{word} is {other}")
    if ".py:" in word and not os.path.exists(word):
        script = word.partition(":")[0]
        raise SpecError(f"{word} is a PROGRAM, not a script; name {script}, or use 'gradir capture {word} -o FILE'")


def _refuse_other_format(word: str) -> None:
    if word.endswith(".py"):
        advice = f"name the program to capture, e.g. {suggest_program(word)}, or 'gradir run {word} -o FILE'"
        raise SpecError(f"{word} is a script, not a graph; {advice}")
    if other := _name_other_format(word):
        raise SpecError(f"{word} is {other}")


def _name_other_format(word: str) -> str:
    if word.endswith((*GRAPHS, *_ALSO_GRAPHS)) or "." not in word:
        # Asking the front-ends takes time.
        return ""
    from gradir.claims import other_format

    return other_format(word)


def suggest_program(word: str) -> str:
    """Return an example of a PROGRAM argument for a script, and the names that the script defines."""
    names = _find_definitions(word)
    defines = f" ({word} defines {', '.join(names[:_MOST_NAMES])})" if names else ""
    return f"{word}:{names[0] if names else 'loss'}{defines}"


def refuse_program_options(options: argparse.Namespace, *words: str, but: Collection[str] = ()) -> None:
    """Refuse the options of programs, all ``but`` some, since these words are files."""
    from gradir.request import list_options

    files = " and ".join(words)
    advice = f"for a program, but {files} {'is a file' if len(words) == 1 else 'are files'}; name a program such as "
    for name, each in list_options().items():
        is_given = hasattr(options, name) and getattr(options, name) != options.parser.get_default(name)
        if is_given and name not in but:
            raise SpecError(f"{each.flag} is {advice}train.py:loss")
    if options.program_arguments and not but:
        raise SpecError(f"arguments after '--' are {advice}train.py:loss")


def load(options: argparse.Namespace, source: Source, other: Source | None = None) -> Loaded:
    """Read the file, or run and capture the program; ``other`` is the second graph of a comparison."""
    if source.is_program:
        options.spec = source.word
        with running_program(options, source.word):
            return capture_program(options, "graph")
    if other is None:
        refuse_program_options(options, source.word)
    if source.path:
        return Loaded(api.load(source.path))
    with files.naming(source.name):
        return Loaded(api.decode_graph(source.read(other), source.name))


def load_with_flow(options: argparse.Namespace, source: Source) -> Loaded:
    """Load a graph as `load` does; if a parameter gets no gradient, run the program again to record the cuts."""
    loaded = load(options, source)
    unreached = _find_unreached(loaded)
    if not source.is_program or options.flow or not unreached:
        return loaded
    options.flow = True
    # If the second run fails or reaches other parameters, show the first graph.
    with suppress(GradirError):
        again = load(options, source)
        if _find_unreached(again) == unreached:
            return again
    return loaded


def _find_unreached(loaded: Loaded) -> set[tuple[str, ...]]:
    return {cut.names for cut in loaded.graph.cuts if cut.kind == "unreached" and not cut.is_place}


def load_two(options: argparse.Namespace, a: Source, b: Source) -> tuple[Loaded, Loaded]:
    """Load both graphs of a comparison; the first of two programs runs in a subprocess."""
    if not a.is_program and not b.is_program:
        refuse_program_options(options, a.word, b.word)
    if a.is_program and b.is_program:
        from gradir.cli.subprocesses import capture_apart

        options.graph = options.graph or "both"
        # Two programs in one process would share their imports, so a model would be compared with itself.
        with capture_apart(options, a.word) as finish:
            second = load(options, b)
            return finish(), second
    # The file comes first, since a program may take long and may change the working directory.
    if a.is_program:
        second = add_forward(load(options, b, a), b)
        capture_as(options, second.graph)
        return load(options, a, b), second
    first = add_forward(load(options, a, b), a)
    if b.is_program:
        capture_as(options, first.graph)
        return first, load(options, b, a)
    import filecmp

    is_equal = False
    # Equal bytes make equal graphs. If a file cannot be read, `load` raises the error.
    with suppress(OSError):
        is_equal = {a.path, b.path}.isdisjoint({"", "-"}) and filecmp.cmp(a.path, b.path, shallow=False)
    return first, add_forward(first if is_equal else load(options, b, a), b)


def add_forward(loaded: Loaded, source: Source) -> Loaded:
    """Add the forward graph from the file next to that of the autograd graph, or the reason of its absence."""
    if not forwards.has_forward(loaded.graph):
        return loaded._replace(forward=None, missing=f"{source.name} has none")
    side = source.side
    name = forwards.forward_name(source.word if side is None else side.path)
    if side is None or not side.revision:
        if source.word == "-" or not os.path.exists(name):
            return loaded._replace(forward=None, missing=f"there is no {name}")
        return loaded._replace(forward=api.load(name))
    from gradir.git.repository import GitError

    forward = side._replace(path=name)
    try:
        data = forward.blob()
    except GitError:
        return loaded._replace(forward=None, missing=f"there is no {forward.name}")
    with files.naming(forward.name):
        return loaded._replace(forward=api.loads(data))


def capture_as(options: argparse.Namespace, expected: Graph) -> None:
    """Set the options of a capture as a graph records them: source lines, flow, and kind of graph."""
    from gradir.ir.cuts import FLOW

    recorded = expected.producer.options
    for name in ("sources", FLOW):
        if recorded.get(name) is True:
            setattr(options, name, True)
    if options.graph is None and recorded.get("graph") in ("forward", "both", "joint", "compiled"):
        options.graph = recorded["graph"]


def report_raised(loaded: Loaded) -> int:
    """Return the exit status of a command that shows a graph, and report an error that ended the program."""
    if not loaded.raised:
        return 0
    report(f"{loaded.raised}; the graph ends there")
    return RAISED


def _is_program(word: str) -> bool:
    """Return whether an argument is ``path.py:attr`` or ``module:attr``; a file, also in git, takes precedence."""
    location, _, attribute = word.rpartition(":")
    if not location or word.endswith(GRAPHS) or os.path.exists(word):
        return False
    if location.endswith(".py"):
        # After a revision it is a file in git; a colon in the second place belongs to a Windows drive.
        return ":" not in location[2:] or os.path.isfile(location)
    if not all(map(str.isidentifier, [*location.split("."), *attribute.split(".")])):
        return False
    from gradir.git.repository import has_git, succeeds

    return not (has_git() and succeeds(["cat-file", "-e", f"{location}:{attribute}"]))


def _make_source(side: Side) -> Source:
    if not side.revision:
        _refuse_other_format(side.path)
    elif side.path.partition(":")[0].endswith(".py"):
        raise SpecError(
            f"{side.name} is Python source in git; check the revision out, "
            "e.g. 'git worktree add ../before', and name the program there"
        )
    return Source(side.name, side)


def _find_definitions(script: str) -> list[str]:
    """Return the classes of a script and its functions that need no argument, without running it."""
    import ast

    try:
        tree = ast.parse(files.read_bytes(script)[:_LARGEST_SCRIPT])
    except (FileError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    callable_as_is = [
        each.name
        for each in functions
        if len(each.args.args) == len(each.args.defaults)
        and any(isinstance(inside, ast.Return) and inside.value is not None for inside in ast.walk(each))
    ]
    return callable_as_is + [each.name for each in tree.body if isinstance(each, ast.ClassDef)]
