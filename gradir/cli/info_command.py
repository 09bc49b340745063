"""``gradir info``: what is in a ``.gir`` file."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradir.ir import Cut, Graph

__all__ = ["register"]

_MOST_CUTS = 20


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "info",
        help="say what a .gir file holds",
        description="Print what made a .gir file, its counts, and the parameters that gradient does not reach.",
    )
    parser.add_argument("file", metavar="FILE", help="a .gir file; '-' is stdin")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load and describe."""
    from gradir import api, files

    files.write_bytes("-", describe(api.load(options.file)).encode())
    return 0


def describe(graph: Graph) -> str:
    """The lines that ``gradir info`` prints."""
    from gradir.ir.text import printable, tensor_text
    from gradir.ir.totals import totals

    counts = totals(graph)
    producer = graph.producer
    roles = Counter(node.role for node in graph.nodes.values())
    ops = Counter(node.op for node in graph.nodes.values() if node.role == "function")
    common = sorted(ops.items(), key=lambda item: (-item[1], item[0]))[:8]
    rows = [
        ("made by", f"gradir {producer.gradir} from {producer.framework} {producer.framework_version}"),
        ("nodes", f"{counts.nodes:,} ({', '.join(f'{count:,} {role}' for role, count in sorted(roles.items()))})"),
        ("edges", f"{counts.edges:,}"),
        (
            "operations",
            ", ".join(f"{count:,} {op}" for op, count in common) + (", …" if len(ops) > len(common) else ""),
        ),
        ("modules", f"{len(graph.scopes):,}"),
        ("parameters", f"{counts.parameters:,} elements"),
        ("saved for backward", f"{counts.saved_bytes:,} bytes"),
        ("outputs", ", ".join(f"{node.id} {', '.join(map(tensor_text, node.outputs))}" for node in graph.outputs)),
    ]
    rows += [(cut.kind, _cut_text(cut)) for cut in graph.cuts[:_MOST_CUTS]]
    if len(graph.cuts) > _MOST_CUTS:
        rows.append(("", f"… and {len(graph.cuts) - _MOST_CUTS:,} more parameters without gradient"))
    return "".join(f"{printable(name):<20}{printable(text)}\n" for name, text in rows)


def _cut_text(cut: Cut) -> str:
    from gradir.ir.text import tensor_text

    names = ", ".join(cut.names)
    return names if cut.tensor is None else f"{names} {tensor_text(cut.tensor)}"
