"""The options of an exporter, as a help text lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradir.protocols import Options

__all__ = ["option_lines"]


def option_lines(kind: type[Options]) -> list[str]:
    """One line for each option: what it takes, what it does, its default."""
    from gradir.options import option_infos

    lines = []
    for name, takes, help_text, default in option_infos(kind):
        about = "required" if default is None else f"default: {default}"
        lines.append(f"{name}={takes}  {f'{help_text} ({about})'.lstrip()}")
    return lines
