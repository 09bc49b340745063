"""Watches as trainings make them, with numbers that are the same in every run."""

from __future__ import annotations

import math
from random import Random

from hostile_texts import any_text
from hypothesis import strategies as st

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
    {"epoch": 2, "batch": 116},
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


_words = st.sampled_from(["nan", "inf", "-inf"])
_floats = st.floats(allow_nan=False, allow_infinity=False)
_numbers: st.SearchStrategy[Number | None] = st.one_of(st.none(), _words, _floats, st.just(0.0))
_rows = st.lists(_numbers, max_size=4).map(tuple)
_counts = st.integers(0, 2**62)
_steps = st.builds(
    Step, st.integers(1, 10**9), _counts, _numbers, _numbers, _counts, st.one_of(st.none(), _counts), _rows, _rows
)


def watches(texts: st.SearchStrategy[str] = any_text) -> st.SearchStrategy[Watch]:
    """Any watch, with steps that have fewer or more numbers than there are modules."""
    source = st.one_of(st.none(), st.builds(Source, texts, st.integers(0, 99), texts))
    cause = st.builds(
        Cause,
        st.one_of(st.sampled_from(["loss_not_finite", "lr_zero", "kept_graphs"]), texts),
        st.sampled_from(["error", "info", "note", "none"]),
        texts,
        st.lists(texts, max_size=3).map(tuple),
        source,
        detail=texts,
        excerpt=st.one_of(st.none(), st.builds(Excerpt, texts, st.integers(0, 20), st.integers(0, 20))),
    )
    loops = st.dictionaries(texts, st.integers(-(2**62), 2**62), max_size=2)
    finding = st.builds(Finding, st.integers(0, 10**9), cause, texts, loops)
    return st.builds(
        Watch,
        st.lists(texts, max_size=3).map(tuple),
        st.lists(_steps, max_size=6, unique_by=_number).map(lambda steps: tuple(sorted(steps, key=_number))),
        st.lists(finding, max_size=3).map(tuple),
        _counts,
        texts,
    )


def _number(step: Step) -> int:
    return step.number


def watch_of(text: str) -> Watch:
    """A watch with the text wherever a watch can have one."""
    place = Source(text, 3, text)
    cause = Cause("kept_graphs", "error", text, (text, text), place, place, text, Excerpt(text, 0, 3))
    steps = (Step(1, 1, 0.5, 1.0, 10, 3, (1.0, "nan"), (None, 0.1)), Step(2, 2, "nan", "inf", 20, 4, (0.5, 0.0)))
    return Watch(
        (text, f"{text}.fc"),
        steps,
        (Finding(2, cause, text, {text: 1}), Finding(1, Cause(text, "note", text))),
        2,
        text,
    )
