"""A ``graphviz.Digraph`` that draws without the program ``dot`` too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Final

import graphviz
from graphviz.backend import dot_command

from gradir.pictures import find_program

_DOT: Final = "dot"
# The graphviz package keeps the name of the program in a global, so only one thread at a time may change it.
_LOCK: Final = RLock()


class Digraph(graphviz.Digraph):  # type: ignore[misc]  # graphviz has no types
    """A `graphviz.Digraph` that draws with the program that `gradir.pictures.find_program` returns."""

    def pipe(self, *args: Any, **options: Any) -> Any:
        """Return the picture, or raise ExportError if ``GRADIR_DOT`` names no program, or ExecutableNotFound."""
        with _use_found_program():
            return super().pipe(*args, **options)

    def render(self, *args: Any, **options: Any) -> Any:
        """Write the source and the picture as `graphviz.Digraph.render` does, or raise an error of `pipe`."""
        with _use_found_program():
            return super().render(*args, **options)


@contextmanager
def _use_found_program() -> Iterator[None]:
    # Imported here, so that writing DOT starts faster.
    import shutil

    program = find_program()
    if program is None or program == shutil.which(_DOT):
        yield
        return
    with _LOCK:
        before = dot_command.DOT_BINARY
        # A distribution of the package, or the user, may have set another one.
        if before == Path(_DOT):
            dot_command.DOT_BINARY = Path(program)
        try:
            yield
        finally:
            dot_command.DOT_BINARY = before
