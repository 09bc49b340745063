"""Read what programs in memory and in files share, such as operations and modules."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import torch

from gradir.frontends.export.program import Body, Call, Input, Module, Named, Part, Program, flatten_argument
from gradir.frontends.pytorch.private import Operator
from gradir.frontends.pytorch.reading.attributes import plain_value
from gradir.frontends.pytorch.recording.steps import INPLACE, signature_of
from gradir.frontends.texts import plain_text
from gradir.ir import TensorMeta
from gradir.ir.frozen import NOTHING

_WRITERS: Final = frozenset({"iadd", "isub", "imul", "itruediv", "ifloordiv", "ipow", "iand", "ior", "ixor"})
_OVERLOAD: Final = re.compile(r"(?:torch\.ops\.)?([A-Za-z]\w*)\.([A-Za-z]\w*|__[a-z]+__|_[a-z]\w*)\.([A-Za-z]\w*)")

_ROOT: Final = re.compile(r"^(?:L\['(?:self|fn|mod)'\]|L__self__|self|_export_root)(?:\.|(?=\[)|$)")
_ITEM: Final = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]|\['([^']*)'\]|\[(\d+)\]")
_CALL: Final = re.compile(r"[^@]*@(\d{1,9})")

_LONGEST: Final = 4_000
_INFIX: Final = {"Add": (" + ", 1), "Mul": ("*", 2), "FloorDiv": ("//", 2), "CleanDiv": ("//", 2), "Pow": ("**", 3)}
_ALONE: Final = 4


class Operation(NamedTuple):
    """An operation: its neutral name, torch's, its arguments, and whether it reads values."""

    op: str
    native: str
    names: tuple[str, ...] = ()
    kinds: Mapping[str, str] = NOTHING
    reads_values: bool = False


@lru_cache(maxsize=4096)
def operation_of(target: Any) -> Operation:
    """Return the operation of a callable or of a name such as ``torch.ops.aten.add_.Tensor``."""
    if isinstance(target, str):
        found = _find_overload(target)
        if found is None:
            native = plain_text(target.removeprefix("torch.ops.higher_order.").removeprefix("torch.ops."))
            return Operation(native.rpartition(".")[2], native, (), _guess_kinds(native))
        target = found
    name = plain_text(str(getattr(target, "__name__", type(target).__name__)))
    if isinstance(target, Operator):
        names, kinds, _ = signature_of(target)
        reads = torch.Tag.data_dependent_output in target.tags
        return Operation(name.partition(".")[0], plain_text(str(target)), names, kinds, reads)
    if "HigherOrderOperator" in {kind.__name__ for kind in type(target).__mro__}:
        return Operation(name, name)
    module = str(getattr(target, "__module__", None) or "torch").removeprefix("_")
    return Operation(name, plain_text(f"{module}.{name}"), (), _guess_kinds(name))


def _guess_kinds(name: str) -> Mapping[str, str]:
    """Guess by its name which arguments an operation without a schema writes to."""
    last = name.rpartition(".")[2]
    return {"0": INPLACE} if last in _WRITERS or (last.endswith("_") and not last.endswith("__")) else NOTHING


def _find_overload(target: str) -> Any:
    """Return the overload of a registered operation, without importing a module."""
    match = _OVERLOAD.fullmatch(target)
    found = None
    if match is not None:
        with suppress(AttributeError, RuntimeError):
            found = attrgetter(".".join(match.groups()))(torch.ops)
    return found if isinstance(found, Operator) else None


def modules_of(stack: Mapping[str, Any] | None) -> Iterator[Module]:
    """Yield the modules of a stack, outermost first."""
    for key, (path, kind) in (stack or {}).items():
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        bare = bare_path(_ROOT.sub("", path))
        call = _CALL.fullmatch(str(key))
        yield Module(bare.partition("@")[0].strip("."), name, 0 if call is None else int(call[1]))


def bare_path(text: str) -> str:
    """Return a dotted path for a path of Dynamo with items.

    >>> bare_path("G['net'].layers[0]._modules['fc']._parameters['weight']")
    'G.net.layers.0.fc.weight'
    """
    return _ITEM.sub(lambda match: "." + next(filter(None, match.groups()), ""), text)


def make_call(
    operation: Operation,
    arguments: Sequence[tuple[str, Any]],
    makes: Mapping[str, TensorMeta],
    modules: Sequence[Module],
    trace: str,
    *,
    gives_number: bool = False,
) -> Call | None:
    """Return the call of an operation, or None for an assertion and for arithmetic with sizes."""
    has_body = any(type(each) is Body for _, value in arguments for each in flatten_argument(value))
    reads_number = gives_number and operation.reads_values
    if not (makes or has_body or reads_number or "inplace" in operation.kinds.values()):
        return None
    return Call(operation.op, operation.native, arguments, [*makes], [*makes.values()], operation.kinds, modules, trace)


def join_entries(entries: Sequence[Any]) -> Any:
    """Return a sequence as an argument: a constant, unless it has values or bodies."""
    is_constant = not any(isinstance(each, (Named, Body, list, dict)) for each in entries)
    return plain_value(tuple(entries)) if is_constant else entries


def make_program(part: Part, inputs: Mapping[str, Input], targets: Iterable[str | None], version: str) -> Program:
    """Return a program; ``targets`` are the inputs that its first outputs are written to, or None for results."""
    pairs = [*zip(chain(targets, repeat(None)), part.outputs, strict=False)]
    writes = [(name, value.name) for name, value in pairs if name and type(value) is Named]
    return Program(part._replace(outputs=[value for name, value in pairs if name is None]), inputs, writes, version)


@lru_cache(maxsize=4096)
def size_text(spelled: str) -> str:
    """Return the formula for an output of sympy's ``srepr``, and any other text unchanged.

    gradir parses the text and never evaluates it, since it may come from a file.

    >>> size_text("Add(Mul(Integer(2), Symbol('s0', positive=True)), Integer(-1))"), size_text("Symbol('u0')")
    ('2*s0 + -1', 'u0')
    >>> size_text("FloorDiv(Add(Symbol('s0'), Integer(1)), Integer(2))"), size_text("s0"), size_text("__import__('os')")
    ('(s0 + 1)//2', 's0', "__import__('os')")
    """
    if len(spelled) > _LONGEST:
        return spelled[:_LONGEST]
    try:
        with warnings.catch_warnings():
            # Python warns of odd literals.
            warnings.simplefilter("ignore")
            return _spell(ast.parse(spelled, mode="eval").body)[0]
    except (SyntaxError, ValueError, TypeError, IndexError, RecursionError, MemoryError):
        return spelled


def _spell(term: ast.expr) -> tuple[str, int]:
    """Return a formula and its precedence. Python's parser takes at most 200 nested parentheses."""
    if not isinstance(term, ast.Call) or not isinstance(term.func, ast.Name):
        text = ast.unparse(term)
        return text, _ALONE if isinstance(term, ast.Constant) or text.isidentifier() else 0
    kind = term.func.id
    if kind == "Symbol":
        return str(ast.literal_eval(term.args[0])), _ALONE
    if kind in ("Integer", "Float"):
        return ast.unparse(term.args[0]), _ALONE
    if kind.startswith("_") or not term.args:
        raise ValueError
    terms = [_spell(each) for each in term.args]
    if kind not in _INFIX:
        return f"{kind}({', '.join(text for text, _ in terms)})", _ALONE
    sign, precedence = _INFIX[kind]
    texts = [text if inner > precedence or inner == precedence == 1 else f"({text})" for text, inner in terms]
    return sign.join(texts), precedence
