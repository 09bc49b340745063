"""What ``git log -p`` shows of a history of real edits is not longer than without gradir."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from git_places import Run, runner
from tools import needs

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.ir import Graph  # noqa: E402

pytest_plugins = ["git_fixtures"]
pytestmark = needs("git")

SOURCE = Path(__file__).parents[1] / "examples" / "gpt.py"
RESIDUAL = "        x = x + self.attn(self.ln_1(x))\n        return x + self.mlp(self.ln_2(x))\n"

EDITS: tuple[tuple[str, str], ...] = (
    ("layers: int = 12", "layers: int = 6"),
    ('nn.GELU(approximate="tanh")', "nn.GELU()"),
    ("self.ln_f = nn.LayerNorm(config.width)", "self.ln_f = nn.LayerNorm(config.width, eps=1e-6)"),
    ("        self.c_fc = ", "        self.drop = nn.Dropout(0.1)\n        self.c_fc = "),
    ("self.c_proj(self.act(self.c_fc(x)))", "self.drop(self.c_proj(self.act(self.c_fc(x))))"),
    ("nn.Dropout(0.1)", "nn.Dropout(0.2)"),
    ("layers: int = 6", "layers: int = 7"),
    (RESIDUAL, RESIDUAL.replace("self.attn(self.ln_1(x))", "self.ln_1(self.attn(x))")),
    ("self.ln_1(self.attn(x))", "self.attn(self.ln_1(x))"),
    ("self.c_attn = nn.Linear(config.width, 3 * config.width)", "self.qkv = nn.Linear(config.width, 3 * config.width)"),
    ("self.c_attn(x)", "self.qkv(x)"),
    ("        return self.lm_head(self.ln_f(x))", "        x = self.ln_f(x)\n        return self.lm_head(x)"),
    ("4 * config.width", "3 * config.width"),
    ("torch.randint(config.vocabulary, (2,", "torch.randint(config.vocabulary, (4,"),
    ("nn.GELU()", "nn.SiLU()"),
    (
        "        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)\n"
        "        weights = scores.masked_fill(self.future[:length, :length], -math.inf).softmax(dim=-1)\n"
        "        return self.c_proj((weights @ value).transpose(1, 2)",
        "        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)\n"
        "        return self.c_proj(mixed.transpose(1, 2)",
    ),
    ("width: int = 8", "width: int = 16"),
    ("heads: int = 2", "heads: int = 4"),
    ("bias=False)\n        self.lm_head.weight = self.wte.weight", "bias=False)"),
    ("            x = block(x)\n", "            x = block(x)\n        x = x * 0.5\n"),
    ("self.h = nn", "self.blocks = nn"),
    ("x + self.mlp(self.ln_2(x))", "x + self.mlp(self.ln_2(x.detach()))"),
    ("self.ln_2(x.detach())", "self.ln_2(x)"),
    ("nn.LayerNorm(config.width)", "nn.RMSNorm(config.width)"),
    ("context: int = 16", "context: int = 12"),
    ("layers: int = 7", "layers: int = 6"),
    ('"""A language model', '"""A small\nlanguage model'),
)
"""Texts in place of others. Where half of an edit would not run, its other half is the next."""


def versions(*, sources: bool = False) -> Iterator[Graph]:
    """The graph of each version that runs."""
    text = SOURCE.read_text(encoding="utf-8")
    for before, after in (("", ""), *EDITS):
        assert before in text, before
        text = text.replace(before, after)
        if "self.h:" in text and "self.blocks = nn" in text:
            text = text.replace("self.h:", "self.blocks:")
        module = ModuleType("gpt_history_version")
        sys.modules[module.__name__] = module
        exec(compile(text, "gpt.py", "exec"), module.__dict__)
        torch.manual_seed(0)
        model = module.GPT()
        try:
            with gradir.record(model, sources=sources) as recorder:
                loss = module.training_loss(model)
        except AttributeError:
            continue
        yield recorder.capture(loss)


LOG = ("git", "log", "-p", "--format=%s")


@pytest.fixture
def history(tmp_path: Path, environment: dict[str, str]) -> Run:
    """A repository with a commit for each edit."""
    root = tmp_path / "history"
    root.mkdir()
    run = runner(root, environment)
    run("git", "init", "-q")
    for number, graph in enumerate(versions(sources=True)):
        gradir.save(graph, root / "gpt.gir")
        run("git", "add", "gpt.gir")
        run("git", "commit", "-q", "--allow-empty", "-m", f"edit {number}")
    assert len(EDITS) - 3 < number
    return run


def test_a_log_is_not_longer_than_without_the_driver(history: Run) -> None:
    raw = history(*LOG).splitlines()
    history("gradir", "git", "install")
    shown = history(*LOG).splitlines()
    assert len(shown) < len(raw)
    # Nor is it wider.
    assert sum(map(len, shown)) < 0.6 * sum(map(len, raw))
    # What the lines come to is told by the diff of the graphs.
    brief = history("git", "-c", "diff.gradir.command=gradir git diff", *LOG[1:], "--ext-diff").splitlines()
    assert len(brief) < 0.25 * len(raw)
    assert "  ~ 14 modules blocks.{0..6}.{ln_1,ln_2}  each " in "\n".join(brief)
    # The last edit moved lines of the program, and no more.
    last = "git", "log", "-p", "-1", "--format="
    assert '"source":' in "".join(raw[:30])
    assert "@@" not in history(*last)
