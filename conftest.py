"""What pytest needs to know of the whole project: which doctests want a framework."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["gradir/api.py", "gradir/frontends"]
