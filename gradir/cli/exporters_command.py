"""``gradir exporters``: list the formats and their options."""

from __future__ import annotations

import argparse

from gradir import files, registry
from gradir.cli.plugin_options import describe_options
from gradir.cli.report import report
from gradir.errors import ExportError
from gradir.ir.text import escape_unprintable
from gradir.pictures import PICTURES

DESCRIPTION = "List the installed exporters; with NAME, the options that -O KEY=VALUE takes."
EXAMPLES = ("gradir exporters", "gradir exporters mermaid")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="list their options")


def run(options: argparse.Namespace) -> int:
    lines: list[str] = []
    broken: list[str] = []
    for name in options.names or registry.exporter_names():
        try:
            described = _describe(name)
        except ExportError as error:
            broken.append(str(error))
            continue
        lines += described if options.names else described[:1]
    if not options.names:
        lines.append(f"{', '.join(PICTURES)}  pictures, which take the options of dot; pdf needs Graphviz")
        lines += ["", "'gradir exporters NAME' lists the options of one."]
    files.write_bytes("-", "".join(f"{escape_unprintable(line)}\n" for line in lines).encode())
    for problem in broken:
        report(problem)
    return 2 if broken else 0


def _describe(name: str) -> list[str]:
    import inspect

    exporter = registry.exporter(name)
    try:
        options = describe_options(exporter.options)
    except Exception as error:
        raise ExportError(
            f"exporter {name!r}: its options cannot be listed: {type(error).__name__}: {error}"
        ) from error
    summary = (inspect.getdoc(type(exporter)) or "").partition("\n")[0]
    return [f"{name}  ({exporter.suffix})  {summary}", *(f"    {line}" for line in options)]
