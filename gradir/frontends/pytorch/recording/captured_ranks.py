"""Share through the store of the process group which ranks were captured and send no more."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from torch import distributed

from gradir.frontends.pytorch import private

_KEY: Final = "gradir/captured"
_PATIENCE: Final = timedelta(seconds=2)


def note_captured() -> None:
    """Tell other ranks that this one sends no more."""
    with suppress(AttributeError, RuntimeError, ValueError):
        _store().set(f"{_KEY}/{distributed.get_rank()}", "")


def are_captured(ranks: Iterable[int]) -> bool:
    """Return whether any of the ranks was captured."""
    with suppress(AttributeError, RuntimeError, ValueError):
        store = _store()
        return any(store.check([f"{_KEY}/{rank}"]) for rank in ranks)
    return False


def _store() -> Any:
    """Return a second connection, since the main thread may wait on the first in C++."""
    known: Any = distributed
    store = getattr(distributed.distributed_c10d, private.STORE)()
    while isinstance(store, known.PrefixStore):
        store = store.underlying_store
    return known.TCPStore(store.host, store.port, timeout=_PATIENCE, wait_for_workers=False)
