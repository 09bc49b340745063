"""The entry point of the JAX front-end; importing it does not import jax."""

from __future__ import annotations

from collections.abc import Set
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from gradir.errors import CaptureError

if TYPE_CHECKING:
    from gradir.explanations.model import Explanation
    from gradir.frontends.jax.live import LiveGraph, Trace
    from gradir.protocols import BackwardCallback, Running, Verification
    from gradir.request import CaptureRequest

_OLDEST = (0, 7)
_LIBRARIES = frozenset({"equinox", "flax", "jax", "jaxlib"})


class JaxFrontend:
    """Captures the graph of the gradient of a JAX function."""

    framework: ClassVar[str] = "jax"
    takes: ClassVar[str] = "a function and its arguments, as jax.grad(fn)(*args) does, or a flax or equinox module"
    install: ClassVar[str] = "pip install 'gradir[jax]'"
    # Equations always have their source lines.
    features: ClassVar[Set[str]] = frozenset(
        {"argnums", "collectives", "explain", "inputs", "program", "running", "seed", "sources", "verify"}
    )

    def __init__(self) -> None:
        try:
            import jax
        except ImportError as error:
            raise CaptureError(f"capturing needs JAX: {self.install}") from error
        if jax.__version_info__[:2] < _OLDEST:
            raise CaptureError(f"capturing needs jax 0.7 or later, and this is {jax.__version__}: update it")

    @classmethod
    def claims(cls, value: object) -> bool:
        """Return whether a value is an object or class of JAX, flax or equinox, or a pytree with an array in it."""
        import jax

        kind = value if isinstance(value, type) else type(value)
        if any(each.__module__.partition(".")[0] in _LIBRARIES for each in kind.__mro__):
            return True
        if isinstance(value, (type, tuple, list, dict)):
            return False
        return any(isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) for leaf in jax.tree_util.tree_leaves(value))

    def capture(self, request: CaptureRequest) -> LiveGraph:
        """Trace a function, or a module on its inputs, and capture the operations of its gradient."""
        from gradir.frontends.jax.live import LiveGraph

        if request.step != 1:
            raise CaptureError("--step: a program of JAX names a function, which has no steps; leave it out")
        found = _trace(request)
        return LiveGraph(found.graph(collectives=request.collectives), found)

    def explain(self, request: CaptureRequest) -> Explanation:
        """Explain which leaves of the differentiated arguments get a gradient; see `gradir.explain`."""
        from gradir.frontends.jax.steps import explain_function

        return explain_function(_trace(request), values=request.values)

    def verify(self, live: LiveGraph, *, keep_graph: bool = True) -> Verification:  # noqa: ARG002
        """Compare a graph with a real `jax.vjp`, which leaves the graph usable; see `gradir.verify`."""
        from gradir.frontends.jax.target import verify

        return verify(live)

    def seed(self, number: int) -> None:
        """Do nothing: JAX programs have explicit keys. Only a module that gradir constructs gets the seed."""

    def running(self, request: CaptureRequest, reached: BackwardCallback) -> AbstractContextManager[Running]:
        """Count the gradients that a program computes, and capture or explain one of them."""
        from gradir.frontends.jax.running import Running

        return Running(request, reached)


def _trace(request: CaptureRequest) -> Trace:
    from gradir.frontends.jax.arguments import NoGraphError
    from gradir.frontends.jax.live import trace
    from gradir.frontends.jax.modules import find_call
    from gradir.frontends.jax.target import trace_target

    target = request.target
    if request.is_program:
        return trace_target(target, request.inputs, request.seed or 0)
    call = find_call(target, request.inputs)
    if not callable(call.fn):
        raise NoGraphError(target)
    return trace(call.fn, call.args, request.kwargs or {}, argnums=request.argnums, has_aux=request.has_aux)
