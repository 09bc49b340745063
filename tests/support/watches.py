"""Watches as trainings make them, with numbers that are the same in every run."""

from __future__ import annotations

import math
from random import Random

from gradir.explanations.model import Cause, Excerpt
from gradir.ir import Source
from gradir.watches.model import Finding, Number, Step, Watch

LINE = "    loss = criterion(model(images).log(), labels)"
NAN = Finding(
    357,
    Cause(
        "loss_not_finite",
        "error",
        source=Source("train.py", 42, "train"),
        excerpt=Excerpt(LINE, LINE.index("model"), LINE.index(", labels")),
    ),
    "by running step 357 once more",
)
BLOCK = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")


def transformer(layers: int) -> tuple[str, ...]:
    blocks = (f"transformer.h.{layer}.{name}" for layer in range(layers) for name in BLOCK)
    return ("transformer.wte", "transformer.wpe", *blocks, "transformer.ln_f", "lm_head")


def training(
    count: int, modules: tuple[str, ...], *, broken: int = 0, factor: float = 1.0, leak: int = 0, seed: int = 0
) -> Watch:
    """A training with a warm-up, of which ``broken`` is the first step with NaN.

    ``factor`` is what the gradient loses from a module to the one before it, and ``leak`` the bytes that stay a step.
    """
    random = Random(seed)
    own = [math.exp(random.gauss(0, 0.8)) * factor ** (len(modules) - place) for place in range(len(modules))]
    steps = []
    for number in range(1, count + 1):
        warm = min(1.0, number / 40)
        fall = 0.15 + 0.85 * math.exp(-number / 120)
        is_broken = 0 < broken <= number
        norms: list[Number | None] = [
            "nan" if is_broken else each * fall * math.exp(random.gauss(0, 0.25)) for each in own
        ]
        ratios: list[Number | None] = [
            "nan" if is_broken else 2e-3 * warm * (0.3 + 0.7 * fall) * math.exp(random.gauss(0, 0.3)) for _ in own
        ]
        spread: Number = "nan" if is_broken else math.sqrt(sum((each * fall) ** 2 for each in own))
        loss: Number = "nan" if is_broken else 1.1 + 6.2 * math.exp(-number / 90) + random.gauss(0, 0.06)
        norm = spread if isinstance(spread, str) else spread * math.exp(random.gauss(0, 0.2))
        memory = 3_200_000_000 + 40_000_000 * (number > 1) + leak * number
        kept = 1800 * number if leak and number % 10 == 1 else None
        steps.append(Step(number, number, loss, norm, memory, kept, tuple(norms), tuple(ratios)))
    return Watch(modules, tuple(steps), count=count)
