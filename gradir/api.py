"""The functions of the public API. Each imports its modules when it is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any

from gradir.errors import FormatError

if TYPE_CHECKING:
    import graphviz

    from gradir.diffs.changes import Diff
    from gradir.distributed.model import Ranks
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph
    from gradir.protocols import Names, Recorder, Verification
    from gradir.watcher import Watcher


def capture(
    target: object,
    *inputs: object,
    kwargs: Mapping[str, object] | None = None,
    model: object = None,
    params: Names | None = None,
    frontend: str | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    **options: Any,
) -> Graph:
    """Capture the graph behind a gradient.

    In PyTorch, this is the graph behind tensors. In JAX, it is the graph behind ``jax.grad(target, argnums,
    has_aux)(*inputs, **kwargs)``. JAX only traces the function, so an argument may be a ``jax.ShapeDtypeStruct``.

    Args:
        target: a tensor; containers or objects with tensors; a module, which runs on ``inputs``; or a function of JAX.
        inputs: positional arguments of the module or function.
        kwargs: keyword arguments of the module or function.
        model: the module, or a dict of modules, whose parameters and buffers name the tensors.
        params: further names of tensors, as a mapping or pairs.
        frontend: the front-end (default: the one that claims the target or an input).
        argnums: the arguments to differentiate, in JAX.
        has_aux: whether the function returns a pair of which only the first has a gradient, in JAX.
        options: options of a `CaptureRequest`, such as ``sources=True`` or ``graph="forward"``.

    Raises:
        CaptureError: no output has a graph, or not exactly one front-end claims the target.
        GradirError: the front-end is unknown.
        TypeError: a keyword is unknown.

    >>> import torch, gradir
    >>> w = torch.ones(3, requires_grad=True)
    >>> gradir.capture(w.exp().sum(), params={"w": w})
    <gradir.Graph: 5 nodes, 4 edges, 1 output>
    >>> gradir.capture(torch.nn.Linear(3, 2), torch.ones(1, 3))
    <gradir.Graph: 7 nodes, 6 edges, 1 output>
    """
    from gradir.capturing import capture_graph
    from gradir.request import make_request

    keywords = {"kwargs": kwargs, "model": model, "params": params, "argnums": argnums, "has_aux": has_aux}
    return capture_graph(make_request("capture", target, inputs, {**keywords, "frontend": frontend, **options}))


def verify(
    target: object,
    *inputs: object,
    kwargs: Mapping[str, object] | None = None,
    model: object = None,
    params: Names | None = None,
    keep_graph: bool = True,
    frontend: str | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    **options: Any,
) -> Verification:
    """Capture a graph and compare it with the autograd engine in a real backward pass.

    The arguments are those of `capture`. The result is true if the engine runs exactly the captured functions, all
    gradients have the recorded dtypes and shapes, and exactly the leaves of the graph get one. ``.grad`` stays as it
    was. If the graph communicates, all ranks must verify.

    With ``keep_graph`` you can still run your own backward pass, and functions that run only once are an error. If the
    front-end runs no backward pass, gradir compares the graph with a second capture, and ``skipped`` says so.

    Raises:
        CaptureError: there is no graph, or its backward cannot run, or runs only once.

    >>> import torch, gradir
    >>> model = torch.nn.Linear(3, 2)
    >>> gradir.verify(model(torch.ones(1, 3)).sum(), model=model).mismatches
    ()
    """
    from gradir.capturing import capture_and_verify
    from gradir.request import make_request

    keywords = {"kwargs": kwargs, "model": model, "params": params, "argnums": argnums, "has_aux": has_aux}
    request = make_request("verify", target, inputs, {**keywords, "frontend": frontend, **options})
    return capture_and_verify(request, keep_graph=keep_graph)[1]


def explain(
    target: object,
    *inputs: object,
    kwargs: Mapping[str, object] | None = None,
    frontend: str | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    values: bool | None = None,
    **options: Any,
) -> Explanation:
    """Explain which parameters or arguments get a gradient, and why the others get none.

    The arguments are those of `capture`: a function of JAX, or a module of PyTorch. For a loss that your program
    computes, record it with ``gradir.record(model, flow=True)`` and call ``rec.explain(loss)``. With ``values`` a
    backward pass also finds zero and non-finite gradients (default: if the graph is small and has values). If the
    front-end cannot explain, the explanation is that of the cuts in the graph.

    Raises:
        CaptureError: the function has no graph, or the target is a tensor that was already computed.

    >>> import torch, gradir
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Flatten())
    >>> print(gradir.explain(model, torch.ones(1, 3)))
    Both parameters get a gradient.
    """
    from gradir.capturing import explain_request
    from gradir.request import make_request

    keywords = {"kwargs": kwargs, "frontend": frontend, "argnums": argnums, "has_aux": has_aux, "values": values}
    return explain_request(make_request("explain", target, inputs, {**keywords, **options}))


def watch(model: object = None, optimizer: object = None, *, frontend: str | None = None) -> Watcher:
    """Watch the training that runs inside the context, and leave it as it is.

    ``model`` names the parameters, and ``optimizer`` is an existing optimizer or several. gradir warns of each error
    at once, and ``report()`` returns all findings.

    Raises:
        CaptureError: no front-end can watch such a model.

    >>> import torch, gradir
    >>> model = torch.nn.Linear(3, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with gradir.watch(model, optimizer) as w:
    ...     for _ in range(3):
    ...         optimizer.zero_grad()
    ...         model(torch.ones(2, 3)).square().mean().backward()
    ...         optimizer.step()
    >>> print(w.report())
    Nothing wrong was found in 3 steps.
    """
    from gradir.watcher import Watcher

    several = () if optimizer is None else optimizer if isinstance(optimizer, (list, tuple)) else (optimizer,)
    return Watcher(model, several, frontend)


def release() -> int:
    """Free the deep graphs that the program has dropped, and return the number of their functions.

    PyTorch overflows the stack when it frees a path of more than 1,000 functions. So gradir keeps captured ones until
    the garbage collector runs.

    >>> import gradir
    >>> gradir.release()
    0
    """
    from gradir import claims, registry

    loaded = claims.find_loaded_kinds()
    return sum(registry.frontend(name).release() for name, kind in loaded.items() if "release" in kind.features)


def record(
    model: object = None,
    *,
    sources: bool = False,
    flow: bool = False,
    collectives: bool = False,
    frontend: str | None = None,
    **options: Any,
) -> Recorder:
    """Record which module runs which operation inside the context, for ids and scopes by module.

    Without ``model``, the graph has every module that ran. A lone module with parameters is the model. If there are
    several, each has the name of its class. With ``model``, other modules appear only if they have a node or a
    parameter in the graph.

    Args:
        model: the module or a dict of modules.
        sources: also record source lines and the variables that results are assigned to.
        flow: also record operations that autograd ignores, for ``rec.forward()`` and ``rec.explain(loss)``. A call of
            compiled code is one operation.
        collectives: also record the exchanges with other ranks. Capture before the backward pass, and call
            ``rec.with_collectives(graph)`` after it.
        frontend: the front-end (default: the one that claims the model).
        options: further options of a `CaptureRequest`.

    Raises:
        CaptureError: ``model`` is no module (raised on entering), or the front-end lacks a feature.

    >>> import torch, gradir
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
    >>> with gradir.record(model) as rec:
    ...     loss = model(torch.ones(1, 3)).sum()
    >>> [node.id for node in rec.capture(loss).nodes.values() if node.op == "tanh"]
    ['1/tanh:1']
    >>> with gradir.record(model, flow=True) as rec:
    ...     best = model(torch.ones(1, 3)).argmax()
    >>> [node.op for node in rec.forward().nodes.values() if node.role == "function"]
    ['ones', 't', 'addmm', 'tanh', 'argmax']
    """
    from gradir.capturing import make_recorder
    from gradir.request import make_request

    keywords = {"model": model, "sources": sources, "flow": flow, "collectives": collectives, "frontend": frontend}
    return make_recorder(make_request("record", options={**keywords, **options}))


def load(path: str | bytes | PathLike[str]) -> Graph:
    """Read a ``.gir`` file; ``-`` is standard input.

    Raises:
        FileError: the file cannot be read.
        FormatError: the file is not a GIR document that this release can read.
    """
    from gradir import files

    name = files.name_of(path)
    with files.naming(path):
        # Asking the front-ends takes time.
        if ".gir" not in name and _is_read(name):
            from gradir.capturing import read

            with files.open_file(path) as file:
                return read(file, name)
        return decode_graph(files.read_bytes(path), name)


def _is_read(name: str) -> bool:
    from gradir.claims import reader_of

    return bool(reader_of(name))


def decode_graph(data: bytes, name: str) -> Graph:
    """Return the graph in the bytes of a GIR document or of a file that a front-end reads.

    Raises:
        FormatError: it is neither.
    """
    from gradir import codecs

    try:
        return codecs.decode(data)
    except FormatError as error:
        from gradir.capturing import read
        from gradir.claims import other_format

        if _is_read(name):
            return read(BytesIO(data), name)
        if other := other_format(name):
            raise error.replace(advice=f"it is {other}") from error
        raise


def ranks(sources: Iterable[str | PathLike[str] | Graph]) -> Ranks:
    """Compare the ranks of a distributed run, from their files or graphs, and report where they differ.

    Capture them with ``gradir capture --collectives`` or `record` with ``collectives=True``. The result is true if
    something was found.

    Raises:
        GradirError: the files are not those of one run, or one has no rank.
        FileError: a file cannot be read.
        FormatError: a file is not a GIR document that this release can read.
    """
    from gradir.distributed.comparison import compare_ranks

    return compare_ranks(sources)


def link(sources: Iterable[str | PathLike[str] | Graph]) -> Graph:
    """Link the graphs of all ranks of a pipeline to one graph.

    Each stage is a module (``stage0``, or ``rank0`` without stages). A sent output becomes a function ``send``, and the
    leaf that receives it ``recv``. gradir issues a `GradirWarning` for each message that it cannot match.

    Raises:
        GradirError: the files are not those of one run, a rank runs several stages, or no message matches.
        FileError: a file cannot be read.
        FormatError: a file is not a GIR document that this release can read.
    """
    import warnings

    from gradir.distributed.linking import link_pipeline
    from gradir.errors import GradirWarning

    found = link_pipeline(sources)
    for trouble in found.troubles:
        warnings.warn(trouble, GradirWarning, stacklevel=2)
    return found.graph


def loads(data: bytes | bytearray | memoryview) -> Graph:
    """Return the graph in the bytes of a ``.gir`` file.

    Raises:
        FormatError: the bytes are not a GIR document that this release can read.
        TypeError: the data are not bytes.
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
        graph: the graph.
        path: the file; a name in ``.gz`` or ``.zst`` compresses it.
        format: ``json`` or ``msgpack``.
        compress: ``gzip``, ``zstd`` or ``none`` (default: by the name).
        lossy: drop unknown keys of the file that the graph was read from.

    Raises:
        FileError: the file cannot be written.
        GradirError: the library of the compression is not installed.
        FormatError: the format or compression is unknown, or a part of the graph would be lost.
        TypeError: ``graph`` is not a graph.
    """
    from gradir import codecs, files

    compression = codecs.compression_for(path, compress)
    files.write_bytes(path, codecs.encode(graph, format, compression, lossy=lossy))


def dumps(graph: Graph, *, format: str = "json", compress: str | None = None, lossy: bool = False) -> bytes:
    """Return the bytes that `save` would write, compressed on request.

    Raises:
        FormatError: the format or compression is unknown, or a part of the graph would be lost.

    >>> from gradir.ir import Graph, Node
    >>> graph = Graph.of([Node("x", role="leaf")])
    >>> loads(dumps(graph, format="msgpack", compress="gzip")) == graph
    True
    """
    from gradir import codecs

    return codecs.encode(graph, format, codecs.compression_for("", compress), lossy=lossy)


def export(graph: Graph, exporter: str, **options: object) -> str:
    """Export a graph to text with the named exporter and its options, after the requested passes.

    The keywords of passes are those of ``gradir export``, such as ``drop``, ``focus``, ``rollup`` and ``depth``.
    ``overlay`` is an `Overlay` of this graph to show, and ``channel`` one of its channels.

    Raises:
        ExportError: the exporter, option or channel is unknown, or the format cannot represent the graph or overlay.
        FormatError: the overlay is invalid.
        PassError: a pattern matches no node, or a pass refuses the value.

    >>> from gradir.ir import Graph, Node, Ref
    >>> graph = Graph.of([Node("x", role="leaf"), Node("exp:1", op="exp", inputs=(Ref("x", 0),)), Node("y")])
    >>> print(export(graph, "tree", focus="x"))
    exp:1
    └─ x leaf [focus]
    <BLANKLINE>
    """
    from gradir.exporting import export_graph

    return export_graph(exporter, graph, options)


def render(graph: Graph, picture: str = "svg", *, seconds: float = 60.0, **options: object) -> bytes:
    """Draw a graph and return the bytes of an ``svg``, ``png`` or ``pdf``.

    Graphviz's ``dot`` draws it, or ``graphviz-pure``, which draws no ``pdf``. ``options`` are those of `export` with
    ``dot``; ``all=True`` draws every node.

    Raises:
        ExportError: the format or option is unknown, the graph has too many boxes, no program draws the format, or the
            program fails or needs more than ``seconds`` or 4 GiB.
        PassError: a pattern matches no node, or a pass refuses the value.
    """
    from gradir.exporting import export_graph, picture_options
    from gradir.pictures import render as draw

    source = export_graph("dot", graph, picture_options(options), f"a picture ({picture})")
    return draw(source, picture, seconds=seconds)


def make_dot(
    var: object,
    params: Names | None = None,
    show_attrs: bool = False,
    show_saved: bool = False,
    max_attr_chars: int = 50,
    *,
    model: object = None,
) -> graphviz.Digraph:
    """Capture and draw in one call, with the arguments of torchviz's function.

    ``params`` and ``model`` name tensors as in `capture`. The result is a `graphviz.Digraph`: a notebook shows it, and
    its ``render`` writes a file, with or without the program ``dot``.

    Raises:
        CaptureError: ``var`` has no graph.

    >>> import torch, gradir
    >>> w = torch.ones(3, requires_grad=True)
    >>> "ExpBackward0" in gradir.make_dot(w.exp().sum(), params={"w": w}).source
    True
    """
    from gradir import registry

    values = {"show_attrs": show_attrs, "show_saved": show_saved, "max_attr_chars": max_attr_chars}
    options = registry.exporter_options("dot", {"native": True, "all": True, "theme": "classic", **values})
    # Only the built-in exporter has the method `digraph`.
    exporter: Any = registry.exporter("dot")
    drawn: graphviz.Digraph = exporter.digraph(capture(var, model=model, params=params), options)
    return drawn


def diff(a: Graph, b: Graph, *, ignore: Sequence[str] = (), normalize: bool = False, vocabulary: bool = False) -> Diff:
    """Compare two graphs and return the changes, which are false if there are none.

    Printing them gives the text of ``gradir diff``, and `Diff.to` gives other forms.

    Args:
        a: the graph before.
        b: the graph after.
        ignore: fields to ignore: ``source``, ``attrs.eps``, ``saved``; or ``scopes``, ``cuts``, ``order``.
        normalize: also ignore changes that another release of the framework makes by itself.
        vocabulary: compare a model with its port to another framework, in shared terms. The diff is then no patch.

    Raises:
        GradirError: a field to ignore is unknown.
        TypeError: an argument is not a graph.

    >>> from gradir.ir import Graph, Node
    >>> bool(diff(Graph.of([Node("x")]), Graph.of([Node("x")])))
    False
    """
    from gradir.ir.graph import expect_graphs
    from gradir.review.reviewing import review_graphs

    expect_graphs(a, b)
    return review_graphs(a, b, ignore=ignore, normalize=normalize, vocabulary=vocabulary)


def patch(graph: Graph, diff: Diff) -> Graph:
    """Apply a diff to the graph that it starts from: ``patch(a, diff(a, b)) == b``.

    Raises:
        PatchError: the diff was not made for this graph.
        TypeError: the arguments are not a graph and a diff.

    >>> from gradir.ir import Graph, Node
    >>> a, b = Graph.of([Node("x")]), Graph.of([Node("y")])
    >>> list(patch(a, diff(a, b)).nodes)
    ['y']
    """
    from gradir.diffs.changes import script_for
    from gradir.diffs.hunks import apply

    return apply(script_for(graph, diff), graph)


def unpatch(graph: Graph, diff: Diff) -> Graph:
    """Undo a diff on the graph that it leads to: ``unpatch(b, diff(a, b)) == a``.

    Raises:
        PatchError: the diff was not made for this graph.
        TypeError: the arguments are not a graph and a diff.
    """
    from gradir.diffs.changes import script_for
    from gradir.diffs.hunks import apply, inverse

    return apply(inverse(script_for(graph, diff)), graph)
