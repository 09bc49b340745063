"""Pairs of documents that are small and ask for much work: deep and long paths, long lists, in every place."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["pairs"]

_WIDE = "\N{GRINNING FACE}"
"""One such character makes each other one in its text take four bytes."""

_LEVELS = 64
"""As many as are told apart anywhere."""


def pairs(size: int) -> dict[str, tuple[bytes, bytes]]:
    """By name, each of some ``size`` times ten bytes."""
    return {**_deep(size), **_crowds(size), **_lists(size), **_products(size)}


def _document(nodes: Sequence[Any], scopes: Sequence[Any] = (), cuts: Sequence[Any] = ()) -> bytes:
    document = {"format": "gir", "version": "1.0", "scopes": scopes, "cuts": cuts, "nodes": nodes}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _both(make: Callable[[Any], bytes], before: Any, after: Any) -> tuple[bytes, bytes]:
    return make(before), make(after)


def _path(count: int, component: str = "a") -> str:
    return ".".join([component] * count)


def _function(scope: str, number: int = 1, op: str = "f", **fields: Any) -> dict[str, Any]:
    return {"id": f"{scope}/{op}:{number}" if scope else f"{op}:{number}", "op": op, "scope": scope, **fields}


def _parameter(path: str, role: str = "parameter") -> dict[str, Any]:
    name = f"{path}.w"
    tensor = {"dtype": "float32", "shape": [2]}
    return {"id": name, "role": role, "scope": path, "names": [name], "out": [tensor]}


def _scope(path: str, trainable: int = 2) -> dict[str, Any]:
    return {"path": path, "class": "C", "own": 2, "total": 2, "trainable": trainable}


def _deep(size: int) -> dict[str, tuple[bytes, bytes]]:
    """One path with very many components."""
    deep = _path(size)
    counted = ".".join(f"{number:x}" for number in range(size))

    def one(path: str) -> bytes:
        return _document([_function(path)])

    def listed(path: str) -> bytes:
        return _document([_parameter(path), _function(path)], [{"path": "", "class": "M"}, _scope(path)])

    def owned(trainable: int) -> bytes:
        return _document([_parameter(deep, "parameter" if trainable else "buffer")], [_scope(deep, trainable)])

    def cut(path: str) -> bytes:
        found = {"kind": "unreached", "names": [f"{path}.w"], "scope": path}
        return _document([_function("")], cuts=[found] if path else [])

    def keeping(path: str) -> bytes:
        slot = {"slot": "s", "bytes": 4, "storage": path}
        return _document([_function("", number, saved=[slot]) for number in (1, 2)])

    return {
        "head renamed": _both(one, f"x.{deep}", f"y.{deep}"),
        "tail renamed": _both(one, f"{deep}.x", f"{deep}.y"),
        "all renamed": _both(one, deep, _path(size, "b")),
        "numbers": _both(one, _path(size, "0"), _path(size, "1")),
        "shifted": _both(one, f"0.{_path(size, '0')}", f"1.{_path(size, '0')}"),
        "empty components": _both(one, "." * size, "." * (size + 1)),
        "id apart": _both(lambda path: _document([{"id": "f:1", "op": "f", "scope": path}]), f"x.{deep}", f"y.{deep}"),
        "came": _both(lambda path: _document([_function(""), *([_function(path)] if path else [])]), "", deep),
        "listed": _both(listed, f"x.{deep}", f"y.{deep}"),
        "different components": _both(listed, f"x.{counted}", f"y.{counted}"),
        "frozen": _both(owned, 2, 0),
        "cut renamed": _both(cut, f"x.{deep}", f"y.{deep}"),
        "cut gone": _both(cut, deep, ""),
        "storage": _both(keeping, f"x.{deep}", f"y.{deep}"),
        "key of an attribute": _both(lambda value: _document([_function("", attrs={"." * size: value})]), 1, 2),
    }


def _crowds(size: int) -> dict[str, tuple[bytes, bytes]]:
    """Several paths, each deep."""
    few = int(size**0.5)
    deep = _path(few)

    def renamed(head: str) -> bytes:
        paths = [f"{number}.{head}.{deep}" for number in range(few)]
        return _document([_function(path) for path in paths], [_scope(path) for path in paths])

    def changed(op: str) -> bytes:
        return _document([_function(f"{number}.{deep}", op=op) for number in range(few)])

    def ladder(head: str) -> bytes:
        paths = [f"{head}.{_path(number)}" for number in range(1, few)]
        inputs = [[], *([[f"{path}/f:1", 0]] for path in paths)]
        nodes = [_function(path, **{"in": refs}) for path, refs in zip(paths, inputs, strict=False)]
        return _document(nodes, [{"path": ""}, *({"path": path, "class": "C", "calls": 1} for path in paths)])

    def wide(head: str, length: int = 200) -> bytes:
        count = size // length
        paths = [f"{_WIDE}{head}{number}{'x' * (length - 2 * _LEVELS)}.{_path(_LEVELS - 1)}" for number in range(count)]
        return _document([_function(path) for path in paths])

    return {
        "names of numbers": _both(
            lambda number: _document([{"id": "w", "role": "leaf", "names": [_path(few, number) for _ in range(few)]}]),
            "0",
            "1",
        ),
        "crowd renamed": _both(renamed, "x", "y"),
        "crowd changed": _both(changed, "f", "g"),
        "ladder renamed": _both(ladder, "x", "y"),
        "ladder of numbers": _both(ladder, "0", "1"),
        "wide renamed": _both(wide, "x", "y"),
        "one wide renamed": _both(lambda head: wide(head, size), "x", "y"),
        "wide came": (_document([_function("")]), wide("x")),
    }


def _lists(size: int) -> dict[str, tuple[bytes, bytes]]:
    """One record with very many entries."""
    places = range(size)
    two = [_function("", number) for number in (1, 2)]

    def one(field: str, value: object, **others: Any) -> bytes:
        return _document([*two, _function("", 3, **{field: value}, **others)])

    def sized(one: int) -> bytes:
        return _document([{"id": "w", "role": "parameter", "out": [{"shape": [one] * size}]}])

    def cut(kinds: Sequence[str]) -> bytes:
        return _document([], cuts=[{"kind": kind, "names": [f"a.{at}.w"]} for kind in kinds for at in places])

    def numbered(digit: str) -> bytes:
        # More digits than Python reads.
        paths = f"l.{digit * 5_000}", f"l.{digit * 5_000}1"
        return _document([_function(path) for path in paths], [_scope(path) for path in paths])

    return {
        "inputs": _both(lambda source: one("in", [[source, 0]] * size), "f:1", "f:2"),
        "outputs": _both(lambda dtype: one("out", [{"dtype": dtype}] * size), "a", "b"),
        "slots": _both(lambda slot: one("saved", [{"slot": slot, "bytes": 4}] * size), "a", "b"),
        "attributes": _both(lambda key: one("attrs", {f"{key}{at}": at for at in places}), "a", "b"),
        "entries": _both(lambda value: one("attrs", {"a": [value] * size}), 1, 2),
        "sizes": _both(sized, 7, 8),
        "cuts": _both(cut, ["a"], []),
        "digits": _both(numbered, "1", "2"),
    }


def _products(size: int) -> dict[str, tuple[bytes, bytes]]:
    """What is long in a module that lies deep, where each module of the table lies in the one before."""
    few = int(size**0.5)
    table = [{"path": _path(number), "class": "C", "calls": 1} for number in range(1, few)]
    deepest = _path(few - 1)

    def of_lines(letter: str) -> bytes:
        return _document([], [*table[:-1], {**table[-1], "detail": "\n".join(letter * size)}])

    def of_shapes(shapes: Sequence[Sequence[int]]) -> bytes:
        made = [_function(deepest, number, out=[{"shape": shape}]) for number, shape in enumerate(shapes)]
        taken = {"id": "output", "role": "output", "in": [[node["id"], 0] for node in made]}
        return _document([*made, taken], table)

    return {
        "lines in a deep module": _both(of_lines, "a", "b"),
        "a long shape from a deep module": _both(of_shapes, [[7] * size], [[8] * size]),
        "many shapes from a deep module": _both(
            of_shapes, [[number, 7] for number in range(few)], [[number, 8] for number in range(few)]
        ),
    }
