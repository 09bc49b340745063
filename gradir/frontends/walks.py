"""Walk graphs without recursion, and replace attributes for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def find_reachable(starts: Iterable[K], following: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Yield the values that can be reached from ``starts``, each once, in depth-first order."""
    waiting, seen = [*starts][::-1], set[K]()
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            yield current
            waiting += [*following(current)][::-1]


def compute_bottom_up(
    start: K, known: dict[K, V], following: Callable[[K], Iterable[K]], compute: Callable[[K], V]
) -> V:
    """Compute a value for ``start`` after those for all that follow it, each once, and store them in ``known``."""
    waiting = [start]
    while waiting:
        current = waiting[-1]
        missing = [] if current in known else [each for each in following(current) if each not in known]
        if not missing and waiting.pop() not in known:
            known[current] = compute(current)
        waiting += missing
    return known[start]


def follow(first: T | None, following: Callable[[T], T | None]) -> Iterator[T]:
    """Yield a value, the one that follows it, and so on until ``None``."""
    while first is not None:
        yield first
        first = following(first)


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a running frame and the frames that called it, the innermost first."""
    return follow(frame, lambda inner: inner.f_back)


def frames_of(frame: FrameType | None, module: str) -> Iterator[FrameType]:
    """Yield the frames of `frames_from` that run code of a module or of its submodules."""
    return (each for each in frames_from(frame) if f"{each.f_globals.get('__name__')}.".startswith(f"{module}."))


def closure_variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the closure variables of a function that have a value."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            yield name, cell.cell_contents


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and the codes of the functions inside it."""
    return find_reachable([code], lambda each: (inner for inner in each.co_consts if isinstance(inner, CodeType)))


def paths_above(path: str) -> Iterator[str]:
    """Yield a path of a module and the paths above it, the root last."""
    return follow(path, lambda inner: inner.rpartition(".")[0] if inner else None)


def element_sums(
    parameters: Iterable[tuple[tuple[str, ...], int, bool]],
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count by path the elements of a module's own parameters, of its subtree's, and the trainable ones of these.

    ``parameters`` has the owners, the number of elements, and ``requires_grad`` of each.
    """
    own, total, trainable = Counter[str](), Counter[str](), Counter[str]()
    for owners, elements, is_trainable in parameters:
        for owner in owners:
            own[owner] += elements
        # A tied parameter counts once in a module above all its owners.
        for above in dict.fromkeys(above for owner in owners for above in paths_above(owner)):
            total[above] += elements
            trainable[above] += elements if is_trainable else 0
    return own, total, trainable


def join_paths(path: str, name: str) -> str:
    """Join a path of a module and a path below it. Either may be empty."""
    return f"{path}.{name}" if path and name else path or name


_NONE: Final = object()


@contextmanager
def replace_attribute(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replace the value of an attribute, if it exists, inside of a ``with`` block."""
    old = getattr(owner, name, _NONE)
    if old is _NONE:
        yield
        return
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


def replace_function(entered: ExitStack, owner: Any, name: str, function: object) -> None:
    """Replace a function of a module or a class until a stack is closed, unless the program replaces it meanwhile."""
    old = vars(owner).get(name, _NONE)
    setattr(owner, name, function)

    def put_back() -> None:
        # A program may have replaced it by another function.
        if vars(owner).get(name) is function and old is _NONE:
            delattr(owner, name)
        elif vars(owner).get(name) is function:
            setattr(owner, name, old)

    entered.callback(put_back)
