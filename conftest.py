"""What pytest needs to know of the whole project: which doctests want a framework."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

_ABSENT = [name for name in ("jax", "torch") if not find_spec(name)]
_OWN = {"jax": "gradir/frontends/jax", "torch": "gradir/frontends/pytorch"}
collect_ignore = [_OWN[name] for name in _ABSENT]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the examples that import a framework that is not there."""
    for item in items:
        examples = item.dtest.examples if isinstance(item, pytest.DoctestItem) and item.dtest else []
        for name in _ABSENT:
            if any(example.source.startswith(f"import {name}") for example in examples):
                item.add_marker(pytest.mark.skip(reason=f"its example needs {name}"))
