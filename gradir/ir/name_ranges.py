"""Write many dotted names in few characters: ``layers.{0..3,5}.{attn,mlp}``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from gradir.ir.ids import split_index
from gradir.ir.memo import group_by_key
from gradir.ir.text import quote

# Other components are quoted, since they could contain the notation itself.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_/%~+*@-]*")
_LEAST_RUN: Final = 3
_FEWEST: Final = 2
# The limit of searches for equal last components, since each reads every name again.
_MOST_ENDS: Final = 4


class _Shape(NamedTuple):
    ends: bool
    branches: tuple[tuple[str, int], ...]


def ranges(names: Iterable[str]) -> str:
    """Write a set of dotted names with the shell's alternatives: ``{a,b}``, and ``{0..3}`` for indices.

    Expanding every brace yields exactly these names. A component that is no plain word is a JSON string. Equal suffixes
    are merged from the leaves up, as in the minimization of acyclic automata (Revuz, 1992).
    """
    rest, ends = list(dict.fromkeys(names)), ""
    if not rest:
        return ""
    for _ in range(_MOST_ENDS):
        split = _split_common_ends(rest)
        if split is None:
            break
        rest, last = split
        ends = f".{_write_names(last)}{ends}"
    return f"{_write_names(rest)}{ends}"


def _split_common_ends(names: Sequence[str]) -> tuple[list[str], list[str]] | None:
    ends: dict[str, list[str]] = {}
    for name in names:
        before, dot, last = name.rpartition(".")
        if not dot:
            return None
        ends.setdefault(before, []).append(last)
    if len(ends) < _FEWEST:
        return None
    first, *others = ends.values()
    wanted = set(first)
    return (list(ends), first) if all(set(each) == wanted for each in others) else None


def _write_names(names: Iterable[str]) -> str:
    shapes, root = _share_subtrees(names)
    texts: list[str] = []
    pending: list[str | int] = _alternatives(shapes[root], shapes)[::-1]
    while pending:
        top = pending.pop()
        if isinstance(top, str):
            texts.append(top)
        else:
            shape = shapes[top]
            further = [".", *_alternatives(shape, shapes)] if shape.branches else []
            pending.extend(reversed(["{,", *further, "}"] if further and shape.ends else further))
    return "".join(texts)


def _share_subtrees(names: Iterable[str]) -> tuple[list[_Shape], int]:
    children: list[dict[str, int]] = [{}]
    ends: set[int] = set()
    for name in names:
        vertex = 0
        for component in name.split("."):
            below = children[vertex].get(component)
            if below is None:
                below = children[vertex][component] = len(children)
                children.append({})
            vertex = below
        ends.add(vertex)
    known: dict[_Shape, int] = {}
    numbers = [0] * len(children)
    # A child has a larger number than its parent, so this visits children first.
    for vertex in range(len(children) - 1, -1, -1):
        branches = tuple([(component, numbers[below]) for component, below in children[vertex].items()])
        numbers[vertex] = known.setdefault(_Shape(vertex in ends, branches), len(known))
    return list(known), numbers[0]


def _alternatives(shape: _Shape, shapes: Sequence[_Shape]) -> list[str | int]:
    grouped = group_by_key((below, component) for component, below in shape.branches)
    if len(grouped) == 1:
        ((below, components),) = grouped.items()
        return [_add_braces(list(_group_components(components))), below]
    parts: list[str | int] = ["{"]
    for below, components in grouped.items():
        texts = list(_group_components(components))
        parts += [","] if len(parts) > 1 else []
        # If nothing follows, the outer braces are enough.
        parts += [_add_braces(texts) if shapes[below].branches else ",".join(texts), below]
    return [*parts, "}"]


def _add_braces(texts: Sequence[str]) -> str:
    is_run = ".." in texts[0] and "{" not in texts[0]
    return f"{{{','.join(texts)}}}" if len(texts) > 1 or is_run else texts[0]


def _group_components(components: Iterable[str]) -> Iterator[str]:
    indices: list[int] = []
    others: dict[str, list[int]] = {}
    for component in components:
        list_, number = split_index(component) or ("", None)
        is_plain = _PLAIN.fullmatch(component) is not None
        if number is None or not is_plain:
            # A quoted name is never a list entry.
            others.setdefault(component if is_plain else quote(component), [])
        elif list_:
            others.setdefault(list_, []).append(number)
        else:
            indices.append(number)
    yield from _runs(indices)
    for text, numbers in others.items():
        runs = list(_runs(numbers))
        if not runs:
            yield text
        elif len(numbers) < _LEAST_RUN:
            yield from (f"{text}{number}" for number in runs)
        else:
            yield f"{text}{_add_braces(runs)}"


def _runs(indices: Iterable[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(sorted(indices)), lambda item: item[1] - item[0]):
        numbers = [number for _, number in run]
        if len(numbers) < _LEAST_RUN:
            yield from map(str, numbers)
        else:
            yield f"{numbers[0]}..{numbers[-1]}"
