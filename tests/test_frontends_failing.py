"""Front-ends that fail, and programs that raise in them, are one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugins import folder, gradir, installed, python, register, said

__all__ = ["folder", "installed"]

FRONTEND = """\
class Frontend:
    framework = "terms"
    takes = "a term"
    install = "pip install terms"
    features = frozenset()

    @classmethod
    def claims(cls, value):
        return True

    def capture(self, request):
        return 1 / 0
"""
RETURNED = "it returned {}, not an object whose 'graph' is a Graph"
DIVIDED = "ZeroDivisionError: division by zero"
FAILING = {
    "raises": ("", "", f"{DIVIDED} at odd.py:12"),
    "exits": ("return 1 / 0", "raise SystemExit(3)", "SystemExit: 3 at odd.py:12"),
    "claims-raises": ("return True", "return 1 / 0", f"{DIVIDED} at odd.py:9"),
    "returns-a-graph": ("return 1 / 0", "import gradir; return gradir.Graph.of([])", RETURNED.format("Graph")),
    "returns-nothing": ("return 1 / 0", "return", RETURNED.format("NoneType")),
}
UNLOADED = {
    "no-capture": ("def capture", "def captures", "it has no 'capture'"),
    "no-class-method": ("    @classmethod\n", "", "its 'claims' is no classmethod"),
    "no-takes": ("    takes = ", "    took = ", "it has no 'takes'"),
    "no-install": ("    install = ", "    installs = ", "it has no 'install'"),
    "no-features": ("    features = ", "    feature = ", "it has no 'features'"),
    "no-set": ("frozenset()", "'verify'", "its 'features' is no Set"),
    "no-method": ("frozenset()", "{'fake', 'verify'}", "it has the feature 'verify', and no method of that name"),
}


def odd(folder: Path, source: str) -> str:
    """Register a front-end, and give a SPEC for it."""
    (folder / "odd.py").write_text(source)
    (folder / "terms.py").write_text("")
    (folder / "spec.py").write_text(
        "import terms\n\n\ndef make():\n    raise ValueError('no term')\n\n\nterm = [object()]\n"
    )
    register(folder, "odd", "odd:Frontend", "gradir.frontends")
    return f"{folder / 'spec.py'}:term"


@pytest.mark.parametrize(("found", "instead", "told"), FAILING.values(), ids=FAILING)
def test_a_front_end_that_fails_is_one_clear_line(tmp_path: Path, found: str, instead: str, told: str) -> None:
    spec = odd(tmp_path, FRONTEND.replace(found, instead))
    done = gradir(tmp_path, "capture", spec)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gradir: front-end 'odd' failed: {told}\n")
    whole = gradir(tmp_path, "capture", spec, "--traceback").stderr
    assert whole.endswith(done.stderr)
    assert ('odd.py", line ' in whole) == (" at odd.py:" in told)


@pytest.mark.parametrize(("found", "instead", "told"), UNLOADED.values(), ids=UNLOADED)
def test_a_front_end_that_lacks_something_is_one_clear_line(
    tmp_path: Path, found: str, instead: str, told: str
) -> None:
    spec = odd(tmp_path, FRONTEND.replace(found, instead))
    done = gradir(tmp_path, "capture", spec, "--frontend", "odd")
    line = f"front-end 'odd' (odd:Frontend) cannot be loaded: TypeError: {told}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gradir: {line}")
    assert gradir(tmp_path, "capture", spec).stderr.startswith(f"gradir: warning: {line}")


def test_claims_may_be_a_static_method(tmp_path: Path) -> None:
    source = FRONTEND.replace("classmethod", "staticmethod").replace("(cls, value)", "(value)")
    assert DIVIDED in gradir(tmp_path, "capture", odd(tmp_path, source)).stderr


def test_in_python_what_a_front_end_raises_is_left_as_it_is_and_what_it_returns_is_reported(tmp_path: Path) -> None:
    odd(tmp_path, FRONTEND)
    raised = python(tmp_path, "gradir.capture(3, frontend='odd')")
    assert raised.stderr.endswith(f"\n{DIVIDED}\n")
    (tmp_path / "odd.py").write_text(FRONTEND.replace("return 1 / 0", "return 3"))
    text = said(tmp_path, "gradir.capture(3, frontend='odd')")
    assert text == f"front-end 'odd' failed: {RETURNED.format('int')}"


RUNS = """
    def capture(self, request):
        from gradir.spec import called
        return called(request.target)
"""


@pytest.mark.parametrize("more", ["", RUNS], ids=["called by gradir", "called by the front-end"])
def test_an_error_of_the_program_is_no_failure_of_the_front_end(tmp_path: Path, more: str) -> None:
    # One that claims a function takes it as it is.
    source = FRONTEND.replace("return True", "return not callable(value)")
    if more:
        source = FRONTEND.replace("frozenset()", "{'program'}")
    spec = odd(tmp_path, source + more).replace(":term", ":make")
    done = gradir(tmp_path, "capture", spec)
    assert done.stderr.splitlines()[1] == f'  File "{tmp_path / "spec.py"}", line 5, in make'
    assert done.stderr.endswith(f"gradir: {spec}: make raised ValueError: no term\n")
