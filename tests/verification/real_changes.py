"""Edits that people make to models, each as the graph before it and the graph after it.

The models are those of transformers, of the examples and a small one, tiny, in train mode, seeded; nothing is
downloaded. Run as a program, this file rewrites the generated parts of docs/reviewing.md.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from edited_gpt import capture_edit
from example_files import attribute
from real_models import GPT2, TEXT, VOCABULARY, from_transformers, versions
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import gradir
from gradir.cli import main
from gradir.ir import Graph
from gradir.markdown import fence_code, replace_block

__all__ = ["CHANGES", "PAGE", "Pair", "blocks", "pair", "update"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reviewing.md"

Pair = tuple[Graph, Graph]


def _record(model: nn.Module, loss: Callable[[], Tensor]) -> Graph:
    with gradir.record(model) as recorder:
        value = loss()
    return recorder.capture(value)


def _language(class_name: str, config_name: str, config: dict[str, Any], prepare: Callable[[Any], None]) -> Graph:
    torch.manual_seed(0)
    model = from_transformers(class_name, config_name, config)
    prepare(model)
    tokens = torch.randint(5, VOCABULARY, (2, 7))
    return _record(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def _as_it_is(model: nn.Module) -> None:
    """No edit."""


def _bert(layers: int) -> Graph:
    return _language("BertForMaskedLM", "BertConfig", {**TEXT, "num_hidden_layers": layers}, _as_it_is)


def _gpt2(prepare: Callable[[Any], None] = _as_it_is, **config: Any) -> Graph:
    return _language("GPT2LMHeadModel", "GPT2Config", {**GPT2, **config}, prepare)


def _llama(key_value_heads: int) -> Graph:
    config = {**TEXT, "num_key_value_heads": key_value_heads}
    return _language("LlamaForCausalLM", "LlamaConfig", config, _as_it_is)


def _set_checkpointing(model: Any, *, reentrant: bool) -> None:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})


def _resnet(edit: Callable[[nn.Module], None]) -> Graph:
    torch.manual_seed(0)
    model = attribute("resnet.py:ResNet")()
    edit(model)
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([3, 7])
    return _record(model, lambda: F.cross_entropy(model(images), labels))


def _group_norms(model: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, nn.GroupNorm(2, child.num_features))


class Layer(nn.Module):
    """A residual step; ``detached`` is the edit by accident."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self._detached = detached

    def forward(self, x: Tensor) -> Tensor:
        step = self.down(F.gelu(self.up(self.norm(x))))
        return x + (step.detach() if self._detached else step)


class Classifier(nn.Module):
    """Three layers below a name of choice, and a head."""

    def __init__(self, stack: str = "encoder", detached: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, 8)
        self.add_module(stack, nn.Sequential(*(Layer(number == detached) for number in range(3))))
        self.head = nn.Linear(8, 3)
        self._stack = stack

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.get_submodule(self._stack)(self.embedding(x)))


def _classifier(**options: Any) -> Graph:
    torch.manual_seed(0)
    model = Classifier(**options)
    x, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    return _record(model, lambda: F.cross_entropy(model(x), labels))


def _edit_six_blocks(edit: str) -> Callable[[], Pair]:
    return lambda: (capture_edit("none"), capture_edit(edit))


CHANGES: dict[str, Callable[[], Pair]] = {
    "one-more-layer": lambda: (_bert(2), _bert(3)),
    "dropout-removed": lambda: (_gpt2(), _gpt2(resid_pdrop=0.0)),
    "fewer-key-value-heads": lambda: (_llama(2), _llama(1)),
    "batch-norm-to-group-norm": lambda: (_resnet(_as_it_is), _resnet(_group_norms)),
    "rename": lambda: (_classifier(), _classifier(stack="blocks")),
    "detach-by-accident": lambda: (_classifier(), _classifier(detached=1)),
    "checkpointing": lambda: (_gpt2(), _gpt2(partial(_set_checkpointing, reentrant=False))),
    "checkpointing-reentrant": lambda: (_gpt2(), _gpt2(partial(_set_checkpointing, reentrant=True))),
    **{
        name: _edit_six_blocks(edit)
        for name, edit in {
            "halves-exchanged": "swapped",
            "residual-detached": "detached-residual",
            "value-detached": "detached-value",
            "another-eps": "eps",
            "another-dropout": "dropout",
            "one-module-wrapped": "wrapped-one",
            "fused-attention": "sdpa",
            "another-reduction": "reduction",
            "tied-weights": "tied",
            "autocast": "autocast",
            "another-dtype": "dtype",
            "another-length": "length",
            "another-batch": "batch",
            "another-width": "width",
            "adapters": "lora",
            "adapters-and-autocast": "lora-autocast",
            "another-norm": "norm",
        }.items()
    },
}
"""Functions that make both graphs, by the name of the edit."""


@cache
def pair(name: str) -> Pair:
    """Both graphs of an edit; made once."""
    return CHANGES[name]()


_SHOWN = "detach-by-accident"
_LONGEST = 160
_LISTED = (
    *("one-more-layer", "rename", "dropout-removed", "checkpointing", "residual-detached"),
    *("another-eps", "autocast", "another-batch"),
)


def blocks() -> Iterator[tuple[str, str]]:
    """Every generated part of the page, with its marker."""
    yield "versions", f"With {versions()}:\n"
    with tempfile.TemporaryDirectory() as folder:
        for name in CHANGES:
            for side, graph in zip("ab", pair(name), strict=True):
                graph.save(Path(folder) / f"{name}.{side}.gir")
        yield "edits", _edits(Path(folder))
        yield _SHOWN, fence_code(f"$ gradir diff a.gir b.gir\n{_diff(Path(folder), _SHOWN)}", "text")


def update(page: str) -> str:
    """The page with its generated parts as they are now."""
    for marker, block in blocks():
        page = replace_block(page, marker, block)
    return page


def _diff(folder: Path, name: str, *options: str) -> str:
    """Return the standard output of the command."""
    output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        status = main(["diff", *options, *(str(folder / f"{name}.{side}.gir") for side in "ab")])
    assert (status, errors.getvalue()) == (1, "")
    output.flush()
    output.seek(0)
    return output.read()


def _edits(folder: Path) -> str:
    rows = ["| Edit | Report | Lines | `--full` |", "|---|---|--:|--:|"]
    for name in _LISTED:
        brief, full = _diff(folder, name).splitlines(), _diff(folder, name, "--full").splitlines()
        # Counts alone say less than the lines below them.
        said = [brief[0]] if brief[0][-1] == "." else [line.strip() for line in brief if line and line[0] != "("][1:3]
        cells = "<br>".join(f"`{line if len(line) <= _LONGEST else line[:_LONGEST] + ' …'}`" for line in said)
        rows.append(f"| {name} | {cells} | {len(brief)} | {len(full)} |")
    return "\n".join([*rows, ""])


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
