"""Show a progress bar on a terminal while a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from threading import Event

    from gradir.progress import Stage

# In seconds. Drawing takes some milliseconds.
_AFTER: Final = 1.0
_EVERY: Final = 0.5


@contextmanager
def show_progress() -> Iterator[None]:
    """Show the progress of the body if it takes longer than a second."""
    from threading import Event, Thread

    from gradir.progress import watch_stages

    ended = Event()
    with watch_stages() as stages:
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
    # A bar must not mix with the output of the user's program, so it is drawn in stages only.
    while not stages:
        if ended.wait(_EVERY):
            return
    # Importing rich takes a tenth of a second.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from gradir.progress import Stage

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[state]}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=None, state="")
        while True:
            # Another thread enters and leaves stages at the same time; the innermost is the last.
            current = [*stages]
            name, total, count = current[-1] if current else Stage("")
            done = min(count(), total) if total else count()
            seconds = int(monotonic() - started)
            words = [f"{done:,} of {total:,}" if total else f"{done:,}" if done else "", f"{seconds} s"]
            bar.update(task, description=name, total=total or None, completed=done, visible=bool(name))
            bar.update(task, state=" ".join(filter(None, words)), refresh=True)
            if ended.wait(_EVERY):
                return
