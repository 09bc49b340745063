"""The ``gradir`` command: one module per subcommand."""

from __future__ import annotations

from gradir.cli.main import main

__all__ = ["main"]
