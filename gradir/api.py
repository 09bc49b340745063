"""The functions of the public API. Each imports what it needs when it is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    from gradir.watches.model import Watch

__all__ = [
    "capture",
    "diff",
    "diff_mimebundle",
    "diff_text",
    "dumps",
    "explain",
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
    "record",
    "release",
    "render",
    "save",
    "unpatch",
    "verify",
    "watch",
    "watch_text",
]


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

    Of PyTorch that is the graph behind tensors, or the one that a module makes of inputs. Of JAX it is what lies behind
    ``jax.grad(target, argnums, has_aux)(*inputs, **kwargs)``: the function is traced and never run, so an argument may
    be a ``jax.ShapeDtypeStruct``.

    Args:
        target: a tensor, or any containers and objects with tensors in them, of which those with a graph are captured;
            or a module, which is then run on ``inputs`` and ``kwargs``, so that each operation is known to its module;
            or a function of JAX.
        inputs: the positional arguments of the module or the function.
        kwargs: its keyword arguments.
        model: the module (or a dict of modules) whose parameters and buffers name the tensors.
        params: further names of tensors, intermediate ones too: a mapping, or pairs of a name and a tensor.
        frontend: the name of the front-end; without one it is the one that claims the target or an input.
        argnums: the arguments to differentiate, for a front-end that differentiates functions.
        has_aux: whether the function returns a pair of which only the first has a gradient.
        options: further options of a `CaptureRequest`, such as ``sources=True`` or ``graph="forward"`` for a module.
            Keyword arguments of the module or the function go into ``kwargs``.

    Raises:
        CaptureError: no tensor among the outputs has a graph; or no front-end claims the target, or several do. The
            message says why.
        GradirError: there is no such front-end.
        TypeError: ``frontend`` is no name, or there is a keyword that this function does not have.

    >>> import torch, gradir
    >>> w = torch.ones(3, requires_grad=True)
    >>> gradir.capture(w.exp().sum(), params={"w": w})
    <gradir.Graph: 5 nodes, 4 edges, 1 output>
    >>> gradir.capture(torch.nn.Linear(3, 2), torch.ones(1, 3))
    <gradir.Graph: 7 nodes, 6 edges, 1 output>
    """
    from gradir.capturing import captured
    from gradir.request import asked

    own = {"kwargs": kwargs, "model": model, "params": params, "argnums": argnums, "has_aux": has_aux}
    return captured(asked("capture", target, inputs, {**own, "frontend": frontend, **options}))


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
    """Capture, and check the graph against the autograd engine by running a real backward.

    Every captured function must run and no other may, but for those of a backward that one of them runs inside this
    one; the gradient that arrives at each must have the recorded dtype and shape; the engine must come to every leaf of
    the graph, and bring no gradient to a parameter of the model that is said to be unreached. The arguments are those
    of `capture`; the result is true where graph and engine agree. Afterwards ``.grad`` of these leaves and parameters
    is as before. Hooks on tensors and nodes run. In a process of a group the engine is asked for the gradients and adds
    none up, so the next backward is what it would have been; where the graph communicates, all ranks must verify.

    With ``keep_graph`` a backward of your own can run afterwards. What is seen to run only once is refused before
    anything runs, attributes that a custom Function deletes in its backward are put back, and a `GradirWarning` says
    where one changed its tensors. Other state that a backward uses up is used up by this one too. Without
    ``keep_graph`` anything that can run once is verified, and the graph is used up.

    Raises:
        CaptureError: there is no graph, or backward cannot run on it, or only once where the graph is to be kept, or in
            a process group would change the next one; or the front-end cannot verify.

    >>> import torch, gradir
    >>> model = torch.nn.Linear(3, 2)
    >>> gradir.verify(model(torch.ones(1, 3)).sum(), model=model).mismatches
    ()
    """
    from gradir.capturing import verified
    from gradir.request import asked

    own = {"kwargs": kwargs, "model": model, "params": params, "argnums": argnums, "has_aux": has_aux}
    request = asked("verify", target, inputs, {**own, "frontend": frontend, **options})
    return verified(request, keep_graph=keep_graph)[1]


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
    """Explain which parameters, or leaves of a function's arguments, get a gradient, and why the others get none.

    The arguments are those of `capture`: a function of JAX, or a module of PyTorch, which is run on its inputs. Of a
    loss that a program computes by itself an explanation comes from a recorder, which notes the forward while it runs:
    ``gradir.record(model, flow=True)``, and then ``rec.explain(loss)``. With ``values`` a backward runs too, to find
    gradients that are zero or not finite; without a word where the arguments have values and the graph is small.

    Raises:
        CaptureError: the function has no graph, or the tensors were computed before.

    >>> import torch, gradir
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Flatten())
    >>> print(gradir.explain(model, torch.ones(1, 3)))
    Both parameters get a gradient.
    """
    from gradir.capturing import explained
    from gradir.request import asked

    own = {"kwargs": kwargs, "frontend": frontend, "argnums": argnums, "has_aux": has_aux, "values": values}
    return explained(asked("explain", target, inputs, {**own, **options}))


def watch(model: object = None, optimizer: object = None, *, frontend: str | None = None) -> Watcher:
    """Watch the training that runs inside the context, and leave it as it is.

    ``model`` names the parameters, and ``optimizer`` is one that was made before, or several. Each step of an optimizer
    is looked at: whether loss, gradients and parameters are finite, what moves, what memory grows by. A finding of
    level error is warned of as it is made, and ``report()`` has all.

    Raises:
        CaptureError: nothing is known of such a model, or of training in its framework.

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
    """Let go of the deep graphs that the program has dropped; returns how many functions that were.

    A captured graph with a path of more than 1,000 functions is held until its outputs are gone and the cyclic garbage
    collector runs, because PyTorch would overflow the stack when it frees such a graph. What its functions saved is
    held as long. Where memory is short, call this after the last reference to the outputs is gone. It is safe at any
    time.

    >>> import gradir
    >>> gradir.release()
    0
    """
    from gradir.capturing import releasing

    return sum(each.release() for each in releasing())


def record(
    model: object = None,
    *,
    sources: bool = False,
    flow: bool = False,
    collectives: bool = False,
    frontend: str | None = None,
    **options: Any,
) -> Recorder:
    """Note which module runs which operation, for ids and scopes by module.

    With ``sources`` it also notes the source line of every operation, relative to the working directory, and the
    variable that its result is assigned to, as a name.

    With ``flow`` it notes every operation of the thread that enters it, those that autograd does not note too:
    ``rec.forward()`` is a graph of them, and ``rec.explain(loss)`` says where gradient ends. Compiled code is one
    operation each time it is called, and is not compiled anew.

    With ``collectives``, in one of several processes that train together, it notes what this one exchanges with the
    others, in the forward and in backwards that run inside: a graph then has its ``rank``, and as ``collectives`` what
    was exchanged until it was captured. Since a backward frees what it was kept for, capture before it, and let
    ``rec.with_collectives(graph)`` add behind it what it exchanged.

    Beside ``model``, a module is shown if it made a node of the graph or has a parameter in it, as a criterion does,
    under the name of its class. Without ``model``, every module that ran is shown, whether it took part or not: a
    parameter that no gradient reaches may be what one looks for. A lone module with parameters is then the model, and
    its paths start at the top; of several, each stands under the name of its class.

    Raises:
        CaptureError: ``model`` is no module or dict of modules, which is raised when the context is entered; or the
            front-end cannot record, or not what is asked.

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
    from gradir.capturing import recording
    from gradir.request import asked

    own = {"model": model, "sources": sources, "flow": flow, "collectives": collectives, "frontend": frontend}
    return recording(asked("record", options={**own, **options}))


def load(path: str | bytes | PathLike[str]) -> Graph:
    """Read a ``.gir`` file; ``-`` is standard input.

    Raises:
        FileError: the file cannot be read.
        FormatError: the file is not a GIR document that this release can read.
    """
    from gradir import files

    data, name = files.read_bytes(path), files.name_of(path)
    with files.naming(path):
        return decoded(data, name)


def decoded(data: bytes, name: str) -> Graph:
    """The graph in the bytes of a file of this name: a GIR document, or what a front-end reads.

    Raises:
        FormatError: it is neither.
    """
    from gradir import codecs

    try:
        return codecs.decode(data)
    except FormatError as error:
        from gradir.capturing import other_format, read, reader_of

        if reader_of(name)[0]:
            return read(data, name)
        if other := other_format(name):
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
    from gradir.distributed.examining import examined

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

    from gradir.distributed.linking import linked
    from gradir.errors import GradirWarning

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
    for the exporter ``dot``. Without one that chooses what is drawn, the picture shows layers (``layers=True``);
    ``all=True`` draws every node.

    Raises:
        ExportError: an unknown format or option, the graph has too many boxes, no program is installed that draws the
            format, or the program fails or needs longer than ``seconds`` or more than 4 GiB.
        PassError: a pattern names no node, or a pass does not take the value.
    """
    from gradir.pictures import render as draw
    from gradir.plan import exported, pictured

    return draw(exported("dot", graph, pictured(options), f"a picture ({picture})"), picture, seconds=seconds)


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

    classic = {"native": True, "all": True, "theme": "classic"}
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


def diff_mimebundle(diff: Diff) -> dict[str, str]:
    """What a notebook shows for a diff, by MIME type."""
    from gradir.display import diff_mimebundle as shown

    return shown(diff)


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
        normalize: leave out too what another release of the framework changes by itself. Where one of the graphs has
            an operation that only returns its input, the diff is one of the graphs without it.
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
    from gradir.review.reviewing import reviewed

    expect_graphs(a, b)
    return reviewed(a, b, ignore=ignore, normalize=normalize, vocabulary=vocabulary)


def diff_text(diff: Diff, renderer: str, **options: object) -> str:
    """A diff as the named renderer writes it, see `gradir.Diff.to`."""
    from gradir import registry

    return registry.rendered(renderer, diff, options)


def explanation_text(explanation: Explanation, format: str, **options: Any) -> str:
    """An explanation in a format, see `gradir.Explanation.to`."""
    from gradir.explanations.forms import written

    return written(explanation, format, **options)


def watch_text(watch: Watch, format: str, **options: Any) -> str:
    """A watch in a format, see `gradir.Watch.to`."""
    from gradir.watches.forms import written

    return written(watch, format, **options)


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
