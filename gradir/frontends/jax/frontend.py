"""The entry point of the JAX front-end; importing it does not import jax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gradir.errors import CaptureError

if TYPE_CHECKING:
    from gradir.explanations.model import Explanation
    from gradir.frontends.jax.live import LiveGraph, Trace
    from gradir.protocols import Names, Verification

__all__ = ["JaxFrontend"]

_OLDEST = (0, 7)
_LIBRARIES = frozenset({"equinox", "flax", "jax", "jaxlib"})


class JaxFrontend:
    """Captures the graph behind the gradient of a JAX function."""

    framework: ClassVar[str] = "jax"
    takes: ClassVar[str] = "a function and its arguments, as jax.grad(fn)(*args) does, or a flax or equinox module"
    install: ClassVar[str] = "pip install 'gradir[jax]'"

    def __init__(self) -> None:
        try:
            import jax
        except ImportError as error:
            raise CaptureError(f"capturing needs JAX: {self.install}") from error
        if jax.__version_info__[:2] < _OLDEST:
            raise CaptureError(f"capturing needs jax 0.7 or later, and this is {jax.__version__}: update it")

    @classmethod
    def claims(cls, value: object) -> bool:
        """Whether a value is JAX's, a flax or equinox module or a class of them, or a tree with an array in it."""
        import jax

        kind = value if isinstance(value, type) else type(value)
        if any(each.__module__.partition(".")[0] in _LIBRARIES for each in kind.__mro__):
            return True
        if isinstance(value, (type, tuple, list, dict)):
            return False
        return any(isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) for leaf in jax.tree_util.tree_leaves(value))

    def capture(
        self,
        target: object,
        inputs: Sequence[object] = (),
        *,
        kwargs: Mapping[str, object] | None = None,
        model: object = None,
        params: Names | None = None,
    ) -> LiveGraph:
        """Capture the gradient of a function by its first argument; see `gradir.capture`."""
        if model is not None or params is not None:
            raise CaptureError("model and params are for tensors: JAX names leaves by their path in the arguments")
        return self.capture_gradient(target, inputs, kwargs or {})

    def capture_gradient(
        self,
        target: object,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
    ) -> LiveGraph:
        """Trace a function, or a module on its inputs, and capture what lies behind its gradient."""
        from gradir.frontends.jax.live import LiveGraph

        found = _trace(target, inputs, kwargs, argnums=argnums, has_aux=has_aux)
        return LiveGraph(found.graph(), found)

    def explain_gradient(
        self,
        target: object,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
        values: bool | None = None,
    ) -> Explanation:
        """Explain which leaves of the differentiated arguments get a gradient; see `gradir.explain`."""
        from gradir.frontends.jax.explaining import explain

        return explain(_trace(target, inputs, kwargs, argnums=argnums, has_aux=has_aux), values=values)

    def verify(self, live: LiveGraph, *, keep_graph: bool = True) -> Verification:  # noqa: ARG002
        """Compare a graph with a real `jax.vjp`, which uses up nothing; see `gradir.verify`."""
        from gradir.frontends.jax.verifying import verify

        return verify(live)

    def seed(self, number: int) -> None:
        """Nothing: a program of JAX has its seeds in its keys. A module that is made for a capture gets the seed."""

    def capture_target(
        self,
        target: object,
        inputs: Sequence[str],
        *,
        seed: int = 0,
        sources: bool = False,  # noqa: ARG002
    ) -> LiveGraph:
        """Trace what a PROGRAM named; the lines of its equations are always there."""
        from gradir.frontends.jax.live import LiveGraph
        from gradir.frontends.jax.target import traced_target

        found = traced_target(target, inputs, seed)
        return LiveGraph(found.graph(), found)

    def explain_target(
        self,
        target: object,
        inputs: Sequence[str],
        *,
        seed: int = 0,
        values: bool | None = None,
        graph: str = "autograd",
    ) -> Explanation:
        """Trace what a PROGRAM named and explain what comes out."""
        from gradir.frontends.jax.explaining import explain
        from gradir.frontends.jax.target import traced_target

        if graph == "forward":
            raise CaptureError("JAX traces functions, so there is no graph of a forward that ran: leave --graph out")
        return explain(traced_target(target, inputs, seed), values=values)


def _trace(
    target: object, inputs: Sequence[Any], kwargs: Mapping[str, Any], *, argnums: int | Sequence[int], has_aux: bool
) -> Trace:
    from gradir.frontends.jax.live import trace
    from gradir.frontends.jax.modules import called

    call = called(target, inputs)
    if not callable(call.fn):
        raise CaptureError(
            f"JAX keeps no graph behind an object of type {type(target).__name__}: hand over the function that makes "
            "it, and its arguments, as to jax.grad"
        )
    return trace(call.fn, call.args, kwargs, argnums=argnums, has_aux=has_aux)
