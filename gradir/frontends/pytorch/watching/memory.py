"""How many bytes a training holds."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch

_STATUS: Final = Path("/proc/self/statm")


def memory_of(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes that the device of the first tensor has allocated, or on a processor that this process has."""
    device = tensors[0].device if tensors else torch.device("cpu")
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    with suppress(OSError, ValueError, IndexError):
        return int(_STATUS.read_text().split()[1]) * mmap.PAGESIZE
    return 0
