"""Read from bytecode how a program uses the value of an instruction."""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from types import CodeType
from typing import Final, NamedTuple, TypeVar

# The function does not return the value, or the instruction does not make it.
LOST: Final = 0
# It does, unless another value is made after this one.
MAYBE: Final = 1
# It does.
SURE: Final = 2

_STORES: Final = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
_LOADS: Final = ("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")
_SILENT: Final = ("EXTENDED_ARG", "NOP", "POP_BLOCK", "CACHE")
_COPIES: Final = ("COPY", "DUP_TOP")

# Functions in C whose last operation makes their result.
_ADDING: Final = frozenset({"sum", "reduce"})
# Functions in C whose operations, if any, do not make their result.
_GATHERING: Final = frozenset({"dict", "list", "next", "set", "sorted", "tuple"})
# The most instructions of a call to search for the name of the function.
_LONGEST: Final = 500


class Fate(NamedTuple):
    """The fate of a value: its variable, whether it is returned, and whether the instruction itself makes it."""

    variable: str | None
    returned: int
    direct: int


UNKNOWN: Final = Fate(None, LOST, SURE)
V = TypeVar("V")


class CodeMemo(dict[int, V]):
    """Remembers a value for each code by its id(), since code is slow to hash, and keeps the code alive."""

    def __init__(self, make: Callable[[CodeType], V]) -> None:
        self._make, self._codes = make, list[CodeType]()

    def of(self, code: CodeType) -> V:
        """Return the value for a code."""
        if id(code) not in self:
            self._codes.append(code)
            self[id(code)] = self._make(code)
        return self[id(code)]


@lru_cache(maxsize=4096)
def find_fates(code: CodeType) -> Mapping[int, Fate]:
    """Return the fate of each instruction's value by its offset, without those that are `UNKNOWN`."""
    instructions = [found for found in dis.get_instructions(code) if found.opname not in _SILENT]
    loads = (load for load, following in pairwise(instructions) if following.opname == "RETURN_VALUE")
    returned = {names_of(load)[-1] for load in loads if load.opname.startswith(_LOADS)}
    found_fates = {}
    start = 0
    for place, (found, following) in enumerate(pairwise(instructions)):
        # In Python 3.11 a frame's instruction is PRECALL during some calls, and the end of the call during others.
        if found.opname == "PRECALL":
            continue
        known = _fate(instructions, place, returned)
        if known is not UNKNOWN:
            found_fates.update(dict.fromkeys(range(start, following.offset, 2), known))
        start = following.offset
    return found_fates


def _fate(instructions: Sequence[dis.Instruction], place: int, returned: set[str]) -> Fate:
    following = place + 1
    while instructions[following].opname in _COPIES and following + 1 < len(instructions):
        following += 1
    use = instructions[following]
    if use.opname == "RETURN_VALUE":
        return Fate(None, SURE, _direct(instructions, place))
    # Each variable gets a part of a tensor that is unpacked.
    if not use.opname.startswith(_STORES) or instructions[place].opname.startswith("UNPACK_"):
        return UNKNOWN
    variable, *loaded = names_of(use)
    direct = _direct(instructions, place)
    if variable not in returned:
        return Fate(variable, LOST, direct)
    for after in instructions[following + 1 : following + 3]:
        if after.opname == "RETURN_VALUE":
            return Fate(variable, SURE, direct)
        if loaded or not after.opname.startswith(_LOADS) or names_of(after)[-1] != variable:
            break
        loaded = [variable]
    return Fate(variable, MAYBE, direct)


def names_of(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that an instruction stores or loads."""
    # Python 3.13 joins two stores, or a store and a load, in one instruction.
    value = instruction.argval
    return value if isinstance(value, tuple) else (value,)


def _direct(instructions: Sequence[dis.Instruction], place: int) -> int:
    if not instructions[place].opname.startswith("CALL"):
        return SURE
    callee = _callee(instructions, place)
    return MAYBE if callee in _ADDING else LOST if callee in _GATHERING else SURE


def _callee(instructions: Sequence[dis.Instruction], place: int) -> str:
    """Return the global name that is called, or an empty string if there is none or an argument has a condition."""
    depth = 1
    for start in range(place, max(place - _LONGEST, -1), -1):
        depth -= dis.stack_effect(instructions[start].opcode, instructions[start].arg, jump=False)
        if depth == 0:
            first, second, *_ = [each for each in instructions[start : place + 2] if each.opname != "PUSH_NULL"]
            if first.opname not in {"LOAD_GLOBAL", "LOAD_NAME"}:
                return ""
            if second.opname not in {"LOAD_ATTR", "LOAD_METHOD"}:
                return str(first.argval)
            return str(second.argval) if first.argval == "functools" else ""
    return ""
