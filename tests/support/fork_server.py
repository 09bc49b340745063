"""A process that has torch and gradir loaded and runs Python's command lines in forks of itself: see ``forked.py``.

Started as ``python fork_server.py ADDRESS``. A client connects to the address, sends a command line with its streams,
and gets the exit status; the first client waits until torch is imported. The server ends with its standard input. It
has to have no thread when it forks, so it does nothing itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
import weakref
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from tool_use import record_lookups

_LARGEST = 1 << 20
_LIFELINE = 0
"""The standard input of the server, which its owner closes."""
_PACKAGES = ("gradir.cli", "gradir.codecs", "gradir.frontends.pytorch")


def _load() -> None:
    """Import what nearly every command of a front-end takes the time to import."""
    # What records every operation takes the latter along.
    importlib.import_module("torch._dynamo")
    importlib.import_module("pytest")
    if importlib.import_module("torch.distributed").is_available():
        importlib.import_module("torch.distributed.fsdp")
    for package in _PACKAGES:
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            importlib.import_module(module.name)


def _stream(descriptor: int, like: Any, *, unbuffered: bool) -> Any:
    """A standard stream as Python makes it where it starts."""
    mode, name = ("r", "<stdin>") if descriptor == 0 else ("w", "<stdout>" if descriptor == 1 else "<stderr>")
    raw = io.FileIO(descriptor, mode, closefd=False)
    raw.name = name  # type: ignore[misc]
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    buffer: Any = io.BufferedReader(raw) if descriptor == 0 else raw if unbuffered else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer,
        encoding=encoding or like.encoding,
        errors=errors or like.errors,
        line_buffering=descriptor == 2 or raw.isatty(),
        write_through=unbuffered and descriptor > 0,
    )


def _start_over(request: dict[str, Any], descriptors: list[int]) -> None:
    """Make the fork look like a process that has just started."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    for descriptor in {*descriptors} - {0, 1, 2}:
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, f"__{name}__"), unbuffered=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.executable = request.get("executable", sys.executable)
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None
    importlib.invalidate_caches()


def _run(words: list[str]) -> None:
    """What Python does with its command line."""
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


def _status(words: list[str]) -> int:
    """The exit status, with what Python itself prints of an end."""
    try:
        _run(words)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 (as Python does)
        inner = error.__traceback__
        while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
            inner = inner.tb_next
        sys.excepthook(type(error), error, inner)
        return 1
    return 0


def _child(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    status = 255
    try:
        _start_over(request, descriptors)
        status = _status(request["words"])
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stderr.flush()
        try:
            sys.stdout.flush()
        except OSError:
            # Python's own status where what was printed could not be written.
            status = 120
    except BaseException:  # noqa: BLE001 (a fork must not go on as the server)
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(listening: socket.socket) -> None:
    """Run command lines beside each other, since what one runs may be what runs another."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        asking = [connection.fileno() for _, connection in running.values()]
        ready, _, _ = select.select([listening, _LIFELINE, *running, *asking], [], [])
        if _LIFELINE in ready:
            return
        if listening in ready:
            child, connection = _start(listening, running)
            running[os.pidfd_open(child)] = child, connection
        for descriptor, (child, connection) in list(running.items()):
            sent = connection.recv(64) if connection.fileno() in ready else None
            if sent is not None:
                # A client sends the signals that it gets, and nothing when it ends.
                os.kill(child, int(sent or signal.SIGKILL))
            if sent == b"" or descriptor in ready:
                del running[descriptor]
                os.close(descriptor)
                _, ended = os.waitpid(child, 0)
                with connection, suppress(BrokenPipeError):
                    connection.send(str(os.waitstatus_to_exitcode(ended)).encode())


def _start(listening: socket.socket, running: dict[int, tuple[int, socket.socket]]) -> tuple[int, socket.socket]:
    """Fork for the next client."""
    connection, _ = listening.accept()
    data, descriptors, _, _ = socket.recv_fds(connection, _LARGEST, 3)
    child = os.fork()
    if not child:
        for descriptor in running:
            os.close(descriptor)
        for each in (listening, connection, *(each for _, each in running.values())):
            each.close()
        _child(json.loads(data), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return child, connection


def _main(address: str) -> None:
    # A process that starts anew has neither the folder of this file nor its modules.
    del sys.path[0]
    for name in ("bare_path", "tool_use", "tools"):
        del sys.modules[name]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        # A client that connects while torch is being imported waits.
        listening.bind(f"{address}.new")
        listening.listen(64)
        Path(f"{address}.new").rename(address)
        ready, _, _ = select.select([listening, _LIFELINE], [], [])
        if _LIFELINE in ready:
            return
        _load()
        record_lookups()
        for finalizer in [*weakref.finalize._registry]:  # type: ignore[attr-defined]
            # To take each library of torch apart would be half of what most forks do.
            finalizer.atexit = False
        gc.collect()
        gc.freeze()
        _serve(listening)


if __name__ == "__main__":
    _main(sys.argv[1])
