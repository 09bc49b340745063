"""What pytest needs to know of the whole project: which doctests want a framework."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = {
    "jax": ["gradir/frontends/jax"],
    "torch": ["gradir/gradients.py", "gradir/frontends/pytorch"],
}
collect_ignore = [path for framework, paths in _NEEDED.items() if not find_spec(framework) for path in paths]
