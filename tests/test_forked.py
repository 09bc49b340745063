"""A fork of the process that has torch is told from one that starts anew by its speed alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest

pytest.importorskip("torch")

PROGRAMS = {
    "arguments": "import sys; print(sys.argv, sys.path[0], __name__)",
    "streams": "import sys; print(sys.stdin.read(), end=''); print('é', file=sys.stderr); print(sys.stdout.encoding)",
    "descriptors": "import os; os.write(1, b'\\xff'); os.write(2, b'2'); os.system('echo child; pwd')",
    "a status": "import sys; print('before'); sys.exit(3)",
    "a large status": "raise SystemExit(-1)",
    "a word": "raise SystemExit('left')",
    "an error": "def f(): 1 / 0\nf()",
    "at exit": "import atexit, threading, time\natexit.register(print, 'late')\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "the environment": "import os; print(os.environ['GIVEN'], 'LEFT' in os.environ); os.system('echo $GIVEN')",
    "a module's name": "import sys, __main__; x = 1; print(__main__.x, sys.modules['__main__'] is __main__)",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["code", "file"])
def test_a_fork_does_what_a_process_does(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEFT", "here")
    left_out = {"LEFT", "PYTHONUNBUFFERED"}
    environment = {key: value for key, value in os.environ.items() if key not in left_out} | {"GIVEN": "x y"}
    if kind == "file":
        environment["PYTHONUNBUFFERED"] = "1"
    (tmp_path / "program.py").write_text(PROGRAMS[name], encoding="utf-8")
    command = [sys.executable, *(["-c", PROGRAMS[name]] if kind == "code" else ["program.py"]), "one", "-two"]
    given = {"cwd": tmp_path, "env": environment, "input": b"typed\n"}
    fork = forked.run(command, **given)
    process = subprocess.run(command, capture_output=True, check=False, **given)
    assert (fork.returncode, fork.stdout) == (process.returncode, process.stdout)
    # The last line of an error is what it is; how it came there differs by the frames of runpy.
    assert fork.stderr.splitlines()[-1:] == process.stderr.splitlines()[-1:]


def test_a_command_beyond_its_timeout_is_ended(tmp_path: Path) -> None:
    code = "import os, time; open('number', 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run([sys.executable, "-c", code], cwd=tmp_path, timeout=2)
    number = int((tmp_path / "number").read_text())
    # One that comes after it is answered when that one has ended.
    assert forked.run([sys.executable, "-c", "print(1)"], text=True).stdout == "1\n"
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_another_interpreter_is_started_where_the_environment_asks_for_one() -> None:
    code = "import os, sys; print(sys.flags.hash_randomization, 'torch' in sys.modules)"
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    assert forked.run([sys.executable, "-c", code], env=environment, text=True).stdout == "0 False\n"
    assert forked.run([sys.executable, "-I", "-c", code], text=True).stdout == "1 False\n"


def test_a_program_gets_arguments_and_input(tmp_path: Path) -> None:
    forked.program(tmp_path / "program", ["-c", "import sys; print(sys.argv[1:], input()); sys.exit(4)"])
    line = ["sh", "-c", "echo typed | ./program a 'b c' 2>&1; echo $?"]
    assert subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == (
        "['a', 'b c'] typed\n4\n"
    )


@pytest.mark.parametrize(
    "end", ["import sys; sys.exit(3)", "signal.signal(number, signal.SIG_DFL); os.kill(os.getpid(), number)"]
)
def test_a_program_gets_the_signal_that_a_launcher_sends_it(end: str, tmp_path: Path) -> None:
    code = f"""
import os, signal, time
def write(number, frame):
    open("written", "w").close()
    {end}
signal.signal(signal.SIGTERM, write)
print("ready", flush=True)
time.sleep(60)
"""
    forked.program(tmp_path / "program", ["-c", code])
    with subprocess.Popen([tmp_path / "program"], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
    assert (tmp_path / "written").exists()
    assert process.returncode == (3 if "exit" in end else -signal.SIGTERM)
