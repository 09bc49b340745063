"""Fill the rank of a process into the name of the file that it writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Final

from gradir.errors import SpecError

_RANK: Final = "{rank}"
_WORLD: Final = "{world}"
# A launcher such as torchrun sets these variables in each process.
_VARIABLES: Final[Mapping[str, str]] = {_RANK: "RANK", _WORLD: "WORLD_SIZE"}
_MOST_DIGITS: Final = 9
_ALONE: Final[Mapping[str, str]] = {_RANK: "0", _WORLD: "1"}


def fill_in_own_rank(output: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the file of this process, with its rank for ``{rank}`` and the number of ranks for ``{world}``.

    A process without a launcher is rank 0 of 1.
    """
    variables = os.environ if environment is None else environment
    if _RANK not in output:
        world = _read_number(variables, _VARIABLES[_WORLD]) or 1
        if world > 1 and variables.get(_VARIABLES[_RANK]) and not _is_shared_target(output):
            raise SpecError(
                f"cannot write {output} from all {world} processes; "
                f"put {_RANK} into the name, as in -o {_suggest_name(output)}"
            )
    return _fill_in(_fill_in(output, _RANK, variables), _WORLD, variables)


def read_launcher(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """Return this process's rank and the number of ranks from a launcher's variables; ``None`` for a single process."""
    variables = os.environ if environment is None else environment
    rank, world, _ = (_read_number(variables, name) for name in (*_VARIABLES.values(), "LOCAL_RANK"))
    if rank is None or world is None or world < 2:
        return None
    if rank >= world:
        raise SpecError(f"RANK is {rank}, and WORLD_SIZE {world}: start the program with a launcher such as torchrun")
    return rank, world


def _read_number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name)
    if not text:
        return None
    # int() refuses a text of thousands of digits.
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        from gradir.ir.text import excerpt

        raise SpecError(f"{name} is {excerpt(text)}, not a number; start the program with a launcher such as torchrun")
    return int(text)


def _fill_in(output: str, word: str, variables: Mapping[str, str]) -> str:
    if word not in output:
        return output
    name = _VARIABLES[word]
    number = _read_number(variables, name)
    if number is None and any(map(variables.get, _VARIABLES.values())):
        how = "is not set; start the program with a launcher such as torchrun"
        raise SpecError(f"cannot fill {word} in -o {output}: {name} {how}")
    return output.replace(word, _ALONE[word] if number is None else str(number))


def _is_shared_target(output: str) -> bool:
    if output == "-":
        return True
    try:
        return not stat.S_ISREG(os.stat(output).st_mode)  # noqa: PTH116 (pathlib would delay the start)
    except (OSError, ValueError):
        return False


def _suggest_name(output: str) -> str:
    folder, name = os.path.split(output)
    stem, dot, suffix = name.partition(".")
    return os.path.join(folder, f"{stem}.{_RANK}{dot}{suffix}")  # noqa: PTH118
