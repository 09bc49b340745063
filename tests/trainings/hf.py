import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = GPT2Config(
    n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8, bos_token_id=1, eos_token_id=1, pad_token_id=1
)
item = {"input_ids": torch.arange(8), "labels": torch.arange(8)}
arguments = TrainingArguments(
    output_dir="out",
    max_steps=2,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=[item] * 8).train()
print("trained")
