"""The table of docs/cases.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
CASES = TESTS.parent / "docs" / "cases.md"


def test_the_table_of_cases_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\|(.*)\|(.*)\|$", CASES.read_text(encoding="utf-8"), re.MULTILINE)
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.glob("test_*.py")]
    tests = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert [int(number) for number, _, _ in rows] == list(range(1, 46))
    for number, named, result in rows:
        names = re.findall(r"`(\w+)`", named)
        assert set(names) <= tests, f"case {number}"
        assert names or "not yet" in result, f"case {number}"
