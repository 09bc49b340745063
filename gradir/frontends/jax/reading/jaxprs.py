"""What an equation of a jaxpr is made of, its parameters as plain values, and the line that made it."""

from __future__ import annotations

import enum
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, NoneType
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.extend import core

from gradir.frontends.texts import ShownPaths, is_installed, plain_float, plain_int, plain_text
from gradir.frontends.walks import frames_from
from gradir.ir import AttrValue, Source, TensorMeta
from gradir.ir.model import AttrScalar

CALLS: Final = frozenset({"jit", "pjit", "closed_call", "core_call", "remat_call", "custom_lin"})
"""Equations that only call a jaxpr: what is in it runs where they stand."""

REMATS: Final = frozenset({"remat2", "checkpoint", "remat"})
"""Equations that call a jaxpr whose values are made anew in the backward."""

CUSTOM: Final = frozenset({"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"})
"""Equations with a rule that a program wrote for its gradient."""

OPAQUE: Final = frozenset({"shard_map", "xla_pmap"})
"""Equations with a jaxpr that is not looked into: shapes inside are those of one device."""

_JAXPRS: Final = ("jaxpr", "call_jaxpr", "fun_jaxpr")
# Older names of primitives that newer releases keep as objects in an equation.
_OBJECTS: Final = {"RematTraced": "remat2", "CheckpointName": "name"}
_TEMPLATE: Final = jax.make_jaxpr(lambda x: x)(1.0)


def is_literal(atom: Any) -> bool:
    """Return whether an input of an equation is a constant written into it, which no equation makes."""
    return hasattr(atom, "val")


def is_reference(aval: Any) -> bool:
    """Return whether a value is memory that equations write to."""
    return type(aval).__name__ == "AbstractRef"


def is_inexact(aval: Any) -> bool:
    """Return whether values of this type can have a gradient."""
    return hasattr(aval, "dtype") and bool(jax.dtypes.issubdtype(aval.dtype, np.inexact))


def type_of(aval: Any) -> tuple[tuple[Any, ...], str]:
    """Return shape and dtype: a value can stand for another one with the same."""
    return tuple(aval.shape), str(aval.dtype)


def bytes_of(aval: Any) -> int | None:
    """Return the size of a value in bytes; ``None`` where a size of its shape is a symbol, or its dtype has none."""
    elements, width = elements_of(aval), getattr(aval.dtype, "itemsize", None)
    return None if width is None or elements is None else elements * int(width)


def elements_of(aval: Any) -> int | None:
    """Return the number of elements of a value, ``None`` if its shape has a symbol."""
    sizes = [int(size) for size in aval.shape if isinstance(size, (int, np.integer))]
    return math.prod(sizes) if len(sizes) == len(aval.shape) else None


def meta_of(aval: Any, rounds: Sequence[int] = ()) -> TensorMeta:
    """Return the type of a value, which has no device while it is traced; ``rounds`` stand before its sizes."""
    sizes = (int(size) if isinstance(size, (int, np.integer)) else str(size) for size in aval.shape)
    return TensorMeta(str(aval.dtype), (*rounds, *sizes), None)


def abstract(aval: Any) -> jax.ShapeDtypeStruct:
    """Return a value to trace a function with."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def params_of(eqn: Any) -> Mapping[str, Any]:
    """Return the parameters of an equation; those of some newer primitives stand in an object."""
    held = eqn.params.get("_prim")
    found: Mapping[str, Any] = eqn.params if held is None else getattr(held, "params", {})
    return found


def name_of(eqn: Any) -> str:
    """Return the name of an equation's primitive."""
    held = eqn.params.get("_prim")
    if held is None:
        return str(eqn.primitive.name)
    return _OBJECTS.get(type(held).__name__, type(held).__name__)


def inner(eqn: Any) -> Any:
    """Return the jaxpr that an equation calls; ``None`` where it calls none."""
    params = params_of(eqn)
    return next((params[name] for name in _JAXPRS if name in params), None)


def open_jaxpr(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """Return a jaxpr that may be closed over constants, and these."""
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def function_place(jaxpr: Any) -> tuple[str, str]:
    """Return the name of the function that a jaxpr was traced of, and its file; empty where JAX does not know."""
    info = getattr(open_jaxpr(jaxpr)[0], "debug_info", None)
    name, _, place = (getattr(info, "func_src_info", "") or "").partition(" at ")
    return name.strip("<>"), place.rpartition(":")[0] if place.rpartition(":")[2].isdigit() else place


def function_name(eqn: Any) -> str:
    """Return the name of the function that an equation calls; empty where there is none."""
    called = inner(eqn)
    return "" if called is None else function_place(called)[0]


def loop_counts(eqn: Any) -> tuple[int, int]:
    """Return how many inputs of a scan are equal in every round, and how many behind these are carried on."""
    params = params_of(eqn)
    if "num_consts" in params:
        return int(params["num_consts"]), int(params["num_carry"])
    # From 0.12 on the inputs stand in three groups.
    same, carried, _ = params["ft_in"].unpack()
    return len(list(same)), len(list(carried))


def stack_of(eqn: Any) -> Iterator[tuple[bool, str]]:
    """The parts of an equation's name stack from the outermost: whether each is a scope, or else a transformation."""
    for part in eqn.source_info.name_stack.stack:
        yield type(part).__name__ == "Scope", part.name


def fill(values: Sequence[Any], places: Sequence[int], others: Sequence[Any]) -> list[Any]:
    """Values of which those at some places are others."""
    found = list(values)
    for place, value in zip(places, others, strict=True):
        found[place] = value
    return found


class Alone(NamedTuple):
    """One equation as a function of its distinct inputs, and by input slot which of these it takes, -1 for none."""

    run: Callable[..., Sequence[Any]]
    places: tuple[int, ...]

    @property
    def firsts(self) -> list[int]:
        """Of each distinct input the first slot that takes it."""
        found = {place: slot for slot, place in reversed([*enumerate(self.places)])}
        return [found[place] for place in sorted(found) if place >= 0]


def isolate(eqn: Any) -> Alone:
    """Return an equation as a function of its distinct inputs."""
    numbers: dict[Any, int] = {}
    places = tuple(-1 if is_literal(atom) else numbers.setdefault(atom, len(numbers)) for atom in eqn.invars)
    jaxpr = _TEMPLATE.jaxpr.replace(
        constvars=[], invars=list(numbers), outvars=list(eqn.outvars), eqns=[eqn], effects=eqn.effects
    )
    return Alone(core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, [])), places)


_DEEPEST: Final = 3
_LONGEST: Final = 1_000

_NOTHING: Final = object()

_PLAIN: Final[tuple[tuple[tuple[type[Any], ...], Callable[[Any], AttrScalar]], ...]] = (
    ((bool, NoneType), lambda value: value),
    ((np.bool_,), bool),
    ((enum.Enum,), lambda value: plain_text(value.name)),
    ((int, np.integer), lambda value: plain_int(int(value))),
    ((float, np.floating), lambda value: plain_float(float(value))),
    ((str, np.dtype), lambda value: plain_text(str(value))),
)


def plain_params(params: Mapping[str, Any]) -> dict[str, AttrValue]:
    """Return the parameters of an equation that have a plain form, as functions, jaxprs and shardings do not.

    >>> plain_params({"axes": (0, 1), "jaxpr": object(), "dimension_numbers": (((1,), (0,)), ((), ())), "out": None})
    {'axes': (0, 1), 'dimension_numbers': (((1,), (0,)), ((), ()))}
    """
    found = ((name, _plain(value, _DEEPEST)) for name, value in sorted(params.items()))
    return {name: value for name, value in found if value is not _NOTHING and value is not None and value != ()}


def literal_number(value: Any) -> AttrValue:
    """Return the number that a literal is; ``None`` where it is more than one, or complex."""
    if np.ndim(value) != 0:
        return None
    found = _plain(np.asarray(value).item(), 0)
    return None if found is _NOTHING else found


def _plain(value: Any, deep: int) -> Any:
    if not isinstance(value, (tuple, list)) or len(value) > _LONGEST:
        return next((plain(value) for kinds, plain in _PLAIN if isinstance(value, kinds)), _NOTHING)
    if not deep:
        return _NOTHING
    fields = getattr(value, "_fields", None)
    values = value if fields is None else zip(fields, value, strict=True)
    found = tuple(_plain(each, deep - 1) for each in values)
    return _NOTHING if any(each is _NOTHING for each in found) else found


_OWN: Final = f"{Path(sys.modules['gradir'].__file__ or '').parent}{os.sep}"
# Our wrappers run between two functions of the user, so they count as a library.
_AROUND: Final = f"{Path(__file__).parents[1] / 'modules'}{os.sep}"
_USER, _LIBRARY, _GRADIR = range(3)


class Sources:
    """Lines as they are shown, each file looked at once."""

    def __init__(self) -> None:
        self._shown = ShownPaths()
        self._kinds: dict[str, int] = {}

    def of(self, eqn: Any, library: str | None = None) -> Source | None:
        """Return the user's innermost line behind an equation, inside the capture and outside ``library``."""
        trace = eqn.source_info.traceback
        for frame in trace.frames if trace is not None and library != "" else ():
            kind = self._kind(frame.file_name)
            if kind == _GRADIR or frame.file_name == library:
                return None
            if kind == _USER:
                return self._source(frame.file_name, frame.line_num, frame.function_name)
        return None

    def of_frame(self, frame: FrameType | None) -> Source | None:
        """Return the innermost line of the user's own that runs."""
        users = (each for each in frames_from(frame) if self._kind(each.f_code.co_filename) == _USER)
        own = next(users, None)
        return own and self._source(own.f_code.co_filename, own.f_lineno, own.f_code.co_qualname)

    def _source(self, file: str, line: int, function: str) -> Source:
        return Source(self._shown(file), line, plain_text(function.rpartition("<locals>.")[2]))

    def library_of(self, jaxpr: Any) -> str | None:
        """The file of the function that a jaxpr was traced of, if it is a library's; ``None`` if it is the user's."""
        file = function_place(jaxpr)[1]
        return None if file and self._kind(file) == _USER else file

    def _kind(self, file: str) -> int:
        if file not in self._kinds:
            if file.startswith(_OWN) and not file.startswith(_AROUND):
                self._kinds[file] = _GRADIR
            else:
                self._kinds[file] = _LIBRARY if file.startswith(_AROUND) or is_installed(file) else _USER
        return self._kinds[file]


def place_text(source: Source | None) -> str:
    """Return where something is, for an error."""
    return f"at {source.file}:{source.line}" if source is not None else "at a line that is not known"
