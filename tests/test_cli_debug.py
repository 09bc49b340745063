"""What a report of a problem says of an installation: all that is found, and nothing of whose it is."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import subprocess
import sys
import webbrowser
from importlib import metadata
from pathlib import Path

import pytest
from plugins import gradir, register

from gradir import registry
from gradir.cli import debug_command as debug
from gradir.cli import main

Read = pytest.CaptureFixture[str]


def told(capfd: Read, *arguments: str) -> str:
    assert main(["debug", *arguments]) == 0
    read = capfd.readouterr()
    assert read.err == ""
    return read.out


def test_it_names_every_package_and_every_plug_in(capfd: Read) -> None:
    found = json.loads(told(capfd, "--json"))
    assert found["gradir"] == metadata.version("gradir")
    assert found["python"].startswith(platform.python_version())
    required = {re.split(r"[^\w.-]", each)[0].lower() for each in metadata.requires("gradir") or []}
    assert required <= {*found["packages"]}
    for name, version in found["packages"].items():
        assert version == (metadata.version(name) if _is_installed(name) else "not installed")
    own = f"gradir {metadata.version('gradir')}"
    assert set(registry.exporter.names()) <= {*found["exporters"]}
    for group in ("frontends", "exporters", "passes", "renderers"):
        assert own in found[group].values()
    assert {*found["frontends"]} >= {"jax", "torch"}


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_the_text_has_the_same_in_a_line_each(capfd: Read) -> None:
    found = json.loads(told(capfd, "--json"))
    lines = told(capfd).splitlines()
    for key, value in found.items():
        if isinstance(value, dict):
            assert key in lines
            assert all(f"  {name}  {what}" in lines for name, what in value.items())
        else:
            assert f"{key}  {value}" in lines


def test_it_says_nothing_of_whose_machine_it_is(capfd: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIR_SECRET", "a value of the environment")
    monkeypatch.setenv("HOME", str(tmp_path))
    text = told(capfd)
    assert not re.search(r"[/\\]", text)
    for own in (str(Path.home()), platform.node(), "GRADIR_SECRET", "a value of the environment"):
        assert not own or own not in text
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)


def test_frameworks_are_not_imported() -> None:
    code = (
        "import sys; from gradir.cli import main; main(['debug']); "
        "print({'torch', 'jax', 'numpy'} & {*sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "set()\n"


def test_a_plug_in_that_cannot_be_loaded_is_reported_and_its_words_are_not(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(f"raise OSError({str(tmp_path)!r})\n")
    register(tmp_path, "broken", "broken:Broken")
    register(tmp_path, "gone", "nowhere:Gone", "gradir.passes")
    register(tmp_path, "other", "json:JSONDecoder", "gradir.renderers")
    done = gradir(tmp_path, "debug")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "  broken  broken 1.0 and cannot be loaded: OSError" in lines
    assert "  gone  gone 1.0 and cannot be loaded: ModuleNotFoundError" in lines
    assert "  other  other 1.0 and cannot be loaded: TypeError" in lines
    assert str(tmp_path) not in done.stdout


def test_names_act_on_no_terminal(tmp_path: Path) -> None:
    register(tmp_path, "red", "json:JSONDecoder")
    file = tmp_path / "red-1.0.dist-info" / "entry_points.txt"
    file.write_text("[gradir.exporters]\n\x1b[31mred\u202e = json:JSONDecoder\n", encoding="utf-8")
    done = gradir(tmp_path, "debug")
    assert done.returncode == 0
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", done.stdout)
    assert "red" in done.stdout


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo some tool 4.5.6 of /usr", "4.5.6"),
        ("echo nothing", "of an unknown version"),
        ("echo graph 1.2 >&2; exit 1", "1.2"),
    ],
)
def test_programs_say_their_versions(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    monkeypatch.setattr(webbrowser, "get", _no_browser)
    for name in ("dot", "git"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert json.loads(told(capfd, "--json"))["programs"] == {
        "dot": said,
        "git": said,
        "browser": "none found",
    }


def test_a_program_that_is_not_there_or_hangs_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(debug, "_PATIENCE", 0.2)
    found = json.loads(told(capfd, "--json"))["programs"]
    assert (found["dot"], found["git"]) == ("does not run", "not installed")


def _no_browser() -> None:
    raise webbrowser.Error("could not locate runnable browser")


def test_a_browser_is_reported_without_its_name(monkeypatch: pytest.MonkeyPatch, capfd: Read, tmp_path: Path) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser(str(tmp_path / "browser")))
    assert json.loads(told(capfd, "--json"))["programs"]["browser"] == "found"


def test_debug_leaves_out_the_output_of_plug_ins(tmp_path: Path) -> None:
    loud = "import sys\nprint('words')\nprint('words', file=sys.stderr)\nraise SystemExit(3)\n"
    (tmp_path / "loud.py").write_text(loud)
    register(tmp_path, "loud", "loud:Loud")
    done = gradir(tmp_path, "debug", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["exporters"]["loud"] == "loud 1.0 and cannot be loaded: SystemExit"


def test_debug_survives_a_half_installed_package(tmp_path: Path) -> None:
    register(tmp_path, "half", "json:JSONDecoder")
    (tmp_path / "half-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nRequires-Dist: torch>=2\n")
    done = gradir(tmp_path, "debug", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["exporters"]["half"] == "a distribution without a name and cannot be loaded: TypeError"
    assert not {"half", "None", "none", ""} & {*found["packages"]}


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX closes it")
def test_a_closed_output_is_trouble_in_one_line() -> None:
    command = ["sh", "-c", 'exec "$0" -m gradir debug >&-', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "internal error" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
