"""The commands in docs/passes.md print what stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import forked
import msgspec
import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
DOCS = (ROOT / "docs" / "passes.md").read_text(encoding="utf-8")


def commands() -> list[tuple[str, str]]:
    """Each command with what is printed below it."""
    blocks = re.findall(r"^```console\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    return [
        found for block in blocks for found in re.findall(r"^\$ gradir (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # The examples lie in the clone, model.gir beside the reader.
    paths = [f"{ROOT / word}" if word.startswith("examples/") else word for word in arguments]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return forked.run([sys.executable, *paths], cwd=directory, env=environment, text=True)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of all captures, since each example may run in a process of its own."""
    made = tmp_path_factory.mktemp("docs")
    captures = [(command, printed) for command, printed in commands() if command.startswith("capture ")]
    assert captures[0][0] == "capture examples/gpt.py:loss -o model.gir"
    for command, printed in captures:
        assert run(made, "-m", "gradir", *shlex.split(command)).stderr == printed
    return made


def test_the_table_says_what_the_passes_declare() -> None:
    from gradir import registry
    from gradir.options import schema_of

    rows = re.findall(r"^\| `--([a-z-]+)([A-Z ]*)` \| `(\w+)=` \| `(\w+)\(.*?\)` \| (.*) \|$", DOCS, re.MULTILINE)
    declared = []
    for each in registry.passes().values():
        field, *_ = msgspec.structs.fields(each.options)
        name, schema = field.name, schema_of(field.type)
        values = schema["prefixItems"] if "prefixItems" in schema else (schema, schema.get("items", {}))
        words = [value["title"] for value in values if "title" in value]
        summary = (type(each).__doc__ or "").partition("\n")[0].rstrip(".")
        declared.append((name.replace("_", "-"), " ".join(words), name, summary[0].lower() + summary[1:]))
    assert [(option, words.strip(), keyword, left) for option, words, keyword, _, left in rows] == declared


def test_there_is_an_example_of_every_option() -> None:
    options = {option for command, _ in commands() for option in re.findall(r"--[a-z-]+", command)}
    table = set(re.findall(r"^\| `(--[a-z-]+)", DOCS, re.MULTILINE))
    assert len(table) == 11
    assert table <= options


@pytest.mark.parametrize(("command", "printed"), commands()[1:], ids=[command for command, _ in commands()[1:]])
def test_the_docs_have_the_output(directory: Path, command: str, printed: str) -> None:
    done = run(directory, "-m", "gradir", *shlex.split(command))
    assert done.stdout + done.stderr == printed
    assert done.returncode == (2 if printed.startswith("gradir: ") else 0)


def test_the_python_of_the_docs_runs(directory: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    done = run(directory, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "..act/gelu:1" in done.stdout
    assert (directory / "near.gir").is_file()
