"""A training loop that is not the user's own, the Trainer of transformers, explained from inside its loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from torch import nn  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

TOKENS = torch.arange(64).reshape(8, 8) % 29


class Explaining(Trainer):
    """Explains every loss before it goes backward."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.found: list[Explanation] = []

    def compute_loss(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with gradir.record(model, flow=True) as rec:
            loss = super().compute_loss(model, *args, **kwargs)
        self.found.append(rec.explain(loss, optimizer=self.optimizer))
        return loss


def gpt() -> nn.Module:
    ends = {"bos_token_id": 0, "eos_token_id": 0, "attn_pdrop": 0.1}
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=29, n_positions=8, **ends))


def bert() -> nn.Module:
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertForSequenceClassification(BertConfig(vocab_size=29, max_position_embeddings=8, **sizes))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.extra = gpt(), nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        result = self.body(input_ids, labels=labels, output_hidden_states=True)
        result["extra"] = self.extra(result.hidden_states[-1])
        return result


def trained(kind: type[Trainer], model: nn.Module, folder: Path, **options: Any) -> Any:
    """A trainer after two steps."""
    one_label = isinstance(model, BertForSequenceClassification)
    data = [{"input_ids": row, "labels": torch.tensor(int(row[0]) % 2) if one_label else row} for row in TOKENS]
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    arguments = TrainingArguments(
        str(folder), max_steps=2, per_device_train_batch_size=2, use_cpu=True, **quiet, **options
    )
    trainer = kind(model=model, args=arguments, train_dataset=data)
    trainer.train()
    return trainer


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize(
    ("build", "options", "steps"),
    [
        (gpt, {}, 2),
        (bert, {}, 2),
        (gpt, {"gradient_checkpointing": True}, 2),
        (gpt, {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, 2),
        (gpt, {"gradient_accumulation_steps": 2}, 4),
        (bert, {"label_smoothing_factor": 0.1}, 2),
    ],
)
def test_a_trainer_has_no_alarm_and_trains_as_it_would_have(
    build: Any, options: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    explained = trained(Explaining, build(), tmp_path, **options)
    assert [found.level for found in explained.found] == ["none"] * steps
    torch.manual_seed(0)
    alone = trained(Trainer, build(), tmp_path, **options)
    after, right = explained.model.state_dict(), alone.model.state_dict()
    assert all(torch.equal(after[name], right[name]) for name in right)


def test_a_head_that_the_loss_leaves_out_is_unused_in_every_step(tmp_path: Path) -> None:
    for found in trained(Explaining, TwoHeads(), tmp_path).found:
        assert (found.level, [cause.kind for cause in found.causes]) == ("info", ["unused"])
        assert {name for name, status in found.statuses.items() if status != "reached"} == {
            "extra.weight",
            "extra.bias",
        }
