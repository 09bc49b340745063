"""The options of an exporter, as a help text lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradir.protocols import Options

__all__ = ["option_lines"]


def option_lines(kind: type[Options]) -> list[str]:
    """One line for each option: what it takes, what it does, its default."""
    import msgspec

    from gradir import registry

    lines = []
    for field in msgspec.structs.fields(kind):
        default = msgspec.json.encode(field.default).decode().strip('"')
        help_text = msgspec.json.schema(field.type).get("description", "")
        choices = registry.option_choices(kind, field.name)
        lines.append(f"{field.encode_name}={choices}  {help_text} (default: {default})")
    return lines
