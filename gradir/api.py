"""The functions of the public API. Each imports what it needs when it is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from gradir.errors import FormatError

if TYPE_CHECKING:
    import graphviz

    from gradir.diffs.changes import Diff
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph
    from gradir.protocols import Names
    from gradir.world.model import Ranks

__all__ = [
    "diff",
    "diff_text",
    "dumps",
    "explanation_text",
    "export",
    "link",
    "load",
    "loads",
    "make_dot",
    "matching",
    "mimebundle",
    "patch",
    "ranks",
    "render",
    "save",
    "unpatch",
]


def load(path: str | bytes | PathLike[str]) -> Graph:
    """Read a ``.gir`` file; ``-`` is standard input.

    Raises:
        FileError: the file cannot be read.
        FormatError: the file is not a GIR document that this release can read.
    """
    from gradir import codecs, files

    data = files.read_bytes(path)
    try:
        with files.naming(path):
            return codecs.decode(data)
    except FormatError as error:
        from gradir.choosing import other_format

        if other := other_format(files.name_of(path)):
            raise error.moved(advice=f"it is {other}") from error
        raise


def ranks(sources: Iterable[str | PathLike[str] | Graph]) -> Ranks:
    """What the ranks of a distributed training do alike, and where they part, of their files or graphs.

    They are captured with what they exchange: `record` with ``collectives=True``, or ``gradir capture --collectives``.
    The result is true where something was found, prints itself, and has ``to("markdown")`` and ``to("json")``.

    Raises:
        GradirError: they are not those of ranks of one run, or one does not say its rank.
        FileError: a file cannot be read.
        FormatError: a file is not a GIR document that this release can read.
    """
    from gradir.world.examining import examined

    return examined(sources)


def link(sources: Iterable[str | PathLike[str] | Graph]) -> Graph:
    """One graph of all stages of a pipeline, of the files or graphs of its ranks, as `ranks` takes them.

    Each stage is a module, ``stage0`` or, where no stages are told, ``rank0``. The output that a process sends is a
    function ``send``, and the leaf in which another receives it a function ``recv``. What cannot be matched is a
    `GradirWarning`, and not linked.

    Raises:
        GradirError: they are not those of ranks of one run, a rank runs several stages, or nothing can be linked.
        FileError: a file cannot be read.
        FormatError: a file is not a GIR document that this release can read.
    """
    import warnings

    from gradir.errors import GradirWarning
    from gradir.world.linking import linked

    found = linked(sources)
    for trouble in found.troubles:
        warnings.warn(trouble, GradirWarning, stacklevel=2)
    return found.graph


def loads(data: bytes | bytearray | memoryview) -> Graph:
    """The graph in the bytes of a ``.gir`` file.

    Raises:
        FormatError: the bytes are not a GIR document that this release can read.
        TypeError: there are no bytes, but a text or a path.
    """
    from gradir import codecs

    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"loads takes the bytes of a file, not {type(data).__name__}; gradir.load takes its path")
    return codecs.decode(bytes(data))


def save(
    graph: Graph,
    path: str | bytes | PathLike[str],
    *,
    format: str = "json",
    compress: str | None = None,
    lossy: bool = False,
) -> None:
    """Write a ``.gir`` file, whole or not at all; ``-`` is standard output.

    Args:
        graph: what to write.
        path: where to; a name that ends in ``.gz`` or ``.zst`` asks for compression.
        format: ``json``, to be read and compared, or ``msgpack``, the same document for readers of MessagePack.
        compress: ``gzip``, ``zstd`` or ``none``, whatever the name says.
        lossy: write a graph that was read from a newer version of the format, or with keys that no version has, without
            what this release ignored in it.

    Raises:
        FileError: the file cannot be written.
        GradirError: the library of the compression is not installed.
        FormatError: there is no such format or compression, or a part of the graph would be lost.
        TypeError: ``graph`` is none.
    """
    from gradir import codecs, files

    compression = codecs.compression_for(path, compress)
    files.write_bytes(path, codecs.encode(graph, format, compression, lossy=lossy))


def dumps(graph: Graph, *, format: str = "json", compress: str | None = None, lossy: bool = False) -> bytes:
    """The bytes that `save` would write, compressed only when asked.

    Raises:
        FormatError: there is no such format or compression, or a part of the graph would be lost.

    >>> from gradir.ir import Graph, Node
    >>> graph = Graph.of([Node("x", role="leaf")])
    >>> loads(dumps(graph, format="msgpack", compress="gzip")) == graph
    True
    """
    from gradir import codecs

    return codecs.encode(graph, format, codecs.compression_for("", compress), lossy=lossy)


def export(graph: Graph, exporter: str, **options: object) -> str:
    """Export a graph to text with the named exporter and its options, after the passes that are asked for.

    ``drop``, ``hide_shape_ops``, ``ancestors``, ``descendants``, ``between``, ``focus`` with ``hops``, ``rollup``,
    ``once`` and ``depth`` choose passes, run in this order, and passes of other packages have further ones.
    ``overlay`` is what `Explanation.overlay` made of this graph, to be shown beside each node, and ``channel`` which of
    it. A name that the exporter has an option of is the exporter's.

    Raises:
        ExportError: there is no such exporter, option or channel, the format cannot hold the graph, or the overlay is
            of another one.
        FormatError: the overlay holds what none can.
        PassError: a pattern names no node, or a pass does not take the value.

    >>> from gradir.ir import Graph, Node, Ref
    >>> graph = Graph.of([Node("x", role="leaf"), Node("exp:1", op="exp", inputs=(Ref("x", 0),)), Node("y")])
    >>> print(export(graph, "tree", focus="x"))
    exp:1
    └─ x leaf [focus]
    <BLANKLINE>
    """
    from gradir.plan import exported

    return exported(exporter, graph, options)


def render(graph: Graph, picture: str = "svg", *, seconds: float = 60.0, **options: object) -> bytes:
    """Draw a graph: return the bytes of an ``svg``, ``png`` or ``pdf``, laid out within limits of time and memory.

    The program ``dot`` of Graphviz draws it, or ``graphviz-pure`` where there is no ``dot``. Only ``dot`` draws a
    ``pdf``. The environment variable ``GRADIR_DOT`` chooses another program. ``options`` are those that `export` takes
    for the exporter ``dot``.

    Raises:
        ExportError: an unknown format or option, the graph has too many boxes, no program is installed that draws the
            format, or the program fails or needs longer than ``seconds`` or more than 4 GiB.
        PassError: a pattern names no node, or a pass does not take the value.
    """
    from gradir.pictures import render as draw
    from gradir.plan import exported

    return draw(exported("dot", graph, options, f"a picture ({picture})"), picture, seconds=seconds)


def make_dot(
    var: object,
    params: Names | None = None,
    show_attrs: bool = False,
    show_saved: bool = False,
    max_attr_chars: int = 50,
    *,
    model: object = None,
) -> graphviz.Digraph:
    """Capture and draw in one call, with the signature of the function that torchviz made known.

    ``params`` names tensors, as a mapping or as pairs; ``model`` names them as `capture` does. The result is a
    `graphviz.Digraph`, which a notebook shows and whose ``render`` writes a file, with or without the program ``dot``.

    Raises:
        CaptureError: there is no graph behind ``var``.

    >>> import torch, gradir
    >>> w = torch.ones(3, requires_grad=True)
    >>> "ExpBackward0" in gradir.make_dot(w.exp().sum(), params={"w": w}).source
    True
    """
    from gradir import registry
    from gradir.gradients import capture

    classic = {"native": True, "all": True}
    values = {**classic, "show_attrs": show_attrs, "show_saved": show_saved, "max_attr_chars": max_attr_chars}
    options = registry.exporter_options("dot", values)
    # The text of any exporter of that name would do elsewhere; only the built-in one has an object to give.
    exporter: Any = registry.exporter("dot")
    drawn: graphviz.Digraph = exporter.digraph(capture(var, model=model, params=params), options)
    return drawn


def mimebundle(graph: Graph) -> dict[str, str]:
    """What a notebook shows for a graph, by MIME type."""
    from gradir.display import mimebundle as shown

    return shown(graph)


def matching(graph: Graph, pattern: str) -> set[str]:
    """The ids of the nodes that a pattern names, see `gradir.Graph.select`."""
    from gradir.passes import matching as named

    return named(graph, pattern)


def diff(a: Graph, b: Graph, *, ignore: Sequence[str] = (), normalize: bool = False, vocabulary: bool = False) -> Diff:
    """What changed from ``a`` to ``b``, as data; false when nothing did.

    Printed, it is the text of ``gradir diff``, and `Diff.to` gives the other forms. For these it keeps both graphs.

    Args:
        a: the graph before.
        b: the graph after.
        ignore: fields that do not count: ``source``, ``attrs.eps``, ``saved``; or ``scopes``, ``cuts``, ``order``.
        normalize: leave out too what another release of the framework changes by itself.
        vocabulary: tell both graphs in words that all frameworks share, so that a model and its port to another
            framework can be compared. The diff is then one of these graphs, and is no patch of ``a``.

    Raises:
        GradirError: a field to ignore that there is not.
        TypeError: one of the two is no graph.

    >>> from gradir.ir import Graph, Node
    >>> bool(diff(Graph.of([Node("x")]), Graph.of([Node("x")])))
    False
    """
    from gradir.ir.graph import expect_graphs
    from gradir.review.comparison import Comparison

    expect_graphs(a, b)
    return Comparison(a, b, ignore=ignore, normalize=normalize, vocabulary=vocabulary).linked_diff()


def diff_text(diff: Diff, renderer: str, **options: object) -> str:
    """A diff as the named renderer writes it, see `gradir.Diff.to`."""
    from gradir import registry
    from gradir.review.comparison import Comparison

    return registry.rendered(renderer, Comparison.behind(diff), options)


def explanation_text(explanation: Explanation, format: str) -> str:
    """An explanation in a format, see `gradir.Explanation.to`."""
    from gradir.explanations.forms import written

    return written(explanation, format)


def patch(graph: Graph, diff: Diff) -> Graph:
    """The graph that a diff leads to, given the one it starts from: ``patch(a, diff(a, b)) == b``.

    Raises:
        PatchError: the diff was not made for this graph.
        TypeError: the one is no graph, or the other no diff.

    >>> from gradir.ir import Graph, Node
    >>> a, b = Graph.of([Node("x")]), Graph.of([Node("y")])
    >>> list(patch(a, diff(a, b)).nodes)
    ['y']
    """
    from gradir.diffs.changes import script_for
    from gradir.diffs.hunks import apply

    return apply(script_for(graph, diff), graph)


def unpatch(graph: Graph, diff: Diff) -> Graph:
    """The graph that a diff starts from, given the one it leads to: ``unpatch(b, diff(a, b)) == a``.

    Raises:
        PatchError: the diff was not made for this graph.
        TypeError: the one is no graph, or the other no diff.
    """
    from gradir.diffs.changes import script_for
    from gradir.diffs.hunks import apply, inverse

    return apply(inverse(script_for(graph, diff)), graph)
