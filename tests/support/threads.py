"""Calls in threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def call_in_thread(call: Callable[[], Any]) -> Any:
    """What a call returns in a thread of its own, in which torch numbers nodes from 0."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()
