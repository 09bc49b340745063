"""The branch of a module's code that Python did not take, where it alone keeps a parameter from being used."""

from __future__ import annotations

import dis
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Final, NamedTuple

from torch import nn

from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.sources import is_internal
from gradir.frontends.pytorch.recording.timelines import Frame

__all__ = ["not_taken"]

_ENDS: Final = ("RETURN_", "RAISE_VARARGS", "RERAISE", "JUMP_BACKWARD")
_LOADS: Final = ("LOAD_FAST", "STORE_FAST_LOAD_FAST")
_SIDES: Final = 2
_LONGEST: Final = 12
"""How many instructions of the head of a loop are looked at."""


def not_taken(flow: Flow, paths: Mapping[nn.Module, str], names: Iterable[str]) -> dict[str, Place]:
    """By name of a parameter that nothing takes, the condition by which a module that ran passed over its use.

    It is there only where one line of the module's code decides on that.
    """
    called = _called(flow)
    modules = {path: module for module, path in paths.items()}
    ran: dict[int, set[int]] = {}
    for step in flow.steps:
        for place in (step.place, None if step.place is None else step.place.caller):
            if place is not None:
                ran.setdefault(id(place.code), set()).add(place.instruction)
    known: dict[tuple[nn.Module, str], Place | None] = {}
    found: dict[str, Place] = {}
    for name in names:
        path, _, member = name.rpartition(".")
        while path and modules.get(path) not in called:
            path, _, member = path.rpartition(".")
        owner = modules.get(path)
        if owner is None or owner not in called:
            continue
        if (owner, member) not in known:
            known[owner, member] = _condition(type(owner), member, ran)
        place = known[owner, member]
        if place is not None:
            found[name] = place
    return found


def _called(flow: Flow) -> Collection[nn.Module]:
    """The modules in which an operation ran."""
    found, seen = set[nn.Module](), set[int]()
    for step in flow.steps:
        call: Frame | None = step.call
        while call is not None and id(call) not in seen:
            seen.add(id(call))
            found.add(call.module)
            call = call.caller
    return found


def _condition(kind: type, member: str, ran: Mapping[int, Collection[int]]) -> Place | None:
    """The one condition of the methods of a class that ran by which the use of a member was passed over."""
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


def _names(found: dis.Instruction) -> tuple[object, ...]:
    # Python 3.13 joins two of them.
    return found.argval if isinstance(found.argval, tuple) else (found.argval,)


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> Sequence[dis.Instruction]:
    return tuple(each for each in dis.get_instructions(code) if each.opname not in {"CACHE", "EXTENDED_ARG", "NOP"})


class _Use(NamedTuple):
    """Where a member is used, and of the loop around it where it begins and ends and goes ``again`` to its start."""

    at: int
    first: int = 0
    last: int | None = None
    again: frozenset[int] = frozenset()


class _Code:
    """The instructions of a code, and which of them come after which."""

    def __init__(self, code: CodeType) -> None:
        self._ops = _instructions(code)
        self._index = {each.offset: index for index, each in enumerate(self._ops)}
        self._lines = sorted((start, line) for start, _, line in code.co_lines() if line is not None)

    def uses(self, member: str) -> list[_Use]:
        """Where a member of ``self`` is taken, or the modules in it are called in a loop."""
        found = []
        for index, each in enumerate(self._ops):
            if each.argval == member and each.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
                called = self._called_in_loop(index)
                found += [_Use(index)] if called is None else called
        return found

    def conditions(self, use: _Use, steps: Collection[int]) -> list[tuple[int, int]]:
        """The lines and offsets of the conditions one of whose sides alone comes to a use, or ends the loop around it.

        One whose side there has run an operation was met; in a loop it may have been so for another module.
        """
        comes, goes_on = self._coming_to({use.at}), self._coming_to(use.again)
        found = []
        for index, each in enumerate(self._ops[use.first : use.at if use.last is None else use.last], use.first):
            if "JUMP" not in each.opname or "_IF_" not in each.opname:
                continue
            wanted = comes if index < use.at else goes_on | use.again
            sides = self._following(index)
            there = [side for side in sides if side in wanted]
            is_back = index in use.again
            if len(there) + is_back != 1 or len(sides) + is_back != _SIDES:
                continue
            only = self._coming_from(there) - self._coming_from([side for side in sides if side not in wanted])
            if use.again or not any(self._ops[at].offset in steps for at in only):
                found.append((max(line for start, line in self._lines if start <= each.offset), each.offset))
        return found

    def _called_in_loop(self, index: int) -> list[_Use] | None:
        """Where the variable of a loop over a member is called; nothing where there is no such loop."""
        names = [each.opname for each in self._ops[index : index + _LONGEST]]
        before = names[: names.index("FOR_ITER")] if "FOR_ITER" in names else ["STORE"]
        if any(name.startswith(("STORE", "POP_TOP")) for name in before):
            return None
        head = index + len(before)
        variables = set[object]()
        for each in self._ops[head + 1 : head + _LONGEST]:
            if not each.opname.startswith(("STORE_FAST", "UNPACK_SEQUENCE")):
                break
            variables.update(_names(each))
        end = self._index.get(self._ops[head].argval, len(self._ops))
        again = {at for at in range(head, end) if self._index.get(self._ops[at].argval) == head}
        return [
            _Use(at, head + 1, end, frozenset(again))
            for at, each in enumerate(self._ops[head:end], head)
            if each.opname.startswith(_LOADS)
            and not variables.isdisjoint(_names(each))
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
        waiting, found = [*starts], set[int]()
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                waiting += self._following(index)
        return found
