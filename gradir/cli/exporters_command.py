"""``gradir exporters``: the formats there are, and their options."""

from __future__ import annotations

import argparse

from gradir.cli.options_help import option_lines
from gradir.errors import ExportError

__all__ = ["register"]


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "exporters",
        help="list the exporters and their options",
        description="List every installed exporter with the options that 'gradir export -O KEY=VALUE' takes.",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:  # noqa: ARG001
    """Print the list."""
    import inspect

    from gradir import files, registry

    lines: list[str] = []
    broken: ExportError | None = None
    for name in registry.exporter_names():
        try:
            exporter = registry.exporter(name)
        except ExportError as error:
            broken = error
            continue
        summary = (inspect.getdoc(type(exporter)) or "").partition("\n")[0]
        lines.append(f"{name}  ({exporter.suffix})  {summary}\n")
        lines += [f"    {line}\n" for line in option_lines(exporter.options)]
    files.write_bytes("-", "".join(lines).encode())
    if broken is not None:
        raise broken
    return 0
