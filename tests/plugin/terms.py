"""A made-up framework: terms that know what they were made of."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Term", "__version__"]

__version__ = "1.0"


class Term:
    """A named number, or what an operation makes of other terms."""

    def __init__(self, name: str = "", op: str = "", inputs: tuple[Term, ...] = ()) -> None:
        self.name, self.op, self.inputs = name, op, inputs

    def __add__(self, other: Term) -> Term:
        return Term(op="add", inputs=(self, other))

    def view(self) -> Term:
        """The term itself, in other words."""
        return Term(op="view", inputs=(self,))

    def parts(self) -> Iterator[Term]:
        """All terms that this one was made of, each after its inputs and once, itself last."""
        done: set[Term] = set()
        left = [self]
        while left:
            term = left.pop()
            missing = [each for each in term.inputs if each not in done]
            if missing:
                left += [term, *missing]
            elif term not in done:
                done.add(term)
                yield term
