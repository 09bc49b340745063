"""Run a script again in a subprocess, to explain one of its backward passes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gradir.cli.subprocesses import command_line
from gradir.explanations.model import Cause

if TYPE_CHECKING:
    from gradir.cli.scripts import Script
    from gradir.protocols import ReachedBackward

__all__ = ["Replay", "main", "replayed"]


class Replay(msgspec.Struct, frozen=True):
    """The result of running a script again: the loss of the backward, and the causes that explain it."""

    loss: float | None = None
    causes: tuple[Cause, ...] = ()


def replayed(script: Script, step: int, folder: str, graph: str = "") -> Replay | None:
    """Run a script again, silently, up to its backward number ``step``, whose graph goes into the file ``graph``."""
    with tempfile.TemporaryDirectory() as place:
        result = Path(place) / "replay.json"
        words = [str(result), str(step), graph, str(int(script.is_module)), script.name, *script.arguments]
        subprocess.run(  # noqa: S603 (gradir itself)
            command_line(words, "gradir.cli.replaying"),
            cwd=folder,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return msgspec.json.decode(result.read_bytes(), type=Replay)
        except (OSError, msgspec.DecodeError):
            return None


def main() -> int:
    """Run the script that the command line names, and write what its backward is explained by."""
    result, step, graph, is_module, name, *arguments = sys.argv[1:]
    from gradir import api
    from gradir.capturing import running
    from gradir.request import CaptureRequest
    from gradir.script import run_script

    def reached(call: ReachedBackward) -> None:
        loss = call.loss
        found = call.explain()
        if graph:
            api.save(call.capture(), graph)
        causes = tuple(cause for cause in found.causes if cause.level == "error")
        _write(result, Replay(loss if loss is not None and isfinite(loss) else None, causes))
        raise SystemExit

    request = CaptureRequest(step=int(step), flow=True, sources=True, values=True)
    with running(request, reached) as seeing:
        try:
            run_script(name, arguments, is_module=is_module == "1", for_good=True)
        except Exception as error:  # noqa: BLE001 (whatever the script raises)
            found = [each.explained_failure(error) for each in seeing.values()]
            causes = [cause for each in found if each for cause in each.causes if cause.level == "error"]
            _write(result, Replay(None, tuple(causes)))
    return 0


def _write(result: str, replay: Replay) -> None:
    Path(result).write_bytes(msgspec.json.encode(replay))
