"""Read a document of either encoding: as gradir writes it, with unknown keys, of an older version, or broken."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from gradir.codecs.document import Document, check_head, to_graph
from gradir.codecs.faults import broken, mismatched, placed
from gradir.codecs.forms import JSON, UNREADABLE, Form
from gradir.codecs.versions import Version, needs_steps, upgrade
from gradir.gcpause import paused_gc
from gradir.ir import Graph
from gradir.ir.unknown import converted, tolerant

if TYPE_CHECKING:
    from gradir.codecs.surveyor import Survey

__all__ = ["read_graph", "read_survey"]


def read_graph(form: Form, data: bytes) -> Graph:
    """Return the graph in a document.

    Raises:
        FormatError: the bytes are not in this encoding, not GIR, of a version that cannot be read, or break a rule of
            the IR.

    >>> list(read_graph(JSON, b'{"format":"gir","version":"1.0","nodes":[{"id":"x"}]}').nodes)
    ['x']
    """
    with paused_gc():
        document, version, surplus = _document(form, data)
        unknown = "" if surplus is None else placed(*mismatched(surplus))
        return to_graph(document, version, unknown=unknown)


def read_survey(form: Form, data: bytes) -> Survey:
    """Return the head and the counts of a document, without making its graph.

    Raises:
        FormatError: see `read_graph`. Errors that only the whole graph shows, such as an id that occurs twice, go
            unnoticed.

    >>> read_survey(JSON, b'{"format":"gir","version":"1.0","nodes":[{"id":"x","role":"leaf"}]}').roles
    {'leaf': 1}
    """
    from gradir.codecs.surveyor import survey_of

    with paused_gc():
        document, version, _ = _document(form, data)
        return survey_of(form.name, version, document)


def _document(form: Form, data: bytes) -> tuple[Document, Version, Exception | None]:
    """The records of a document, the version that it states, and the error about its first unknown key, if any."""
    surplus = None
    try:
        # The records are only as deep as declared, and msgspec refuses a length that the data does not have.
        document: Document = _decoder(form).decode(data)
    except UNREADABLE as error:
        form.guard(data)
        if not isinstance(error, msgspec.ValidationError):
            return _old_document(form, data, error)
        form.inspect(data)
        surplus = error
        try:
            # As bytes, the twins of the records need not be in memory beside the records.
            known = msgspec.msgpack.encode(form.decode(data, type=tolerant(Document)))
            document = msgspec.msgpack.decode(known, type=Document)
        except UNREADABLE as mismatch:
            return _old_document(form, data, mismatch)
    if needs_steps(Version.parse(document.version) or _version_of(document)):
        form.guard(data)
        return _old_document(form, data)
    return document, _version_of(document), surplus


def _old_document(
    form: Form, data: bytes, error: Exception | None = None
) -> tuple[Document, Version, Exception | None]:
    """Read a document that the newest records do not fit: an old one, or a broken one."""
    try:
        plain = form.decode(data)
    except msgspec.ValidationError as strange:
        # A number of any size is JSON, and one that does not fit is read by nobody; who knows the keys names its place.
        raise broken(*mismatched(error if isinstance(error, msgspec.ValidationError) else strange)) from error
    except UNREADABLE as syntax:
        raise form.fault(data, syntax) from error
    version = check_head(plain)
    if error is not None and not needs_steps(version):
        raise broken(*mismatched(error)) from error
    try:
        document, surplus = converted(upgrade(plain, version), Document)
    except msgspec.ValidationError as mismatch:
        problem, place = mismatched(mismatch)
        raise broken(f"after its upgrade from GIR {version}: {problem}", place) from mismatch
    return document, version, surplus


@cache
def _decoder(form: Form) -> Any:
    """The reader of documents as gradir writes them."""
    library = msgspec.json if form == JSON else msgspec.msgpack
    return library.Decoder(Document)


def _version_of(document: Document) -> Version:
    return check_head({"format": document.format, "version": document.version, "requires": document.requires})
