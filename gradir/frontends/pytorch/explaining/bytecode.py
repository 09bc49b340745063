"""What the bytecode of a program says of its numbers, its new leaves, and the branches that it did not take."""

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
from gradir.frontends.pytorch.recording.results import names_of
from gradir.frontends.pytorch.recording.sources import is_internal
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value
from gradir.frontends.pytorch.recording.timelines import calls_from
from gradir.frontends.walks import codes_in, reached

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
# How many instructions to look at around the one that made a number.
_LONGEST: Final = 200


class _Op(NamedTuple):
    name: str
    arg: int
    value: object
    effect: int
    start: int


def use_of(place: Place) -> str:
    """Return the use of the number that an instruction makes, empty if it may go on."""
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


# May stand between a number in brackets and the instruction that takes what it is an index of.
_OF_AN_INDEX: Final = _SILENT | {"BUILD_SLICE", "BUILD_TUPLE"}


class _Literals:
    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._found: dict[int | None, set[tuple[type, object]]] = {}
        # torch makes a float of an integer that it is given, but not of an index as in ``weights[:, 1]``.
        is_index = False
        for each in reversed([*dis.get_instructions(code)]):
            if each.opname in {"LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST"}:
                numbers = set(_numbers_in(each.argval))
                floats = () if is_index else ((float, value) for _, value in numbers)
                self._found.setdefault(_line(code, each.offset), set()).update(numbers, floats)
            elif each.opname not in _OF_AN_INDEX:
                is_index = each.opname in {"BINARY_SUBSCR", "BINARY_SLICE"} or each.argrepr == "[]"

    def beside(self, instruction: int) -> Set[tuple[type, object]]:
        return self._found.get(_line(self._code, instruction), frozenset())


def find_last_entry(flow: Flow, ends: Set[Value], wanted: Set[Value]) -> int:
    """Return the last step through which a plain number may have come to what was captured."""
    if any(value.maker == FROM_OUTSIDE for value in ends):
        return len(flow.steps)
    last, known, written = FROM_OUTSIDE, set[Value](), dict[int, _Literals]()
    for index, step in enumerate(flow.steps):
        new = {read.value for read in step.inputs if read.value.maker == FROM_OUTSIDE} - known
        known |= new
        enters = any(flow.outside[value.number].role == "input" for value in new)
        is_wanted = not wanted.isdisjoint(flow.made_by(index))
        if is_wanted and (enters or _takes_numbers(step, written)):
            last = index
    return last


def _takes_numbers(step: Step, known: dict[int, _Literals]) -> bool:
    """Return whether a step takes numbers that do not stand in the line that runs it."""
    numbers = {number for _, given in step.constants for number in _numbers_in(given)}
    if not numbers or step.place is None:
        return bool(numbers)
    # By identity, since code takes long to hash, and each step asks.
    code = step.place.code
    if id(code) not in known:
        known[id(code)] = _Literals(code)
    return not numbers <= known[id(code)].beside(step.place.instruction)


def _numbers_in(given: object) -> Iterator[tuple[type, object]]:
    for value in given if isinstance(given, tuple) else (given,):
        # With its type, since the index of ``x * weights[1]`` is no factor of 1.0.
        if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
            yield type(value), value


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
    """Return the use of an instruction's value, and the variable that it is stored in, if any."""
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
            takes_it = above == 0 and op.name.startswith(_OF_AN_OBJECT)
            is_aside = op.name.startswith(("LOAD_", "PUSH_NULL")) and not takes_it
        if not is_aside:
            break
        above += op.effect
    return "", ""


def _use_of_call(ops: Sequence[_Op], call: int) -> str:
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


_CLASSES: Final = frozenset({"Parameter", "Variable"})


def find_leaf_made(computed: Place | None, used: Place | None) -> Place | None:
    """Return where a new leaf is made of the result of ``computed``, else where it is ``used``."""
    if computed is not None:
        calls, line = _calls(computed.code), _line(computed.code, computed.instruction)
        # The call begins in the same line, as in ``nn.Parameter(a * b)``, or is the next one after it.
        same = [at for at, at_line in calls.items() if at_line == line]
        found = same or [at for at in calls if at > computed.instruction]
        if found:
            return computed._replace(instruction=min(found))
    if used is not None:
        before = [at for at in _calls(used.code) if at <= used.instruction]
        if before:
            return used._replace(instruction=max(before))
    # Otherwise it may be the only one in functions inside these.
    outer = [place.code for place in (computed, used) if place is not None]
    codes = {each for code in outer for each in codes_in(code) if each is not code}
    inner = {Place(each, at) for each in codes for at in _calls(each)}
    return inner.pop() if len(inner) == 1 else used


@lru_cache(maxsize=1024)
def _calls(code: CodeType) -> Mapping[int, int | None]:
    """Return the instructions that load a class which makes leaves, with their lines."""
    found = (each.offset for each in dis.get_instructions(code) if each.argval in _CLASSES and "LOAD" in each.opname)
    return {at: _line(code, at) for at in found}


@lru_cache(maxsize=256)
def _lines_of(code: CodeType) -> list[tuple[int, int, int | None]]:
    return sorted(code.co_lines(), key=itemgetter(0))


def _line(code: CodeType, instruction: int) -> int | None:
    lines = _lines_of(code)
    return lines[bisect_right(lines, instruction, key=itemgetter(0)) - 1][2]


_ENDS: Final = ("RETURN_", "RAISE_VARARGS", "RERAISE", "JUMP_BACKWARD")
_LOADS: Final = ("LOAD_FAST", "STORE_FAST_LOAD_FAST")
# How many instructions the head of a loop may have.
_LONGEST_HEAD: Final = 12


def skipping_conditions(flow: Flow, paths: Mapping[nn.Module, str], names: Iterable[str]) -> dict[str, Place]:
    """Return, by unused parameter, the one condition by which a module that ran skipped it."""
    # The modules in which an operation ran, by id(): a class of the user's may forbid hashes.
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
            known[id(owner), member] = _condition(type(owner), member, ran)
        place = known[id(owner), member]
        if place is not None:
            found[name] = place
    return found


def _condition(kind: type, member: str, ran: Mapping[int, Collection[int]]) -> Place | None:
    """Return the one condition of the methods of a class that ran by which the use of a member was passed over."""
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
    """An instruction that uses a member, and the loop around it, which goes ``again`` to its start."""

    at: int
    first: int = 0
    last: int | None = None
    again: frozenset[int] = frozenset()


class _Code:
    """The instructions of a code, and which of them come after which."""

    def __init__(self, code: CodeType) -> None:
        self._ops = _instructions(code)
        self._index = {each.offset: index for index, each in enumerate(self._ops)}
        self._lines = [(start, line) for start, _, line in _lines_of(code) if line is not None]

    def uses(self, member: str) -> list[_Use]:
        """Return the uses of a member of ``self``, or the calls of the modules in it in a loop."""
        found = []
        for index, each in enumerate(self._ops):
            if each.argval == member and each.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
                called = self._called_in_loop(index)
                found += [_Use(index)] if called is None else called
        return found

    def conditions(self, use: _Use, steps: Collection[int]) -> list[tuple[int, int]]:
        """Return lines and offsets of the conditions of which one side alone leads to a use, or ends its loop."""
        comes, goes_on = self._coming_to({use.at}), self._coming_to(use.again)
        found = []
        for index, each in enumerate(self._ops[use.first : use.at if use.last is None else use.last], use.first):
            if "JUMP" not in each.opname or "_IF_" not in each.opname:
                continue
            wanted = comes if index < use.at else goes_on | use.again
            sides = self._following(index)
            there = [side for side in sides if side in wanted]
            is_back = index in use.again
            if len(there) + is_back != 1 or len(sides) + is_back != 2:
                continue
            only = self._coming_from(there) - self._coming_from([side for side in sides if side not in wanted])
            if use.again or not any(self._ops[at].offset in steps for at in only):
                found.append((max(line for start, line in self._lines if start <= each.offset), each.offset))
        return found

    def _called_in_loop(self, index: int) -> list[_Use] | None:
        """Return the calls of the variable of a loop over a member, ``None`` without such a loop."""
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
        again = {at for at in range(head, end) if self._index.get(self._ops[at].argval) == head}
        return [
            _Use(at, head + 1, end, frozenset(again))
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

    def _coming_to(self, uses: Collection[int]) -> set[int]:
        found = set(uses)
        for index in range(max(uses, default=0) - 1, -1, -1):
            if not found.isdisjoint(self._following(index)):
                found.add(index)
        return found

    def _coming_from(self, starts: Iterable[int]) -> set[int]:
        return set(reached(starts, self._following))
