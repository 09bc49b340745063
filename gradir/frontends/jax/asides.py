"""What an explanation tells beside cuts: operations that have no derivative, and arrays that a function captures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import CodeType
from typing import Any, Final

import jax
import numpy as np
from jax import tree_util

from gradir.explanations.model import Cause, Level
from gradir.frontends.jax.arguments import path_text
from gradir.frontends.jax.live import Trace
from gradir.frontends.jax.reading.flow import sources_of
from gradir.frontends.jax.reading.jaxprs import is_inexact, type_of
from gradir.frontends.jax.reading.values import Record, Value
from gradir.frontends.texts import plain_text

__all__ = ["of_captures", "of_refusals"]

_DEEPEST: Final = 3
"""So many functions are looked into that call one another, for what they capture."""


def of_refusals(trace: Trace, raises: Callable[[], bool]) -> Iterator[Cause]:
    """The operations on a path, or beside it, of which JAX raises that they have no derivative.

    ``raises`` tells whether a gradient of the function does where it runs uncompiled, with bounds that are numbers.
    """
    for record in trace.flat.records:
        found = record.probe
        is_live = any(value.is_live for value in record.outputs)
        if found is None or not (found.is_refused or (is_live and found.error)):
            continue
        names, source = tuple(_leaves_behind(trace, record)), record.context.source
        if record.native == "while":
            detail = "" if (is_sure := raises()) else "but only where it is compiled, as by jax.jit"
            level: Level = "error" if is_sure else "info"
            yield Cause("while_loop", level, "while_loop", names, source, detail=detail, framework="jax")
        else:
            yield Cause("raised", "error", plain_text(record.op), names, source, detail=found.error, framework="jax")


def _leaves_behind(trace: Trace, record: Record) -> Iterator[str]:
    """The leaves that an operation depends on by paths of gradient."""
    seen: set[int] = set()
    left = [value for value in record.inputs if value.is_active]
    while left:
        value = left.pop()
        if id(value) not in seen:
            seen.add(id(value))
            left += (each for each in sources_of(value) if each.is_active)
    yield from (value.name for value in trace.differentiated if id(value) in seen)


def of_captures(trace: Trace, statuses: Mapping[str, str]) -> Iterator[Cause]:
    """The parameters that a function takes from outside: the array of an unused leaf, or what is in a tree it names.

    A single array may well be data; it is told if a leaf that is not used has its shape.
    """
    leaves = trace.arguments.differentiated
    given = {id(leaf.value): leaf.name for leaf in leaves if statuses[leaf.name] == "unused"}
    unused = {type_of(value.aval) for value in trace.differentiated if statuses[value.name] == "unused"}
    outside: dict[int, tuple[str, bool]] | None = None
    found: dict[Level, tuple[list[str], Record]] = {}
    seen: set[int] = set()
    for record in trace.flat.records:
        for value in record.inputs:
            if not _is_array(value) or id(value.literal) in seen:
                continue
            seen.add(id(value.literal))
            name = given.get(id(value.literal))
            if name is not None:
                found.setdefault("error", ([], record))[0].append(name)
                continue
            if outside is None:
                outside = _outside(trace.target)
            name, is_in_tree = outside.get(id(value.literal), ("", False))
            if is_in_tree or (name and type_of(value.aval) in unused):
                found.setdefault("note", ([], record))[0].append(name)
    for level, (names, record) in found.items():
        source = record.context.source
        yield Cause("captured", level, plain_text(trace.name), tuple(names), source, framework="jax")


def _is_array(value: Value) -> bool:
    is_given = value.kind in ("constant", "literal") and isinstance(value.literal, (jax.Array, np.ndarray))
    return is_given and not isinstance(value.literal, jax.core.Tracer) and is_inexact(value.aval)


def _outside(target: object) -> dict[int, tuple[str, bool]]:
    """By identity the arrays that a function, or one that it calls, has from outside: a name, and whether of a tree."""
    found: dict[int, tuple[str, bool]] = {}
    left, seen = [(target, 0)], set[int]()
    while left:
        current, deep = left.pop(0)
        for function in _functions_of(current):
            if id(function) in seen or deep > _DEEPEST:
                continue
            seen.add(id(function))
            for name, value in _names_of(function):
                if callable(value) and not isinstance(value, type):
                    left.append((value, deep + 1))
                for path, leaf in tree_util.tree_flatten_with_path(value)[0]:
                    if isinstance(leaf, (jax.Array, np.ndarray)):
                        inside = path_text(path)
                        found.setdefault(id(leaf), (plain_text(f"{name}.{inside}" if inside else name), bool(inside)))
    return found


def _functions_of(target: Any) -> Iterator[Callable[..., Any]]:
    """The functions of Python that a callable is made of."""
    try:
        unwrapped = inspect.unwrap(target)
    except ValueError:
        return
    if isinstance(unwrapped, partial):
        yield from _functions_of(unwrapped.func)
    elif inspect.ismethod(unwrapped):
        yield unwrapped.__func__
    elif inspect.isfunction(unwrapped):
        yield unwrapped


def _names_of(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function has from outside by name: the variables of functions around it, and those of its module."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        # It may have no value yet.
        with suppress(ValueError):
            yield name, cell.cell_contents
    left, names = [function.__code__], dict[str, None]()
    while left:
        code = left.pop()
        names.update(dict.fromkeys(code.co_names))
        left += (each for each in code.co_consts if isinstance(each, CodeType))
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)
