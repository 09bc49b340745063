"""What watching a training costs beside the training itself, anomaly mode, and a hook on every module.

Shapes of GPT-2 and ResNet-50 by transformers, with random weights, AdamW and SGD, one thread. Each round runs some
steps of each kind one after the other, so that others on the machine count for all alike. `forward hooks` stands for
what looks at every output of a module, as DebugUnderflowOverflow of transformers does.

python benchmarks/watching.py [--smoke]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

import gradir

sys.path.insert(0, str(Path(__file__).parent))

from measure import is_smoke, table

Training = tuple[nn.Module, Optimizer, Callable[[], torch.Tensor]]

_WARM: Final = 3
_ROUNDS: Final = 3
_STEPS: Final = 13
"""With the first ones 16, among which memory is looked at three times."""


def gpt2(*, small: bool) -> Training:
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, width, length = (2, 64, 32) if small else (12, 768, 64)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=width // 32, vocab_size=5000))
    tokens = torch.randint(0, 5000, (1, length))
    return model, torch.optim.AdamW(model.parameters(), 1e-4), lambda: model(input_ids=tokens, labels=tokens).loss


def resnet50(*, small: bool) -> Training:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(depths=[1, 1, 1, 1]) if small else ResNetConfig()
    model = ResNetForImageClassification(config)
    side = 64 if small else 128
    images, labels = torch.randn(2, 3, side, side), torch.zeros(2, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    return model, optimizer, lambda: model(pixel_values=images, labels=labels).loss


SHAPES: Final = {"GPT-2": gpt2, "ResNet-50": resnet50}


@contextmanager
def watch_outputs(model: nn.Module) -> Iterator[None]:
    """Look at each output of each module for what is not finite."""

    def look(module: nn.Module, inputs: object, output: Any) -> None:  # noqa: ARG001 (torch's signature)
        tensors = output if isinstance(output, tuple) else (output,)
        for each in tensors:
            if isinstance(each, torch.Tensor) and each.is_floating_point():
                each.abs().max().item()

    hooks = [module.register_forward_hook(look) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def step(training: Training) -> float:
    _, optimizer, loss = training
    start = time.perf_counter()
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
    return time.perf_counter() - start


def block(training: Training, count: int, context: AbstractContextManager[object]) -> float:
    """The mean seconds of some steps in a row, without the first ones, which are looked at in full."""
    with context:
        times = [step(training) for _ in range(_WARM + count)]
    return statistics.mean(times[_WARM:])


def costs(training: Training, rounds: int, count: int) -> dict[str, float]:
    """The median seconds of a step of each kind, in blocks of so many."""
    model, optimizer, _ = training
    block(training, 1, nullcontext())
    around: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "the script": nullcontext,
        "watched": lambda: gradir.watch(model, optimizer),
        "anomaly mode": torch.autograd.detect_anomaly,
        "forward hooks": lambda: watch_outputs(model),
    }
    found: dict[str, list[float]] = {name: [] for name in around}
    for _ in range(rounds):
        for name, context in around.items():
            found[name].append(block(training, count, context()))
    return {name: statistics.median(times) for name, times in found.items()}


def peak(name: str, *, watched: bool, small: bool) -> int:
    """The most memory of a process that trains for some steps, in bytes."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import resource, torch, gradir, watching\nfrom contextlib import nullcontext\ntorch.set_num_threads(1)\n"
        f"training = watching.SHAPES[{name!r}](small={small})\n"
        f"with gradir.watch(*training[:2]) if {watched} else nullcontext():\n"
        "    for _ in range(6): watching.step(training)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) * 1024


def main(*, small: bool) -> None:
    torch.set_num_threads(1)
    rows = []
    for name, make in SHAPES.items():
        torch.manual_seed(0)
        found = costs(make(small=small), *((1, 1) if small else (_ROUNDS, _STEPS)))
        base = found["the script"]
        ratios = [f"{found[each] / base:.2f}" for each in ("watched", "anomaly mode", "forward hooks")]
        memory = peak(name, watched=True, small=small) / peak(name, watched=False, small=small)
        rows.append([name, f"{base * 1e3:.0f}", *ratios, f"{memory:.2f}"])
    print(table(["training", "step ms", "watched", "anomaly mode", "forward hooks", "peak memory, watched"], rows))


if __name__ == "__main__":
    main(small=is_smoke(__doc__))
