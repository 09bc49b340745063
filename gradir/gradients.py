"""The functions of the public API that take live objects. Each imports what it needs when it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph
    from gradir.protocols import LiveCapture, Names, Recorder, Verification

__all__ = ["capture", "explain", "record", "release", "verify"]

_KEYWORDS = ("argnums", "frontend", "has_aux", "keep_graph", "kwargs", "model", "params", "values")


def capture(
    target: object,
    *inputs: object,
    kwargs: Mapping[str, object] | None = None,
    model: object = None,
    params: Names | None = None,
    frontend: str | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    **misplaced: NoReturn,
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
        misplaced: refused; keyword arguments of the module or the function go into ``kwargs``.

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
    from gradir import choosing

    _refuse("capture", misplaced)
    name = choosing.claiming(target, inputs, kwargs, model, params, chosen=frontend)
    live = _captured(name, target, inputs, kwargs, model=model, params=params, argnums=argnums, has_aux=has_aux)
    return live.graph


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
    **misplaced: NoReturn,
) -> Verification:
    """Capture, and check the graph against the autograd engine by running a real backward.

    Every captured function must run and no other may, but for those of a backward that one of them runs inside this
    one; the gradient that arrives at each must have the recorded dtype and shape; every leaf of the graph must receive
    a gradient, and no parameter of the model that is said to be unreached. The arguments are those of `capture`; the
    result is true where graph and engine agree. Afterwards ``.grad`` of these leaves and parameters is as before. Hooks
    on tensors and nodes run. In a process of a group the engine is asked for the gradients and adds none up, so the
    next backward is what it would have been; where the graph communicates, all ranks must verify.

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
    from gradir import choosing
    from gradir.abilities import Verifies

    _refuse("verify", misplaced)
    name = choosing.claiming(target, inputs, kwargs, model, params, chosen=frontend)
    verifies = choosing.able(name, Verifies)
    live = _captured(name, target, inputs, kwargs, model=model, params=params, argnums=argnums, has_aux=has_aux)
    return verifies.verify(live, keep_graph=keep_graph)


def explain(
    target: object,
    *inputs: object,
    kwargs: Mapping[str, object] | None = None,
    frontend: str | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    values: bool | None = None,
    **misplaced: NoReturn,
) -> Explanation:
    """Explain which leaves of a function's arguments get a gradient, and why the others get none.

    The arguments are those of `capture`, of a function of JAX. Of PyTorch, which notes a forward while it runs, an
    explanation comes from a recorder: ``gradir.record(model, flow=True)``, and then ``rec.explain(loss)``. With
    ``values`` a backward runs too, to find gradients that are zero or not finite; without a word where the arguments
    have values and the graph is small.

    Raises:
        CaptureError: the function has no graph, or the front-end explains what was recorded only.

    >>> import gradir
    >>> gradir.explain(loss, params, x).causes  # doctest: +SKIP
    """
    from gradir import choosing, registry
    from gradir.abilities import Differentiates, Flows
    from gradir.errors import CaptureError

    name = choosing.claiming(target, inputs, kwargs, chosen=frontend)
    found = registry.frontend(name)
    if isinstance(found, Flows) and not isinstance(found, Differentiates):
        raise CaptureError(
            f"front-end {name!r} explains a forward that was recorded: "
            "`with gradir.record(model, flow=True) as rec: loss = ...`, then `rec.explain(loss)`"
        )
    _refuse("explain", misplaced)
    explains = choosing.able(name, Differentiates)
    return explains.explain_gradient(target, inputs, kwargs or {}, argnums=argnums, has_aux=has_aux, values=values)


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
    from gradir.choosing import releasing

    return sum(each.release() for each in releasing())


def record(
    model: object = None,
    *,
    sources: bool = False,
    flow: bool = False,
    collectives: bool = False,
    frontend: str | None = None,
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
    from gradir.choosing import recording

    return recording(model, frontend, sources=sources, flow=flow, collectives=collectives)


def _refuse(function: str, misplaced: Mapping[str, object]) -> None:
    """Refuse keyword arguments that are meant for the module or the function that is captured.

    Raises:
        TypeError: there are some.
    """
    if misplaced:
        from gradir.hints import did_you_mean

        first = next(iter(misplaced))
        if near := did_you_mean(first, _KEYWORDS):
            raise TypeError(f"{function}() has no keyword {first!r}{near}")
        names = ", ".join(f"{name!r}: ..." for name in misplaced)
        raise TypeError(f"{function}() passes keyword arguments of the model as kwargs={{{names}}}")


def _captured(
    name: str,
    target: object,
    inputs: Sequence[object],
    kwargs: Mapping[str, object] | None,
    *,
    model: object,
    params: Names | None,
    argnums: int | Sequence[int],
    has_aux: bool,
) -> LiveCapture:
    """What the front-end of that name captures. What it raises is left as it is: it may run a model of the user's."""
    from gradir import choosing, registry
    from gradir.abilities import Differentiates

    if argnums != 0 or has_aux:
        differentiates = choosing.able(name, Differentiates)
        live = differentiates.capture_gradient(target, inputs, kwargs or {}, argnums=argnums, has_aux=has_aux)
    else:
        live = registry.frontend(name).capture(target, inputs, kwargs=kwargs, model=model, params=params)
    return registry.expect_live(name, live)
