"""What is in a folder."""

from __future__ import annotations

from pathlib import Path

__all__ = ["names"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
