"""The name of a file that each of several processes writes, with the process's rank in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Final

from gradir.errors import SpecError

_RANK: Final = "{rank}"
_WORLD: Final = "{world}"
_SET_BY: Final[Mapping[str, str]] = {_RANK: "RANK", _WORLD: "WORLD_SIZE"}
"""What a launcher such as torchrun says to each process that it starts."""

_SEVERAL: Final = 2
_MOST_DIGITS: Final = 9
_ALONE: Final[Mapping[str, str]] = {_RANK: "0", _WORLD: "1"}


def for_rank(output: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the file of this process, with its rank for ``{rank}`` and the number of ranks for ``{world}``.

    A process that no launcher started is rank 0 of 1.

    >>> for_rank("run.{rank}-of-{world}.gir", {"RANK": "3", "WORLD_SIZE": "16"}), for_rank("run.{rank}.gir", {})
    ('run.3-of-16.gir', 'run.0.gir')

    Raises:
        SpecError: there are several processes, and each would write the same file; what the launcher says is no number.
    """
    told = os.environ if environment is None else environment
    if _RANK not in output:
        world = _number(told, _SET_BY[_WORLD]) or 1
        if world > 1 and told.get(_SET_BY[_RANK]) and not _takes_any_number(output):
            raise SpecError(
                f"cannot write {output} from all {world} processes; "
                f"put {_RANK} into the name, as in -o {_with_rank(output)}"
            )
        return _filled(output, _WORLD, told)
    return _filled(_filled(output, _RANK, told), _WORLD, told)


def launched(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """Return this process's rank and the number of ranks, as the launcher of several processes says; ``None`` of one.

    >>> launched({"RANK": "3", "WORLD_SIZE": "16"}), launched({"RANK": "0", "WORLD_SIZE": "1"}), launched({})
    ((3, 16), None, None)

    Raises:
        SpecError: what the launcher says is no number, or no rank of so many.
    """
    told = os.environ if environment is None else environment
    rank, world, _ = (_number(told, name) for name in (*_SET_BY.values(), "LOCAL_RANK"))
    if rank is None or world is None or world < _SEVERAL:
        return None
    if rank >= world:
        raise SpecError(f"RANK is {rank}, and WORLD_SIZE {world}: start the program with a launcher such as torchrun")
    return rank, world


def _number(told: Mapping[str, str], name: str) -> int | None:
    text = told.get(name)
    if not text:
        return None
    # Python reads no number of thousands of digits.
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        from gradir.ir.text import excerpt

        raise SpecError(f"{name} is {excerpt(text)}, not a number; start the program with a launcher such as torchrun")
    return int(text)


def of_rank(output: str, rank: int, world: int) -> str:
    """Return the file of a single captured rank, whose name need not contain the rank.

    >>> of_rank("run.{rank}-of-{world}.gir", 17, 1024), of_rank("run.gir", 17, 1024)
    ('run.17-of-1024.gir', 'run.gir')
    """
    return output.replace(_RANK, str(rank)).replace(_WORLD, str(world))


def _filled(output: str, word: str, told: Mapping[str, str]) -> str:
    if word not in output:
        return output
    name = _SET_BY[word]
    number = _number(told, name)
    if number is None and any(map(told.get, _SET_BY.values())):
        how = "is not set; start the program with a launcher such as torchrun"
        raise SpecError(f"cannot fill {word} in -o {output}: {name} {how}")
    return output.replace(word, _ALONE[word] if number is None else str(number))


def _takes_any_number(output: str) -> bool:
    if output == "-":
        return True
    try:
        return not stat.S_ISREG(os.stat(output).st_mode)  # noqa: PTH116 (a command starts without what makes a path)
    except (OSError, ValueError):
        return False


def _with_rank(output: str) -> str:
    folder, name = os.path.split(output)
    stem, dot, suffix = name.partition(".")
    return os.path.join(folder, f"{stem}.{_RANK}{dot}{suffix}")  # noqa: PTH118
