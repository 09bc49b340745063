"""A copy of the tree in which fields are declared that no other file knows of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"

FIELDS = """    stream: str = ""
    lane: Count = 0
    pinned: bool = False
    tags: tuple[str, ...] = ()
    fused: Source | None = None
    spots: tuple[int, ...] = ()
"""
"""A text, a number, a flag, a list, a record, and a list of numbers."""

REFERENCES = """    alias: Annotated[Ref | None, About("structure", refers=True)] = None
    twin: Annotated[str | None, About("structure", refers=True)] = None
    others: Annotated[tuple[Ref, ...], About("structure", refers=True)] = ()
"""

FIELDS_OF_SCOPES = "".join(
    f"    {name}: Annotated[{kind}, About(since=(1, 1))] = {default}\n"
    for name, kind, default in (line.strip().replace(": ", " = ").split(" = ") for line in FIELDS.splitlines())
)
"""The same, as they are declared after a release."""

MARK = """class Mark(Record, frozen=True):
    node: Annotated[str, About(refers=True)] = ""
    size: int = 0


"""
HEAD = """    stream: Annotated[str, About(since=(1, 1))] = ""
    stamp: Annotated[str, About("free", since=(1, 1), merged="either")] = ""
    lane: Annotated[int, About("free", since=(1, 1), merged="neither")] = 0
    pinned: Annotated[bool, About(since=(1, 1))] = False
    marks: Annotated[tuple[Mark, ...], About(since=(1, 1))] = ()
    settings: Annotated[Mapping[str, AttrValue], About(since=(1, 1))] = NOTHING
    failure: Annotated[Mark | None, About(since=(1, 1))] = None
"""
"""Fields of the head: four values of which a diff compares two, a list of records, a mapping and a record."""

RELEASED = "RELEASED: Final = (Version(1, 0),)"
"""What a second version is added to."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with the fields in one file."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("gradir", "exporters", "schemas"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    model = tree / "gradir" / "ir" / "model.py"
    text = model.read_text(encoding="utf-8")
    for record, behind, fields in (
        ("Node", "\n\n    def __post_init__", FIELDS + REFERENCES),
        ("Scope", "\n\n\nclass Cut", FIELDS_OF_SCOPES),
        ("Cut", "\n\n    def __post_init__", FIELDS),
        ("Saved", "\n\n    def __post_init__", FIELDS),
        ("TensorMeta", "\n\n    def __post_init__", FIELDS),
        ("Source", "\n\n\nclass Saved", FIELDS.replace("Source | None", "NonFinite | None")),
    ):
        end = text.index(behind, text.index(f"class {record}(Record"))
        text = f"{text[:end]}\n{fields.rstrip()}{text[end:]}"
    model.write_text(text, encoding="utf-8")
    head = tree / "gradir" / "ir" / "head.py"
    text = head.read_text(encoding="utf-8").replace(" import About,", " import About, AttrValue,")
    text = text.replace("class Head", f"{MARK}class Head").replace(
        "\n\n\ndef rename_in_head", f"\n{HEAD}\n\ndef rename_in_head"
    )
    head.write_text(text, encoding="utf-8")
    document = tree / "gradir" / "codecs" / "document.py"
    text = document.read_text(encoding="utf-8")
    assert text.count(RELEASED) == 1
    document.write_text(text.replace(RELEASED, RELEASED.replace(",)", ", Version(1, 1))")), encoding="utf-8")
    # Published before the fields came.
    shutil.copy(tree / "schemas/gir-1.0.schema.json", tree / "schemas/gir-1.1.schema.json")
    return tree


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(tree), *(str(tree / name) for name in ("exporters", "schemas")), str(SUPPORT)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
