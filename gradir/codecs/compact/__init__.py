"""The compact form: MessagePack, laid out in columns over a table of strings and a table of kinds of nodes.

`layout` says what is where, `columns` how a column of integers is packed, `strings` numbers texts; `encode` and
`decode` are the two directions. `reader` takes a document apart, `keys` puts ids together again, and
`survey` counts without making a graph.
"""

from __future__ import annotations

from gradir.codecs.compact.decode import decode
from gradir.codecs.compact.encode import encode


__all__ = ["decode", "encode"]
