"""One rank of any number in this process alone: its process groups send nothing, whatever a program asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import distributed

from gradir.errors import CaptureError, SpecError
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.substitution import substituted

__all__ = ["is_standing_in", "standing_in"]

_SAID: Final = ("rank", "world_size")
_ELSEWHERE: Final[Mapping[str, str]] = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "GROUP_RANK": "0"}
"""What a launcher says beside the number of the process, and what nobody connects to."""

_been: Final[list[int]] = []
"""The rank that this process has stood in for: of another mesh torch would take what it remembers of the first."""


@contextmanager
def standing_in(rank: int, world: int) -> Iterator[None]:
    """Let the program inside find itself as one of so many processes, of which the others do not exist.

    A launcher's variables say so, and every process group that it makes is one that sends nothing. It goes with the
    context.

    Raises:
        CaptureError: this torch cannot, there is a process group already, or the program makes none.
    """
    _check(rank)
    try:
        backend, store = private.unsent_backend()
    except (ImportError, AttributeError) as error:
        raise CaptureError(f"--world needs the backend 'fake', which torch {torch.__version__} lacks") from error
    makers = [*private.makers_of_groups()]
    make, make_part = distributed.init_process_group, getattr(distributed.distributed_c10d, private.MAKE_GROUP)

    def init_process_group(*_: Any, **given: Any) -> None:
        for name, said in zip(_SAID, (rank, world), strict=True):
            if given.get(name, -1) not in (-1, None, said):
                raise SpecError(
                    f"the program calls init_process_group with {name}={given[name]}, and --rank {rank} --world "
                    f"{world} says {said}: leave it to the environment"
                )
        known = {name: given[name] for name in ("timeout", "group_name") if name in given}
        make(backend, store=store(), rank=rank, world_size=world, **known)

    def make_group(size: int, number: int, members: Any, _: Any, *rest: Any, **more: Any) -> Any:
        return make_part(size, number, members, backend, *rest, **more)

    local = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    with ExitStack() as entered:
        variables = {name: str(said) for name, said in (*_ELSEWHERE.items(), *local.items())}
        entered.callback(os.environ.update, {name: os.environ[name] for name in variables if name in os.environ})
        for name in variables:
            entered.callback(os.environ.pop, name, None)
        os.environ.update(variables)
        for maker in makers:
            entered.enter_context(substituted(maker, make.__name__, init_process_group))
        entered.enter_context(substituted(distributed.distributed_c10d, private.MAKE_GROUP, make_group))
        entered.callback(_forget)
        _been.append(rank)
        yield
        if not distributed.is_initialized():
            raise CaptureError(
                f"--world {world}: the program has made no process group: it has to call "
                "torch.distributed.init_process_group or init_device_mesh"
            )


def _check(rank: int) -> None:
    """Refuse what cannot be a rank.

    Raises:
        CaptureError: this torch cannot, or this process has a process group or has been another rank.
    """
    if not distributed.is_available():
        raise CaptureError("--world needs a torch built with distributed, and this one is not")
    if _been:
        raise CaptureError(
            f"--rank {rank}: this process has been rank {_been[0]}, and torch remembers its mesh: use another process"
        )
    if distributed.is_initialized():
        raise CaptureError("--world makes a process group of its own, and there is one already: use another process")


def is_standing_in() -> bool:
    """Whether the default process group is one that sends nothing."""
    return (
        distributed.is_available() and distributed.is_initialized() and distributed.get_backend() == private.NOT_SENDING
    )


def _forget() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()
