"""Captures the terms of the framework ``terms``."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, ClassVar, NamedTuple

from gradir import __version__
from gradir.errors import CaptureError
from gradir.ir import Builder, Graph, Producer, TensorMeta
from gradir.protocols import CaptureRequest

__all__ = ["TermsFrontend"]


class Captured(NamedTuple):
    """A graph, and nothing live beside it."""

    graph: Graph


class TermsFrontend:
    """Captures terms."""

    framework: ClassVar[str] = "terms"
    takes: ClassVar[str] = "a term"
    install: ClassVar[str] = "pip install gradir-terms"
    features: ClassVar[Set[str]] = frozenset()

    @classmethod
    def claims(cls, value: object) -> bool:
        """Whether a value is a term. The framework is loaded when this is asked."""
        from terms import Term

        return isinstance(value, Term)

    def capture(self, request: CaptureRequest) -> Captured:
        """The graph behind a term."""
        from terms import Term
        from terms import __version__ as version

        target = request.target
        if not isinstance(target, Term):
            raise CaptureError("only a term can be captured")
        builder, number = Builder(), TensorMeta("float64", ())
        values: dict[Term, Any] = {}
        for term in target.parts():
            parts = [values[each] for each in term.inputs]
            made = builder.function(term.op, parts, [number]) if term.op else builder.tensor(term.name, number)
            values[term] = made
        builder.output(values[target])
        producer = Producer(gradir=__version__, framework="terms", framework_version=version)
        return Captured(builder.build(producer=producer))
