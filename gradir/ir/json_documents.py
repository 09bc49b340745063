"""Read and write the JSON documents of one record with a head: diffs, overlays and accounts of ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import msgspec

from gradir.errors import FormatError, warn
from gradir.ir.jsontext import TOO_DEEP, is_too_deep, printable_json
from gradir.ir.text import excerpt, said
from gradir.ir.unknown import converted

T = TypeVar("T")
# gradir reads every minor version of these documents.
READABLE: Final = re.compile(r"1\.(0|[1-9][0-9]{0,5})")


class DocumentKind(NamedTuple):
    """A kind of document: its name, its key in the head, and the command that writes one."""

    noun: str
    format: str
    version: str
    command: str

    def encode(self, record: msgspec.Struct) -> bytes:
        """Return the bytes of a record, without control characters."""
        try:
            body = msgspec.json.encode({"format": self.format, "version": self.version, **msgspec.to_builtins(record)})
        except (UnicodeEncodeError, OverflowError) as error:
            raise FormatError(f"the {self.noun} holds what JSON cannot spell: {error}") from error
        return printable_json(msgspec.json.format(body, indent=2)).encode() + b"\n"

    def decode(self, data: bytes, kind: type[T], complete: Callable[[T], T]) -> T:
        """Return the record in a document, after ``complete`` finishes or refuses it."""
        if is_too_deep(data):
            raise FormatError(TOO_DEEP)
        try:
            document = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FormatError(f"broken JSON: {said(error)}") from error
        if not isinstance(document, dict) or document.get("format") != self.format:
            article = "an" if self.noun[0] in "aeiou" else "a"
            raise FormatError(
                f'not {article} {self.noun}: its head has no "format": "{self.format}"; {self.command} writes one'
            )
        version = document.get("version")
        if not isinstance(version, str) or not READABLE.fullmatch(version):
            raise FormatError(f"the {self.noun} has version {excerpt(version)}; this gradir reads {self.version}")
        # The records have no fields for the head, which only the file needs.
        del document["format"], document["version"]
        try:
            record, surplus = converted(document, kind)
            record = complete(record)
        except (msgspec.ValidationError, RecursionError) as error:
            raise FormatError(f"broken {self.noun}: {said(error)}") from error
        if version != self.version:
            newer = f"the {self.noun} has version {version}, newer than {self.version}"
            warn(f"{newer}; what this gradir does not know in it is ignored")
        elif surplus is not None:
            warn(f"the {self.noun} has what this gradir does not know, which is ignored: {said(surplus)}")
        return record
