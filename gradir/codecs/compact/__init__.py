"""The compact form: MessagePack, in tables of columns over a table of strings and tables of kinds of records.

`layout` finds in the declarations what is a column, `columns` packs the integers of one; `encode` and `decode` are the
two directions. `reader` takes a document apart into `tables`, `bounds` refuses what is out of proportion, and `survey`
counts without making a graph.
"""

from __future__ import annotations

from gradir.codecs.compact.decode import decode
from gradir.codecs.compact.encode import encode
from gradir.codecs.compact.survey import survey

__all__ = ["decode", "encode", "survey"]
