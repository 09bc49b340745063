"""Shows on a terminal how far a command is that takes long; the bar is gone when it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from threading import Event

    from gradir.progress import Stage

# Seconds; to draw takes some milliseconds.
_AFTER: Final = 1.0
_EVERY: Final = 0.5


def is_wanted() -> bool:
    """Return whether standard error is a terminal that can redraw a line."""
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    # https://no-color.org
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@contextmanager
def progress_shown() -> Iterator[None]:
    """Show what is done inside, if it takes longer than a second."""
    from threading import Event, Thread

    from gradir.progress import watched

    ended = Event()
    with watched() as stages:
        showing = Thread(target=_show, args=(stages, ended), name="gradir progress", daemon=True)
        showing.start()
        try:
            yield
        finally:
            ended.set()
            showing.join()


def _show(stages: Sequence[Stage], ended: Event) -> None:
    started = monotonic()
    if ended.wait(_AFTER):
        return
    # What a program of the user's prints while it runs is not to meet a bar: it is there in stages alone.
    while not stages:
        if ended.wait(_EVERY):
            return
    # To import rich takes a tenth of a second.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from gradir.progress import Stage

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[said]}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=None, said="")
        while True:
            # Another thread enters and leaves stages meanwhile; the innermost is the last.
            found = [*stages]
            what, total, count = found[-1] if found else Stage("")
            done = min(count(), total) if total else count()
            seconds = int(monotonic() - started)
            words = [f"{done:,} of {total:,}" if total else f"{done:,}" if done else "", f"{seconds} s"]
            bar.update(task, description=what, total=total or None, completed=done, visible=bool(what))
            bar.update(task, said=" ".join(filter(None, words)), refresh=True)
            if ended.wait(_EVERY):
                return
