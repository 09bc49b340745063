"""Find the first problem in broken MessagePack and its byte.

msgspec reads the documents, but names no byte of an error, and skips the values of unknown keys. The package msgpack
walks over all bytes without recursion and says where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from gradir.codecs.faults import byte, damage
from gradir.errors import FormatError
from gradir.ir.text import summarize_error

Pairs = list[tuple[Any, Any]]

_PAST_THE_END: Final = "a length leads past the end of the file: it is damaged, or the file was truncated"
_TRUNCATED: Final = "the file ends before its document does: it was truncated"
_TOO_DEEP: Final = "nested too deeply"


def guard(data: bytes) -> None:
    """Raise FormatError for a document that is truncated, states a false length, or is nested too deeply."""
    # Skipping creates no values, so it takes a twentieth of the time of reading.
    _walk(data, "skip")


def inspect(data: bytes) -> None:
    """Raise FormatError for text that is not UTF-8, keys that are not text, and extension types."""
    # The hooks drop lists and maps, so that a short hostile file cannot take much memory.
    unpack(data, lambda _: None, lambda _: None)


def unpack(data: bytes, maps: Callable[[Pairs], object], lists: Callable[[list[Any]], object] | None = None) -> object:
    r"""Return the document after hooks have replaced its maps and lists, the innermost first.

    >>> unpack(b"\x82\xa1a\x01\xa1a\x02", tuple)
    (('a', 1), ('a', 2))
    """

    def check_keys(pairs: Pairs) -> object:
        if not all(isinstance(key, str) for key, _ in pairs):
            raise TypeError("a map key is not text")
        return maps(pairs)

    return _walk(data, "unpack", object_pairs_hook=check_keys, list_hook=lists, ext_hook=_refuse_extension)


def fault_of(data: bytes, error: Exception) -> FormatError:
    """Return the error of a MessagePack reader with its place."""
    try:
        inspect(data)
    except FormatError as fault:
        return fault
    return damage(f"broken MessagePack: {_TOO_DEEP if isinstance(error, RecursionError) else summarize_error(error)}")


def _walk(data: bytes, name: str, **hooks: Any) -> object:
    # msgpack takes a millisecond to load, and commands on JSON do not need it.
    import msgpack

    # Without a size, msgpack reserves a megabyte.
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(data), 1), **hooks)
    unpacker.feed(data)
    try:
        found: object = getattr(unpacker, name)()
    except msgpack.OutOfData:
        # The reader stops after the length of an incomplete value, or at the start of a missing value.
        place, end = unpacker.tell(), len(data)
        raise (damage(_PAST_THE_END, byte(place - 1)) if place < end else damage(_TRUNCATED, byte(end))) from None
    except UnicodeDecodeError as error:
        # The reader stops at the last byte of the text.
        place = unpacker.tell() + 1 - len(error.object) + error.start
        problem = f"broken MessagePack: a text is not UTF-8, {error.reason} {error.object[error.start]:#04x}"
        raise damage(problem, byte(place)) from error
    except FormatError as error:
        raise damage(str(error), byte(unpacker.tell())) from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise damage(f"broken MessagePack: {_trouble(error)}", byte(unpacker.tell())) from error
    if unpacker.tell() != len(data):
        raise damage("there are more bytes after the document", byte(unpacker.tell()))
    return found


def _trouble(error: Exception) -> str:
    """Return the meaning of an error of the package msgpack."""
    import msgpack

    if "exceeds max_" in str(error):
        return _PAST_THE_END
    if isinstance(error, (msgpack.StackError, RecursionError)):
        return _TOO_DEEP
    if isinstance(error, msgpack.FormatError) or "type header" in str(error):
        return "no value starts with this byte"
    return "a key is not a text" if "map key" in str(error) else summarize_error(error) or "invalid value"


def _refuse_extension(code: int, _: bytes) -> NoReturn:
    raise FormatError(f"extension type {code} has no place in a GIR document")
