"""Read equations of jaxprs: their parameters as plain values, their types, and their source lines."""

from __future__ import annotations

import enum
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, NoneType
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.extend import core

from gradir.frontends.texts import ShownPaths, is_installed, plain_float, plain_int, plain_text
from gradir.ir import AttrValue, Source, TensorMeta
from gradir.ir.model import AttrScalar

CALLS: Final = frozenset({"jit", "pjit", "closed_call", "core_call", "remat_call", "custom_lin"})
"""Equations that only call a jaxpr, which gradir inlines."""

REMATS: Final = frozenset({"remat2", "checkpoint", "remat"})
"""Equations that call a jaxpr whose values the backward pass computes again."""

CUSTOM: Final = frozenset({"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"})
"""Equations with a custom rule for the gradient."""

OPAQUE: Final = frozenset({"shard_map", "xla_pmap"})
"""Equations whose jaxpr stays opaque, since its shapes are those of one device."""

_JAXPRS: Final = ("jaxpr", "call_jaxpr", "fun_jaxpr")
# Names of primitives, by the class that replaces them in newer releases.
_OBJECTS: Final = {"RematTraced": "remat2", "CheckpointName": "name"}
_TEMPLATE: Final = jax.make_jaxpr(lambda x: x)(1.0)


def is_literal(atom: Any) -> bool:
    """Return whether an input of an equation is a literal."""
    return hasattr(atom, "val")


def is_inexact(aval: Any) -> bool:
    """Return whether values of this type can have a gradient."""
    return hasattr(aval, "dtype") and bool(jax.dtypes.issubdtype(aval.dtype, np.inexact))


def type_of(aval: Any) -> tuple[tuple[Any, ...], str]:
    """Return shape and dtype. Values of equal type can replace each other."""
    return tuple(aval.shape), str(aval.dtype)


def bytes_of(aval: Any) -> int | None:
    """Return the size of a value in bytes, ``None`` if a dimension is symbolic or its dtype has no size."""
    elements, width = elements_of(aval), getattr(aval.dtype, "itemsize", None)
    return None if width is None or elements is None else elements * int(width)


def elements_of(aval: Any) -> int | None:
    """Return the number of elements of a value, ``None`` if a dimension is symbolic."""
    sizes = [int(size) for size in aval.shape if isinstance(size, (int, np.integer))]
    return math.prod(sizes) if len(sizes) == len(aval.shape) else None


def meta_of(aval: Any, rounds: Sequence[int] = ()) -> TensorMeta:
    """Return the type of a traced value, which has no device; ``rounds`` precede its shape."""
    sizes = (int(size) if isinstance(size, (int, np.integer)) else str(size) for size in aval.shape)
    return TensorMeta(str(aval.dtype), (*rounds, *sizes), None)


def make_abstract(aval: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a value, to trace a function with."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def params_of(eqn: Any) -> Mapping[str, Any]:
    """Return the parameters of an equation, which some newer primitives keep in an object."""
    primitive = eqn.params.get("_prim")
    found: Mapping[str, Any] = eqn.params if primitive is None else getattr(primitive, "params", {})
    return found


def name_of(eqn: Any) -> str:
    """Return the name of an equation's primitive."""
    primitive = eqn.params.get("_prim")
    if primitive is None:
        return str(eqn.primitive.name)
    return _OBJECTS.get(type(primitive).__name__, type(primitive).__name__)


def inner_jaxpr(eqn: Any) -> Any:
    """Return the jaxpr that an equation calls, ``None`` if it calls none."""
    params = params_of(eqn)
    return next((params[name] for name in _JAXPRS if name in params), None)


def open_jaxpr(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """Return a jaxpr without its constants, and the constants."""
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def find_maker(jaxpr: Any, var: Any) -> tuple[Any, int] | None:
    """Return the equation that makes a variable of a jaxpr, and the variable's output number."""
    made = ((eqn, number, each) for eqn in jaxpr.eqns for number, each in enumerate(eqn.outvars))
    return next(((eqn, number) for eqn, number, each in made if each is var), None)


def function_place(jaxpr: Any) -> tuple[str, str]:
    """Return the name and file of the function of a jaxpr, which are empty if JAX does not know them."""
    info = getattr(open_jaxpr(jaxpr)[0], "debug_info", None)
    name, _, place = (getattr(info, "func_src_info", "") or "").partition(" at ")
    return name.strip("<>"), place.rpartition(":")[0] if place.rpartition(":")[2].isdigit() else place


def function_name(eqn: Any) -> str:
    """Return the name of the function that an equation calls, or an empty string."""
    called = inner_jaxpr(eqn)
    return "" if called is None else function_place(called)[0]


def loop_counts(eqn: Any) -> tuple[int, int]:
    """Return how many inputs of a scan are constant, and how many following inputs are carries."""
    params = params_of(eqn)
    if "num_consts" in params:
        return int(params["num_consts"]), int(params["num_carry"])
    # From 0.12 on the inputs have three groups.
    constant, carried, _ = params["ft_in"].unpack()
    return len(list(constant)), len(list(carried))


def stack_of(eqn: Any) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a name stack, outer ones first: whether each is a scope, and its name."""
    for part in eqn.source_info.name_stack.stack:
        yield type(part).__name__ == "Scope", part.name


def replace_at(values: Sequence[Any], places: Sequence[int], others: Sequence[Any]) -> list[Any]:
    """Return values with those at some places replaced."""
    found = list(values)
    for place, value in zip(places, others, strict=True):
        found[place] = value
    return found


class IsolatedEquation(NamedTuple):
    """One equation as a function of its distinct inputs, and by input slot the place among them, -1 for literals."""

    run: Callable[..., Sequence[Any]]
    places: tuple[int, ...]

    @property
    def firsts(self) -> list[int]:
        """The first slot of each distinct input."""
        found = {place: slot for slot, place in reversed([*enumerate(self.places)])}
        return [found[place] for place in sorted(found) if place >= 0]


def isolate(eqn: Any) -> IsolatedEquation:
    """Return an equation as a function of its distinct inputs."""
    numbers: dict[Any, int] = {}
    places = tuple(-1 if is_literal(atom) else numbers.setdefault(atom, len(numbers)) for atom in eqn.invars)
    jaxpr = _TEMPLATE.jaxpr.replace(
        constvars=[], invars=list(numbers), outvars=list(eqn.outvars), eqns=[eqn], effects=eqn.effects
    )
    return IsolatedEquation(core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, [])), places)


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
    """Return the parameters of an equation that have a plain form, without functions, jaxprs and shardings.

    >>> plain_params({"axes": (0, 1), "jaxpr": object(), "dimension_numbers": (((1,), (0,)), ((), ())), "out": None})
    {'axes': (0, 1), 'dimension_numbers': (((1,), (0,)), ((), ()))}
    """
    found = ((name, _plain(value, _DEEPEST)) for name, value in sorted(params.items()))
    return {name: value for name, value in found if value is not _NOTHING and value is not None and value != ()}


def literal_number(value: Any) -> AttrValue:
    """Return the value of a literal, ``None`` if it is an array or complex."""
    if np.ndim(value) != 0:
        return None
    found = _plain(np.asarray(value).item(), 0)
    return None if found is _NOTHING else found


def _plain(value: Any, depth: int) -> Any:
    if not isinstance(value, (tuple, list)) or len(value) > _LONGEST:
        return next((plain(value) for kinds, plain in _PLAIN if isinstance(value, kinds)), _NOTHING)
    if not depth:
        return _NOTHING
    fields = getattr(value, "_fields", None)
    values = value if fields is None else zip(fields, value, strict=True)
    found = tuple(_plain(each, depth - 1) for each in values)
    return _NOTHING if any(each is _NOTHING for each in found) else found


_OWN: Final = f"{Path(sys.modules['gradir'].__file__ or '').parent}{os.sep}"
# Our wrappers run between two functions of the user, so they count as a library.
_WRAPPERS: Final = f"{Path(__file__).parents[1] / 'modules'}{os.sep}"
_USER, _LIBRARY, _GRADIR = range(3)


class Sources:
    """Finds the source lines of equations and frames, and classifies each file once."""

    def __init__(self) -> None:
        self._shown = ShownPaths()
        self._kinds: dict[str, int] = {}

    def of(self, eqn: Any, library: str | None = None) -> Source | None:
        """Return the user's innermost line that made an equation, inside the capture and outside ``library``."""
        trace = eqn.source_info.traceback
        for frame in trace.frames if trace is not None and library != "" else ():
            kind = self._kind(frame.file_name)
            if kind == _GRADIR or frame.file_name == library:
                return None
            if kind == _USER:
                return self._source(frame.file_name, frame.line_num, frame.function_name)
        return None

    def find_user_line(self, frames: Iterable[FrameType]) -> Source | None:
        """Return the first line of user code."""
        own = next((each for each in frames if self._kind(each.f_code.co_filename) == _USER), None)
        return own and self._source(own.f_code.co_filename, own.f_lineno, own.f_code.co_qualname)

    def _source(self, file: str, line: int, function: str) -> Source:
        return Source(self._shown(file), line, plain_text(function.rpartition("<locals>.")[2]))

    def library_of(self, jaxpr: Any) -> str | None:
        """Return the file of a jaxpr's function if it belongs to a library, ``None`` if it belongs to the user."""
        file = function_place(jaxpr)[1]
        return None if file and self._kind(file) == _USER else file

    def _kind(self, file: str) -> int:
        if file not in self._kinds:
            is_wrapper = file.startswith(_WRAPPERS)
            if file.startswith(_OWN) and not is_wrapper:
                self._kinds[file] = _GRADIR
            else:
                self._kinds[file] = _LIBRARY if is_wrapper or is_installed(file) else _USER
        return self._kinds[file]


def place_text(source: Source | None) -> str:
    """Return the text of a source line for an error."""
    return f"at {source.file}:{source.line}" if source is not None else "at a line that is not known"
