"""The table of JAX models in docs/verification-jax.txt, which this file rewrites when it runs as a program."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import jax
import jax_oracle
import jax_told
from jax_models import MODELS
from jax_models.plain import BILLIONS, llama

import gradir

__all__ = ["PAGE", "Row", "format_row", "table", "update", "versions"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verification-jax.txt"


class Row(NamedTuple):
    """What a graph says of a model, what JAX says, and how often `gradir.verify` finds that they differ."""

    model: str
    nodes: int
    leaves: int
    reached: int
    moved: int | None
    held: int
    kept: int
    mismatches: int


def check_models() -> list[Row]:
    """A row for each model of the tests."""
    return [_row(name, *model.make(), has_aux=model.has_aux) for name, model in MODELS.items()]


def check_billions() -> list[Row]:
    """A row for each form of a LLaMA of 7 billion parameters, whose backward is traced and not run."""
    rows = []
    for scanned in (False, True):
        for checkpointed in (False, True):
            form = f"{'scanned' if scanned else 'unrolled'}{' and checkpointed' * checkpointed}"
            fn, args = llama(BILLIONS, scanned=scanned, checkpointed=checkpointed)
            rows.append(_row(f"LLaMA 7B {form}", fn, args, runs=False))
    return rows


def _row(name: str, fn: object, args: tuple[object, ...], *, has_aux: bool = False, runs: bool = True) -> Row:
    graph = gradir.capture(fn, *args, has_aux=has_aux)
    question = jax_oracle.make_question(fn, args, has_aux=has_aux)
    reached = set(jax_told.names(graph, "parameter").split())
    moved = jax_oracle.find_moved(question) if runs else None
    held, kept = jax_told.sum_held_bytes(graph), jax_oracle.residual_bytes(question)
    wrong = [*gradir.verify(fn, *args, has_aux=has_aux).mismatches] if runs else []
    wrong += reached ^ (moved if moved is not None else set(question.names))
    wrong += ["bytes"] if held != kept else []
    count = None if moved is None else len(moved)
    return Row(name, len(graph.nodes), len(question.names), len(reached), count, held, kept, len(wrong))


def format_row(row: Row) -> str:
    """A line of the table."""
    moved = "traced" if row.moved is None else f"{row.moved}"
    cells = [row.model, row.nodes, row.leaves, row.reached, moved, f"{row.held:,}", f"{row.kept:,}", row.mismatches]
    return f"| {' | '.join(map(str, cells))} |"


def versions() -> str:
    """The releases that the table is of."""
    return f"jax {jax.__version__}, flax {version('flax')} and equinox {version('equinox')}"


def table(rows: list[Row]) -> str:
    """The table, in Markdown."""
    heads = ["model", "nodes", "leaves", "in the graph", "moved", "held bytes", "JAX keeps", "mismatches"]
    return "\n".join([f"| {' | '.join(heads)} |", f"|---{'|--:' * (len(heads) - 1)}|", *map(format_row, rows)])


def update(page: Path, rows: list[Row]) -> None:
    """Write the table of now below the versions that it is of."""
    page.write_text(f"With {versions()}, on a CPU:\n\n{table(rows)}\n", encoding="utf-8")


if __name__ == "__main__":
    update(PAGE, [*check_models(), *check_billions()])
