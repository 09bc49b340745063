"""Programs of tests/node, each started once for all tests of a process: it answers a line of JSON with another."""

from __future__ import annotations

import atexit
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "node"


def ask(node: str, program: str, texts: list[str], *arguments: str, parse_int: type = int) -> Any:
    """Return what a program makes of these texts."""
    process = _start_node(node, program, *arguments)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(texts).encode() + b"\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        _start_node.cache_clear()
        raise AssertionError(f"{program} ended with status {process.wait()}")
    return json.loads(answer, parse_int=parse_int)


@cache
def _start_node(node: str, *command: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([node, *command], cwd=_FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    # It ends with its standard input.
    atexit.register(process.communicate)
    return process
