"""What a program does with a plain number that it read from a tensor, as far as its bytecode says it."""

from __future__ import annotations

import dis
from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from types import CodeType
from typing import Final, NamedTuple

from gradir.frontends.pytorch.recording.places import Place

__all__ = ["COMPARED", "HANDED", "SHOWN", "Literals", "use_of"]

COMPARED: Final = "compared"
"""The number is compared with another, or decides on a branch."""

SHOWN: Final = "shown"
"""The number is written into a text or dropped, or compared somewhere too, and does not go on as a number."""

HANDED: Final = "handed"
"""The number is an argument of a call whose result is dropped, as of a logger; what that keeps is not known."""

_SILENT: Final = frozenset({"CACHE", "EXTENDED_ARG", "KW_NAMES", "NOP", "PRECALL"})
_COMPARING: Final = frozenset({"COMPARE_OP", "CONTAINS_OP", "IS_OP"})
_TESTING: Final = ("POP_JUMP", "TO_BOOL")
_SHOWING: Final = ("FORMAT_", "POP_TOP")
_WITH_SPEC: Final = 4
_OF_AN_OBJECT: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")
_KEEPING: Final = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "push", "setdefault"})
_LONGEST: Final = 200
"""How many instructions around the one that made a number are looked at."""


class _Op(NamedTuple):
    name: str
    arg: int
    value: object
    effect: int
    start: int


def use_of(place: Place) -> str:
    """What becomes of the number that an instruction makes; nothing where it may go on."""
    ops = list(_operations(place.code))
    made = sum(op.start <= place.instruction for op in ops) - 1
    use, variable = _use(ops, made)
    if not variable:
        return use
    naming = [index for index, op in enumerate(ops) if op.value == variable and "_FAST" in op.name]
    naming = [index for index in naming if ops[index].name != "STORE_FAST"]
    is_read_only = all(ops[index].name == "LOAD_FAST" for index in naming)
    uses = {_use(ops, index)[0] for index in naming} if is_read_only else {""}
    return uses.pop() if len(uses) == 1 else SHOWN if uses <= {COMPARED, SHOWN} else ""


class Literals:
    """The numbers that stand in the lines of a code."""

    def __init__(self, code: CodeType) -> None:
        self._lines = {start: line for start, _, line in code.co_lines()}
        self._starts = sorted(self._lines)
        self._found: dict[int | None, set[float]] = {}
        for each in dis.get_instructions(code):
            if each.opname in {"LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST"}:
                values = each.argval if isinstance(each.argval, tuple) else (each.argval,)
                numbers = {value for value in values if isinstance(value, (float, int))}
                self._found.setdefault(self._line(each.offset), set()).update(numbers)

    def beside(self, instruction: int) -> Set[float]:
        """Those in the line of an instruction."""
        return self._found.get(self._line(instruction), frozenset())

    def _line(self, instruction: int) -> int | None:
        return self._lines[self._starts[bisect_right(self._starts, instruction) - 1]]


def _operations(code: CodeType) -> Iterator[_Op]:
    start: int | None = None
    for each in dis.get_instructions(code):
        if each.opname in _SILENT:
            # Python 3.11 makes some calls in the instruction before the call.
            start = each.offset if each.opname == "PRECALL" else start
            continue
        arg = each.arg or 0
        # Python 3.13 joins two of them.
        names, values = each.opname.split("_FAST_"), each.argval
        if len(names) > 1 and isinstance(values, tuple) and len(values) > 1:
            for name, value in zip((f"{names[0]}_FAST", names[1]), values, strict=False):
                yield _Op(name, arg, value, -1 if name.startswith("STORE") else 1, each.offset)
        else:
            effect = -arg - 1 if each.opname == "CALL" else dis.stack_effect(each.opcode, each.arg, jump=False)
            yield _Op(each.opname, arg, values, effect, each.offset if start is None else start)
        start = None


def _use(ops: Sequence[_Op], made: int) -> tuple[str, str]:
    """What takes the value of an instruction, and the variable that it is stored in, if it is that."""
    above = 0
    for index in range(made + 1, min(made + _LONGEST, len(ops))):
        op = ops[index]
        has_spec = op.name == "FORMAT_WITH_SPEC" or (op.name == "FORMAT_VALUE" and op.arg & _WITH_SPEC)
        if (op.name in _COMPARING and above <= 1) or (op.name.startswith(_TESTING) and above == 0):
            return COMPARED, ""
        if (has_spec and above <= 1) or (op.name.startswith(_SHOWING) and above == 0):
            return SHOWN, ""
        if op.name == "STORE_FAST" and above == 0:
            return "", str(op.value)
        if op.name.startswith("CALL"):
            taken = op.arg + op.name.endswith("_KW")
            if above < taken:
                return _use_of_call(ops, index), ""
            is_aside = above >= taken + 2
        else:
            is_aside = op.name.startswith(("LOAD_", "PUSH_NULL")) and (
                above > 0 or not op.name.startswith(_OF_AN_OBJECT)
            )
        if not is_aside:
            break
        above += op.effect
    return "", ""


def _use_of_call(ops: Sequence[_Op], call: int) -> str:
    """What becomes of a number that is an argument of a call."""
    following = ops[call + 1].name if call + 1 < len(ops) else ""
    if following != "POP_TOP":
        return SHOWN if following == "RAISE_VARARGS" else ""
    depth, first = 1, call
    while first > max(call - _LONGEST, 0):
        depth -= ops[first].effect
        if depth <= 0:
            break
        first -= 1
    if any(op.value in _KEEPING for op in ops[first:call] if isinstance(op.value, str)):
        return ""
    return SHOWN if any(op.value == "print" for op in ops[first : first + 2]) else HANDED
