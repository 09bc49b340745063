"""What docs/pictures.md says of pictures is so."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from gradir import registry
from gradir.options import option_infos

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "pictures.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_gives_the_documented_output() -> None:
    (code,) = re.findall(r"^```pycon\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    example = doctest.DocTestParser().get_doctest(code, {}, "pictures.md", None, None)
    assert len(example.examples) > 10
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_table_has_options_that_there_are() -> None:
    options = {info.name: info for info in option_infos(registry.exporter("dot").options)}
    rows = re.findall(r"^\| `(\w+)=(\w+)` \|", TEXT, re.MULTILINE)
    assert {name for name, _ in rows} == set(options) - {"max_attr_chars"}
    for name, value in rows:
        assert value in options[name].takes.split("|")
        assert value != options[name].default
