"""The examples of docs/gradient-flow.md print what stands below them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import forked

from gradir.vocabulary.causes import CAUSE_TEXTS
from gradir.vocabulary.patterns import PATTERNS

PAGE = (Path(__file__).parents[1] / "docs" / "gradient-flow.md").read_text(encoding="utf-8")
FIRST, *_ = [
    block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if "import torch" in block
]
EXAMPLES = re.findall(r"^```python\n([^`]*?)^```\n\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_there_are_as_many_examples_as_the_page_has() -> None:
    assert len(EXAMPLES) == 3


def test_the_tables_have_each_pattern_and_each_kind_once() -> None:
    patterns, _, kinds = PAGE.partition("\n## Patterns\n")[2].partition("\n## All kinds of causes\n")
    rows = re.findall(r"^\| (`.*`) \| .* \|$", kinds, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(CAUSE_TEXTS)
    assert {*re.findall(r"^\| `([a-z -]+)` \|", patterns, re.MULTILINE)} == {*PATTERNS}


RUN = """
import json, linecache, sys, torch, warnings
warnings.simplefilter("ignore")
for code in json.load(sys.stdin):
    names = {}
    exec(FIRST, names)
    linecache.cache["example.py"] = (len(code), None, code.splitlines(keepends=True), "example.py")
    exec(compile(code, "example.py", "exec"), names)
    torch.set_grad_enabled(True)
    print("=" * 80)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not know the columns of an operation")
def test_the_page_has_the_output_of_the_examples(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", f"FIRST = {FIRST!r}\n{RUN}"]
    codes = json.dumps([code for code, _ in EXAMPLES])
    done = forked.run(command, input=codes, cwd=tmp_path, env=clean_environment, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("=" * 80 + "\n") == [*(printed for _, printed in EXAMPLES), ""]
