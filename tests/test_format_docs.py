from __future__ import annotations

import re
from pathlib import Path

import msgspec

import gradir
from gradir.ir import Node, Saved

DOCS = (Path(__file__).parents[1] / "docs" / "format.md").read_text(encoding="utf-8")


def keys(section: str) -> list[str]:
    """The keys in the first column of the table below a heading."""
    body = DOCS.partition(f"# {section}\n")[2].partition("\n#")[0]
    return [key for row in re.findall(r"^\| (`.*?) \|", body, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)]


def test_the_example_is_a_canonical_document() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    graph = gradir.loads(example.encode())
    assert gradir.dumps(graph).decode() == example
    assert len(graph.nodes) == 5


def test_every_field_of_a_node_is_documented() -> None:
    assert keys("Nodes") == [field.encode_name for field in msgspec.structs.fields(Node)]


def test_every_field_of_a_saved_tensor_is_documented() -> None:
    assert keys("Saved tensors") == [field.encode_name for field in msgspec.structs.fields(Saved)]
