"""Read the bytecode of a program to find how it uses numbers, makes leaves, and skips branches."""

from __future__ import annotations

import dis
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from operator import itemgetter
from types import CodeType, FunctionType
from typing import Final, NamedTuple

from torch import nn

from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.results import CodeMemo, names_of
from gradir.frontends.pytorch.recording.sources import is_internal
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value
from gradir.frontends.pytorch.recording.timelines import calls_from
from gradir.frontends.walks import codes_in, find_reachable

COMPARED: Final = "compared"
"""The program compares the number with another, or branches on it."""

SHOWN: Final = "shown"
"""The program formats the number as text or drops it, perhaps compares it too, and has no other use for it."""

PASSED: Final = "passed"
"""The program passes the number to a call and drops the result, as with a logger. The call may keep the number."""

_SILENT: Final = frozenset({"CACHE", "EXTENDED_ARG", "KW_NAMES", "NOP", "PRECALL"})
_COMPARING: Final = frozenset({"COMPARE_OP", "CONTAINS_OP", "IS_OP"})
_TESTING: Final = ("POP_JUMP", "TO_BOOL")
_SHOWING: Final = ("FORMAT_", "POP_TOP")
_WITH_SPEC: Final = 4
_OF_AN_OBJECT: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")
_KEEPING: Final = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "push", "setdefault"})
# The number of instructions to read around the one that makes a number.
_LONGEST: Final = 200


class _Op(NamedTuple):
    name: str
    arg: int
    value: object
    effect: int
    start: int


def find_use(place: Place) -> str:
    """Return the use of a number, or an empty text if the program may compute with it."""
    ops = list(_operations(place.code))
    made = sum(op.start <= place.instruction for op in ops) - 1
    use, variable = _find_next_use(ops, made)
    if not variable:
        return use
    loads = [index for index, op in enumerate(ops) if op.value == variable and "_FAST" in op.name]
    loads = [index for index in loads if ops[index].name != "STORE_FAST"]
    is_read_only = all(ops[index].name == "LOAD_FAST" for index in loads)
    uses = {_find_next_use(ops, index)[0] for index in loads} if is_read_only else {""}
    return uses.pop() if len(uses) == 1 else SHOWN if uses <= {COMPARED, SHOWN} else ""


# Instructions between a number in brackets and the instruction that uses it as an index.
_OF_AN_INDEX: Final = _SILENT | {"BUILD_SLICE", "BUILD_TUPLE"}


def _literals_by_line(code: CodeType) -> Mapping[int | None, Set[tuple[type, object]]]:
    found: dict[int | None, set[tuple[type, object]]] = {}
    # torch converts integer arguments to floats, but not an index such as ``weights[:, 1]``.
    is_index = False
    for each in reversed([*dis.get_instructions(code)]):
        if each.opname in {"LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST"}:
            numbers = set(_numbers_in(each.argval))
            floats = () if is_index else ((float, value) for _, value in numbers)
            found.setdefault(_line(code, each.offset), set()).update(numbers, floats)
        elif each.opname not in _OF_AN_INDEX:
            is_index = each.opname in {"BINARY_SUBSCR", "BINARY_SLICE"} or each.argrepr == "[]"
    return found


def find_last_entry(flow: Flow, ends: Set[Value], wanted: Set[Value]) -> int:
    """Return the last step that may bring a plain number into the captured tensors."""
    if any(value.maker == FROM_OUTSIDE for value in ends):
        return len(flow.steps)
    last, known, literals = FROM_OUTSIDE, set[Value](), CodeMemo(_literals_by_line)
    for index, step in enumerate(flow.steps):
        new = {read.value for read in step.inputs if read.value.maker == FROM_OUTSIDE} - known
        known |= new
        enters = any(flow.outside[value.number].role == "input" for value in new)
        is_wanted = not wanted.isdisjoint(flow.values_of_step(index))
        if is_wanted and (enters or _takes_numbers(step, literals)):
            last = index
    return last


def _takes_numbers(step: Step, literals: CodeMemo[Mapping[int | None, Set[tuple[type, object]]]]) -> bool:
    """Return whether a step takes numbers that are no literals on its line."""
    numbers = {number for _, given in step.constants for number in _numbers_in(given)}
    if not numbers or step.place is None:
        return bool(numbers)
    code, instruction = step.place.code, step.place.instruction
    return not numbers <= literals.of(code).get(_line(code, instruction), frozenset())


def _numbers_in(given: object) -> Iterator[tuple[type, object]]:
    for value in given if isinstance(given, tuple) else (given,):
        # The type matters, since the index in ``x * weights[1]`` is no factor of 1.0.
        if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
            yield type(value), value


def _operations(code: CodeType) -> Iterator[_Op]:
    start: int | None = None
    for each in dis.get_instructions(code):
        if each.opname in _SILENT:
            # In Python 3.11, some calls run in the instruction before the call.
            start = each.offset if each.opname == "PRECALL" else start
            continue
        arg = each.arg or 0
        # Python 3.13 joins two such instructions.
        names, values = each.opname.split("_FAST_"), each.argval
        if len(names) > 1 and isinstance(values, tuple) and len(values) > 1:
            for name, value in zip((f"{names[0]}_FAST", names[1]), values, strict=False):
                yield _Op(name, arg, value, -1 if name.startswith("STORE") else 1, each.offset)
        else:
            effect = -arg - 1 if each.opname == "CALL" else dis.stack_effect(each.opcode, each.arg, jump=False)
            yield _Op(each.opname, arg, values, effect, each.offset if start is None else start)
        start = None


def _find_next_use(ops: Sequence[_Op], made: int) -> tuple[str, str]:
    """Return the use of an instruction's value, and the variable that stores it, if any."""
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
                return _find_use_of_call(ops, index), ""
            is_aside = above >= taken + 2
        else:
            takes_it = above == 0 and op.name.startswith(_OF_AN_OBJECT)
            is_aside = op.name.startswith(("LOAD_", "PUSH_NULL")) and not takes_it
        if not is_aside:
            break
        above += op.effect
    return "", ""


def _find_use_of_call(ops: Sequence[_Op], call: int) -> str:
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
    return SHOWN if any(op.value == "print" for op in ops[first : first + 2]) else PASSED


_CLASSES: Final = frozenset({"Parameter", "Variable"})


def find_leaf_made(computed: Place | None, used: Place | None, around: Iterable[CodeType]) -> Place | None:
    """Return the place that makes a new leaf from the result of ``computed``, or else the place that ``used`` it.

    It may be ``around`` both, in the code that called them.
    """
    if computed is not None:
        calls, line = _leaf_calls(computed.code), _line(computed.code, computed.instruction)
        # The call begins on the same line, as in ``nn.Parameter(a * b)``, or is the next call.
        same = [offset for offset, call_line in calls.items() if call_line == line]
        found = same or [offset for offset in calls if offset > computed.instruction]
        if found:
            return computed._replace(instruction=min(found))
    if used is not None:
        before = [offset for offset in _leaf_calls(used.code) if offset <= used.instruction]
        if before:
            return used._replace(instruction=max(before))
    # Otherwise, use the only call in the functions inside or around, if there is one.
    outer = [place.code for place in (computed, used) if place is not None]
    codes = {each for code in outer for each in codes_in(code) if each is not code}
    inner = {Place(each, offset) for each in codes.union(around) for offset in _leaf_calls(each)}
    return inner.pop() if len(inner) == 1 else used


@lru_cache(maxsize=1024)
def _leaf_calls(code: CodeType) -> Mapping[int, int | None]:
    """Return the instructions that load a class of leaves, with their lines."""
    found = (each.offset for each in dis.get_instructions(code) if each.argval in _CLASSES and "LOAD" in each.opname)
    return {offset: _line(code, offset) for offset in found}


@lru_cache(maxsize=256)
def _lines_of(code: CodeType) -> list[tuple[int, int, int | None]]:
    return sorted(code.co_lines(), key=itemgetter(0))


def _line(code: CodeType, instruction: int) -> int | None:
    lines = _lines_of(code)
    return lines[bisect_right(lines, instruction, key=itemgetter(0)) - 1][2]


_ENDS: Final = ("RETURN_", "RAISE_VARARGS", "RERAISE", "JUMP_BACKWARD")
_LOADS: Final = ("LOAD_FAST", "STORE_FAST_LOAD_FAST")
# The most instructions of the head of a loop.
_LONGEST_HEAD: Final = 12


def find_skipping_conditions(flow: Flow, paths: Mapping[nn.Module, str], names: Iterable[str]) -> dict[str, Place]:
    """Return by unused parameter the only condition that can skip it, in a module that ran."""
    # The modules that ran an operation, by id(), since a user's class may not be hashable.
    calls = {id(step.call): step.call for step in flow.steps}
    called = {id(call.module) for innermost in calls.values() for call in calls_from(innermost)}
    modules = {path: module for module, path in paths.items()}
    ran: dict[int, set[int]] = {}
    for step in flow.steps:
        for place in (step.place, None if step.place is None else step.place.caller):
            if place is not None:
                ran.setdefault(id(place.code), set()).add(place.instruction)
    known: dict[tuple[int, str], Place | None] = {}
    found: dict[str, Place] = {}
    for name in names:
        path, _, member = name.rpartition(".")
        while path and id(modules.get(path)) not in called:
            path, _, member = path.rpartition(".")
        owner = modules.get(path)
        if owner is None or id(owner) not in called:
            continue
        if (id(owner), member) not in known:
            known[id(owner), member] = _find_condition(type(owner), member, ran)
        place = known[id(owner), member]
        if place is not None:
            found[name] = place
    return found


def _find_condition(kind: type, member: str, ran: Mapping[int, Collection[int]]) -> Place | None:
    """Return the only condition that can skip the use of a member, in the methods of a class that ran."""
    codes = [code for code in _methods(kind) if member in code.co_names and id(code) in ran]
    if len(codes) != 1:
        return None
    code = _Code(codes[0])
    found = [code.conditions(use, ran[id(codes[0])]) for use in code.uses(member)]
    if len(found) != 1 or len({line for line, _ in found[0]}) != 1:
        return None
    return Place(codes[0], min(at for _, at in found[0]))


def _methods(kind: type) -> Iterator[CodeType]:
    seen = set[str]()
    for each in kind.__mro__:
        for name, value in vars(each).items():
            if isinstance(value, FunctionType) and name not in seen and not is_internal(value.__code__):
                seen.add(name)
                if name != "__init__":
                    yield value.__code__


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> Sequence[dis.Instruction]:
    return tuple(each for each in dis.get_instructions(code) if each.opname not in {"CACHE", "EXTENDED_ARG", "NOP"})


class _Use(NamedTuple):
    """An instruction that uses a member, and the loop around it with its ``repeats``, the jumps to its start."""

    at: int
    first: int = 0
    last: int | None = None
    repeats: frozenset[int] = frozenset()


class _Code:
    """The instructions of a code, and their control flow."""

    def __init__(self, code: CodeType) -> None:
        self._ops = _instructions(code)
        self._index = {each.offset: index for index, each in enumerate(self._ops)}
        self._lines = [(start, line) for start, _, line in _lines_of(code) if line is not None]

    def uses(self, member: str) -> list[_Use]:
        """Return the uses of a member of ``self``, or if a loop calls the modules in it, these calls."""
        found = []
        for index, each in enumerate(self._ops):
            if each.argval == member and each.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
                calls = self._find_calls_in_loop(index)
                found += [_Use(index)] if calls is None else calls
        return found

    def conditions(self, use: _Use, steps: Collection[int]) -> list[tuple[int, int]]:
        """Return lines and offsets of the conditions with only one branch that leads to a use, or repeats its loop."""
        to_use, to_repeat = self._find_before({use.at}), self._find_before(use.repeats)
        found = []
        for index, each in enumerate(self._ops[use.first : use.at if use.last is None else use.last], use.first):
            if "JUMP" not in each.opname or "_IF_" not in each.opname:
                continue
            wanted = to_use if index < use.at else to_repeat | use.repeats
            branches = self._following(index)
            leading = [branch for branch in branches if branch in wanted]
            is_repeat = index in use.repeats
            if len(leading) + is_repeat != 1 or len(branches) + is_repeat != 2:
                continue
            others = [branch for branch in branches if branch not in wanted]
            after_others = set(find_reachable(others, self._following))
            only = set(find_reachable(leading, self._following)) - after_others
            if use.repeats or not any(self._ops[at].offset in steps for at in only):
                found.append((max(line for start, line in self._lines if start <= each.offset), each.offset))
        return found

    def _find_calls_in_loop(self, index: int) -> list[_Use] | None:
        """Return the calls of the variable of a loop over a member, if any."""
        names = [each.opname for each in self._ops[index : index + _LONGEST_HEAD]]
        before = names[: names.index("FOR_ITER")] if "FOR_ITER" in names else ["STORE"]
        if any(name.startswith(("STORE", "POP_TOP")) for name in before):
            return None
        head = index + len(before)
        variables = set[object]()
        for each in self._ops[head + 1 : head + _LONGEST_HEAD]:
            if not each.opname.startswith(("STORE_FAST", "UNPACK_SEQUENCE")):
                break
            variables.update(names_of(each))
        end = self._index.get(self._ops[head].argval, len(self._ops))
        repeats = frozenset(at for at in range(head, end) if self._index.get(self._ops[at].argval) == head)
        return [
            _Use(at, head + 1, end, repeats)
            for at, each in enumerate(self._ops[head:end], head)
            if each.opname.startswith(_LOADS)
            and not variables.isdisjoint(names_of(each))
            and "PUSH_NULL" in {self._ops[at - 1].opname, self._ops[min(at + 1, len(self._ops) - 1)].opname}
        ]

    def _following(self, index: int) -> list[int]:
        each = self._ops[index]
        found = [] if each.opname.startswith((*_ENDS, "JUMP_FORWARD", "JUMP_ABSOLUTE")) else [index + 1]
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            target = self._index.get(each.argval, -1)
            found += [target] if target > index else []
        return [one for one in found if one < len(self._ops)]

    def _find_before(self, ends: Collection[int]) -> set[int]:
        """Return the instructions that lead forward to some of these, and these."""
        found = set(ends)
        for index in range(max(ends, default=0) - 1, -1, -1):
            if not found.isdisjoint(self._following(index)):
                found.add(index)
        return found
