"""What docs/data-formats.md says of the four exporters is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from samples import everything

from gradir import registry
from gradir.options import option_infos

TEXT = (Path(__file__).parents[1] / "docs" / "data-formats.md").read_text(encoding="utf-8")
EXPORTERS = ("nodelink", "graphml", "cytoscape", "model-explorer")


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    everything().save("model.gir")
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "data-formats.md", "exec"), {})


def test_the_table_lists_each_exporter_with_its_suffix_and_options() -> None:
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in TEXT.splitlines() if re.match(r"\| `[a-z-]+` \| `\.", line)]
    cells = {row[0].strip(" `"): [cell.strip() for cell in row] for row in rows}
    assert tuple(cells) == EXPORTERS
    for name, row in cells.items():
        found = registry.exporter(name)
        assert row[1] == f"`{found.suffix}`"
        own = set(re.findall(r"`([a-z]+)=", row[4]))
        assert own | {"attrs", "saved"} == set(found.options.__struct_fields__)
        for option, choices in re.findall(r"`([a-z]+)=([a-z|\\]+)`", row[4]):
            (listed,) = [info.takes for info in option_infos(found.options) if info.name == option]
            assert set(choices.replace("\\", "").split("|")) == set(listed.split("|"))
