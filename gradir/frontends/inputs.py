"""What ``--input`` describes: a dtype and sizes, and perhaps a name."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gradir.errors import CaptureError

_INPUT: Final = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>[a-z]\w*)\[(?P<shape>[\d,\s]*)\]")


class Described(NamedTuple):
    """An input: its keyword or ``None``, the framework's name of its dtype, and its sizes."""

    name: str | None
    dtype: str
    shape: tuple[int, ...]


def parse_described(text: str) -> Described:
    """Return the parts of an input given as ``dtype[shape]`` or ``name=dtype[shape]``.

    >>> parse_described("ids=int64[1,8]")
    Described(name='ids', dtype='int64', shape=(1, 8))
    """
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise CaptureError(
            f"--input {text!r}: expected dtype[sizes] or name=dtype[sizes], such as float32[1,3,224,224]"
        )
    try:
        shape = tuple(int(size) for size in match["shape"].split(",")) if match["shape"].strip() else ()
    except ValueError as error:
        raise CaptureError(f"--input {text!r}: the sizes must be integers separated by commas") from error
    return Described(match["name"], match["dtype"], shape)
