"""The tables of cases in docs name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"


def named_tests() -> set[str]:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.glob("test_*.py")]
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_table_of_cases_names_tests_that_exist() -> None:
    cases = (DOCS / "cases.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\|(.*)\|$", cases, re.MULTILINE)
    tests = named_tests()
    assert [int(number) for number, _ in rows] == list(range(1, 46))
    for number, named in rows:
        names = re.findall(r"`(\w+)`", named)
        assert names, f"case {number}"
        assert set(names) <= tests, f"case {number}"


def test_the_table_of_several_processes_names_tests_that_exist() -> None:
    section = (DOCS / "distributed.md").read_text(encoding="utf-8").partition("\n## Cases\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| .* \| (`.*`) \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n| ") - 1
    tests = named_tests()
    for case, named in rows:
        assert set(re.findall(r"`(\w+)`", named)) <= tests, case
