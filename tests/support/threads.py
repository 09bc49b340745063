"""Calls in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_new_thread(call: Callable[[], Any]) -> Any:
    """What a call returns in a thread of its own, in which torch numbers nodes from 0."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]
