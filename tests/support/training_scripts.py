"""Training scripts that know nothing of gradir: files of tests/trainings. In those of JAX, ``CUT`` is what
becomes of the hidden values, and ``TX`` for the optimizer."""

from __future__ import annotations

from pathlib import Path


def script(name: str) -> str:
    """Return the text of a script."""
    return (Path(__file__).parents[1] / "trainings" / f"{name}.py").read_text(encoding="utf-8")


ENDS, GAN, HF, LIGHTNING, LOOP, MODES, TOLD = map(script, ("ends", "gan", "hf", "lightning", "loop", "modes", "told"))
