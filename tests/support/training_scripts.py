"""Training scripts that know nothing of gradir."""

from __future__ import annotations

__all__ = ["ENDS", "GAN", "HF", "LIGHTNING", "LOOP", "MODES", "TOLD"]

LOOP = """\
import argparse
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.b(self.a(x).relu())


def train(steps, width):
    torch.manual_seed(0)
    net = Net(width)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.no_grad():
        net(torch.ones(1, 4))
    for step in range(steps):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.zeros(8, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("-o")
    words = parser.parse_args()
    train(words.steps, words.width)
"""
"""A plain loop with arguments."""

LIGHTNING = """\
import torch
from torch import nn


class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.criterion = nn.Sequential(nn.Linear(4, 3)), nn.Linear(3, 4), nn.MSELoss()

    def training_step(self, batch, index):
        return {"loss": self.criterion(self.decoder(self.encoder(batch)), batch), "log": {"index": index}}


class Trainer:
    def fit(self, module, batches):
        self.module = module
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        with torch.no_grad():
            self.module.training_step(batches[0], 0)
        for index, batch in enumerate(batches):

            def closure():
                optimizer.zero_grad()
                self.backward(self.module.training_step(batch, index)["loss"])

            optimizer.step(closure)

    def backward(self, loss):
        torch.autograd.backward(loss)


Trainer().fit(Lit(), [torch.randn(2, 4) for _ in range(4)])
"""
"""A step as Lightning's, which calls the parts of a model, and a closure."""

GAN = """\
import torch
from torch import nn


class G(nn.Linear):
    pass


class D(nn.Linear):
    pass


class Frozen(nn.Linear):
    pass


g, d, frozen = G(2, 3), D(3, 1), Frozen(3, 3)
for _ in range(4):
    with torch.no_grad():
        real = frozen(torch.ones(1, 3))
    d(real).sum().backward()
    fake = g(torch.ones(1, 2))
    d(fake.detach()).sum().backward()
    d(fake).sum().backward()
"""
"""Three backwards a step, the last through what is older than the one before."""

HF = """\
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = GPT2Config(
    n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8, bos_token_id=1, eos_token_id=1, pad_token_id=1
)
item = {"input_ids": torch.arange(8), "labels": torch.arange(8)}
arguments = TrainingArguments(
    output_dir="out", max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, use_cpu=True,
    report_to=[], save_strategy="no", disable_tqdm=True,
)
Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=[item] * 8).train()
print("trained")
"""
"""A Trainer of transformers that accumulates gradients."""

ENDS = """\
import os, sys, threading
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

net = nn.Linear(3, 3)


def loss():
    return net(torch.ones(1, 3)).sum()


def raises():
    net(torch.ones(1, 4))


def leaves():
    sys.exit(7)


def says():
    sys.exit("no config")


def never():
    torch.autograd.grad(loss(), net.weight)


def detached():
    loss().detach().backward()


def late():
    loss().backward()
    raise ValueError("late")


def swallows():
    for _ in range(3):
        try:
            loss().backward()
        except:
            print("swallowed")
    sys.exit(3)


def unclean():
    try:
        loss().backward()
    finally:
        raise ValueError("in the middle")


def thread():
    worker = threading.Thread(target=late)
    worker.start()
    worker.join()


def fork():
    pid = os.fork()
    if not pid:
        loss().backward()
        os._exit(0)
    os.waitpid(pid, 0)


def nested():
    x = torch.ones(1, 3, requires_grad=True)
    checkpoint(net, x, use_reentrant=True).sum().backward()
    loss().sin().backward()


def several():
    torch.autograd.backward(tensor for tensor in [loss(), loss().exp()])


def moves():
    os.chdir("/")
    loss().backward()


globals()[sys.argv[1]]()
"""
"""Many ways for a script to end, by name."""

MODES = """\
import torch
from torch import nn

stack = torch.overrides._get_current_function_mode_stack
net = nn.Linear(3, 1)
torch.set_default_device("cpu")
for _ in range(12):
    with torch.device("cpu"):
        net(torch.ones(2, 3)).sum().backward()
        print(type(stack()[-1]).__name__)
torch.set_default_device("meta")
torch.set_default_device(None)
for _ in range(8):
    net(torch.ones(2, 3)).sum().backward()
print(stack())
"""
"""Function modes of the script's own."""

TOLD = """\
import pickle, sys


class Kept:
    pass


kept = type(pickle.loads(pickle.dumps(Kept()))) is sys.modules["__main__"].Kept
print(sys.argv, __name__, __file__, sys.path[0], kept, __package__, __spec__ and __spec__.name, sys.stdin.read())
"""
"""Prints what a script knows of itself."""
