"""The examples of docs/gradient-flow.md print what stands below them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

PAGE = (Path(__file__).parents[1] / "docs" / "gradient-flow.md").read_text(encoding="utf-8")
FIRST, *_ = [
    block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if "import torch" in block
]
EXAMPLES = re.findall(r"^```python\n([^`]*?)^```\n\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_there_are_as_many_examples_as_the_page_has() -> None:
    assert len(EXAMPLES) == 10


def test_the_examples_print_what_the_page_says(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    program = tmp_path / "example.py"
    # Each as a file of its own, with the lines before it run elsewhere so that its lines count from 1.
    (tmp_path / "first.py").write_text(FIRST)
    for code, printed in EXAMPLES:
        program.write_text(code)
        run = (
            "import first, linecache; names = {**vars(first), '__name__': 'example'}; "
            "exec(compile(open('example.py').read(), __import__('os').path.abspath('example.py'), 'exec'), names)"
        )
        done = subprocess.run(
            [sys.executable, "-c", run],
            cwd=tmp_path,
            env=clean_environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, printed), (code, done.stderr)
