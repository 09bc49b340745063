"""The request of a capture: its target and all options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from gradir.errors import did_you_mean

Names: TypeAlias = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Names of tensors: a mapping, or pairs as a module's ``named_parameters()`` gives them."""

FEATURES: Final[Mapping[str, str]] = {
    "program": "run a PROGRAM",
    "inputs": "run on inputs",
    "names": "name tensors by a model",
    "argnums": "select arguments to differentiate by",
    "seed": "set a seed",
    "fake": "run without data",
    "sources": "record source lines",
    "flow": "record every operation of a forward",
    "forward": "capture a forward",
    "joint": "capture forward and backward in one graph",
    "collectives": "record collectives",
    "cost": "count the cost of operations",
    "verify": "verify a graph",
    "explain": "explain lost gradients",
    "record": "record",
    "release": "release the memory of a capture",
    "simulate_rank": "make a rank without the others",
    "run_alike": "run with the weights of another program (gradir diff --run)",
    "watching": "watch a training from step to step (gradir watch)",
    "running": "capture or explain a script at its backward (gradir run, gradir explain)",
}
"""Descriptions of the optional features of front-ends. A feature of a single option has the name of that option."""

_PROGRAMS: Final = ("capture", "graph", "explain")
_GRAPHS: Final = ("capture", "graph")


class Option(NamedTuple):
    """The declaration of an option beside its type and its default.

    Attributes:
        help: the help text.
        needs: the feature of a front-end that it needs.
        values: the features that single values need instead.
        uses: ``capture`` (`gradir.capture`, `gradir.verify` and ``gradir capture``), ``program`` (of these only the
            command), ``graph`` (commands that take a GRAPH), ``explain`` (`gradir.explain` and ``gradir explain``) and
            ``record`` (`gradir.record`).
        metavar: the name of its value in the help text.
        group: its group in the help text.
        flag: its option on the command line (default: from the name), or ``None`` for Python only.
        alone: its value if the option is given without one.
    """

    help: str
    needs: str = ""
    uses: tuple[str, ...] = ("capture",)
    metavar: str = "VALUE"
    group: str = "input"
    flag: str | None = ""
    alone: str | None = None
    values: Mapping[str, str] = {}


# An argument of Python functions only, and an option of a capture on several ranks.
_argument: Final = partial(Option, uses=("capture", "explain"), flag=None)
_distributed: Final = partial(Option, needs="collectives", uses=("program",), group="distributed")


class Declared(NamedTuple):
    """An option as `CaptureRequest` declares it."""

    name: str
    type: Any
    default: Any
    option: Option

    @property
    def flag(self) -> str | None:
        """Return the option's spelling on a command line."""
        return f"--{self.name.replace('_', '-')}" if self.option.flag == "" else self.option.flag


class CaptureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The target and every option of a capture.

    For a program, ``target`` is the object that PROGRAM names, before it runs, and ``inputs`` are texts such as
    ``float32[1,3]``. Otherwise the target is the user's object, with its call arguments.

    Each option is declared here only. Commands, keyword arguments, help and errors follow.

    >>> request = CaptureRequest(target=len, sources=True)
    >>> request.sources, request.fake
    (True, False)
    """

    target: Any = None
    is_program: bool = False
    inputs: Annotated[
        tuple[Any, ...],
        Option(
            "an input of the module: dtype[sizes] or name=dtype[sizes]; repeatable",
            needs="inputs",
            uses=_PROGRAMS,
            metavar="TENSOR",
            flag="--input",
        ),
    ] = ()
    kwargs: Annotated[Mapping[str, Any] | None, _argument("keyword arguments of the module or function", "inputs")] = (
        None
    )
    model: Annotated[
        Any,
        Option(
            "module, or dict of modules, whose parameters and buffers name the tensors",
            needs="names",
            uses=("capture", "explain", "record"),
            flag=None,
        ),
    ] = None
    params: Annotated[Any, _argument("further names of tensors", "names")] = None
    argnums: Annotated[int | tuple[int, ...], _argument("arguments to differentiate by", "argnums")] = 0
    has_aux: Annotated[bool, _argument("differentiate the first of two results", "argnums")] = False
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=2**63 - 1)] | None,
        Option("seed of the random numbers (default: 0)", needs="seed", uses=_PROGRAMS, metavar="N"),
    ] = None
    frontend: Annotated[
        str | None,
        Option(
            "front-end to use (default: the one that claims it)",
            uses=(*_PROGRAMS, "record"),
            metavar="NAME",
            group="advanced",
        ),
    ] = None
    fake: Annotated[
        bool, Option("run without data: a model of any size takes seconds", needs="fake", uses=("program", "graph"))
    ] = False
    sources: Annotated[
        bool, Option("record source lines and variable names", needs="sources", uses=(*_GRAPHS, "record"))
    ] = False
    flow: Annotated[bool, Option("record the places where gradient stops", needs="flow", uses=(*_GRAPHS, "record"))] = (
        False
    )
    graph: Annotated[
        Literal["autograd", "forward", "both", "joint", "compiled"] | None,
        Option(
            "capture the autograd (default), forward, both, joint or compiled graph",
            needs="flow",
            uses=_GRAPHS,
            values={"forward": "forward", "joint": "joint", "compiled": "joint"},
        ),
    ] = None
    cost: Annotated[
        Literal["flops", "time"] | None,
        Option(
            "record FLOPs of operations; time: also measure forward and backward",
            needs="cost",
            uses=(*_GRAPHS, "record"),
            alone="flops",
        ),
    ] = None
    collectives: Annotated[
        bool, _distributed("record the collectives of this rank, with a dry backward", uses=("program", "record"))
    ] = False
    dry: Annotated[bool, _distributed("with --collectives, send no data in the captured step")] = False
    step: Annotated[
        Annotated[int, Meta(ge=1)], _distributed("with --collectives, capture the Kth call", metavar="K")
    ] = 1
    values: Annotated[
        bool | None,
        Option(
            "run a backward to find zero and non-finite gradients (default: if the graph is small)",
            needs="explain",
            uses=("explain",),
        ),
    ] = None


@cache
def list_options(*uses: str) -> Mapping[str, Declared]:
    """Return the declared options for these uses, by name; without uses, return all.

    >>> [*list_options("record")]
    ['model', 'frontend', 'sources', 'flow', 'cost', 'collectives']
    """
    found = {}
    for field in msgspec.structs.fields(CaptureRequest):
        option = next((each for each in getattr(field.type, "__metadata__", ()) if isinstance(each, Option)), None)
        if option is not None and (not uses or not {*uses}.isdisjoint(option.uses)):
            found[field.name] = Declared(field.name, field.type, field.default, option)
    return found


def make_request(
    function: str, target: object = None, inputs: Iterable[object] = (), options: Mapping[str, Any] | None = None
) -> CaptureRequest:
    """Return the request for the arguments of a public function."""
    # The inputs are positional.
    known = {**list_options("capture" if function == "verify" else function)}
    known.pop("inputs", None)
    values: dict[str, Any] = {}
    for name, value in (options or {}).items():
        if name not in known:
            raise TypeError(f"{function}() {_refusal(name, known)}")
        values[name] = _expect_value(function, known[name], value)
    return CaptureRequest(target=target, inputs=tuple(inputs), **values)


def _expect_value(function: str, each: Declared, value: object) -> object:
    from gradir.options import OptionError, expect

    # The registry reports an unknown front-end.
    if value is each.default or each.name == "frontend":
        return value
    if each.name == "kwargs" and not isinstance(value, Mapping):
        raise TypeError(f"{function}() takes the keyword arguments of the model as kwargs={{...}}, not {value!r}")
    # Options without a flag take objects of the framework.
    if each.option.flag is None:
        return value
    try:
        return expect(each.type, value)
    except OptionError as error:
        raise TypeError(f"{function}(): {each.name}: {error}") from error


def _refusal(name: str, known: Mapping[str, Declared]) -> str:
    """Return the error for an unknown keyword, which may be meant for the captured module or function."""
    if near := did_you_mean(name, known):
        return f"has no keyword {name!r}{near}"
    if "kwargs" not in known or name in {*list_options(), "keep_graph"}:
        return f"has no keyword {name!r}: it takes {', '.join(known)}"
    return f"passes keyword arguments of the model as kwargs={{{name!r}: ...}}"
