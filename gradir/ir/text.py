"""Write values, counts and sizes of the IR on one printable line."""

from __future__ import annotations

import re
import reprlib
from typing import Final

from gradir.ir.model import INT64_MAX, AttrValue, NonFinite, Ref, TensorMeta, clamp_size

_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/%~+*@-]*")
_UNITS: Final = ("kB", "MB", "GB", "TB", "PB", "EB")
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def word(text: str) -> str:
    """Return a plain word unchanged, and other text as a JSON string."""
    return text if _WORD.fullmatch(text) else quote(text)


def quote(text: str) -> str:
    r"""Return text as a JSON string of printable characters."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_json_escape, text))}"'


def escape_unprintable(text: str) -> str:
    """Return text on one line, with unprintable characters escaped as in Python, but not reversibly."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def is_unicode(text: str) -> bool:
    """Return whether a file can contain the text, which must have no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ref_text(ref: Ref) -> str:
    """Return ``id``, or ``id[2]`` for output 2."""
    return f"{word(ref.id)}[{ref.output_nr}]" if ref.output_nr else word(ref.id)


def tensor_text(tensor: TensorMeta) -> str:
    """Return a tensor's dtype and sizes, with ``?`` for unknown ones."""
    dtype = "?" if tensor.dtype is None else word(tensor.dtype)
    sizes = "?" if tensor.shape is None else ", ".join(map(size_text, tensor.shape))
    return f"{dtype}[{sizes}]"


def size_text(size: int | str) -> str:
    """Return one size; a symbol that starts with a digit has quotes."""
    if isinstance(size, int):
        return str(size)
    return quote(size) if size[:1].isdigit() else word(size)


def value_text(value: AttrValue) -> str:
    """Return an attribute's value; different values or types have different texts."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, NonFinite):
        return value.float
    if isinstance(value, (int, float)):
        return repr(value)
    return f"[{', '.join(map(value_text, value))}]"


def amount(count: int, *, signed: bool = False) -> str:
    """Return a size or sum in digits, with ``≥`` or ``≤`` if too large to count; ``signed`` adds a plus."""
    sign = "+" if signed else ""
    return f"{_limit_sign(count)}{clamp_size(count):{sign},}"


def number_text(number: float) -> str:
    """Return a number in three digits."""
    return f"{number:.3g}"


def _limit_sign(count: int) -> str:
    return "≥ " if count >= INT64_MAX else "≤ " if count <= -INT64_MAX else ""


def pluralize(count: int, one: str, many: str = "") -> str:
    """Return a number of things; ``many`` is an irregular plural."""
    return f"{amount(count)} {one if count == 1 else many or f'{one}s'}"


def short_bytes(count: int, *, signed: bool = False) -> str:
    """Return a short number of bytes; ``signed`` adds a plus."""
    sign = "+" if signed else ""
    beyond, count = _limit_sign(count), clamp_size(count)
    if abs(count) < 1000:
        return f"{count:{sign}} B"
    size, unit = count / 1000, 0
    while round(abs(size), 1) >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{beyond}{size:{sign}.1f} {_UNITS[unit]}"


def _json_escape(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable():
        return char
    # JSON escapes a character beyond U+FFFF as two UTF-16 units.
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


_QUOTED: Final = 60
_LINE: Final = 300

# Unlike repr, this limits large and deeply nested values.
_BEGINNING: Final = reprlib.Repr()
_BEGINNING.maxlevel = 3
_BEGINNING.maxlist = _BEGINNING.maxdict = _BEGINNING.maxtuple = 20
_BEGINNING.maxstring = _BEGINNING.maxlong = _BEGINNING.maxother = 2 * _QUOTED


def excerpt(value: object) -> str:
    """Return the beginning of a document's value, in quotes."""
    if isinstance(value, str):
        return repr(value[:_QUOTED]) + "…" * (len(value) > _QUOTED)
    return shorten(_BEGINNING.repr(value), _QUOTED)


def summarize_error(error: Exception) -> str:
    r"""Return the message of an error, which may quote a document, on one short line."""
    return shorten(escape_unprintable(" ".join(str(error).split())))


def shorten(text: str, most: int = _LINE) -> str:
    """Replace the middle of a long text by ``…``."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[len(text) - half :]}"
