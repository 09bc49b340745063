"""The reader of entry points, beside the one of the standard library."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from importlib import invalidate_caches, metadata
from pathlib import Path
from typing import NoReturn

import pytest

from gradir.entrypoints import EntryPoint, entry_points

GROUP = "gradir.exporters"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """importlib remembers directories by their time of change, which is too coarse for tests."""
    invalidate_caches()
    yield
    invalidate_caches()


def expected(group: str = GROUP) -> list[tuple[str, str]]:
    return sorted((point.name, point.value) for point in metadata.entry_points(group=group))


def forbid_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(**_: object) -> NoReturn:
        raise AssertionError("importlib.metadata was asked")

    monkeypatch.setattr(metadata, "entry_points", asked)


def install(folder: Path, info: str, *lines: str) -> Path:
    directory = folder / info
    directory.mkdir(parents=True)
    (directory / "METADATA").write_text("Metadata-Version: 2.1\nName: any\nVersion: 1.0\n")
    (directory / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory


@pytest.mark.parametrize("group", [GROUP, "gradir.frontends", "console_scripts", "pytest11", "no.such.group"])
def test_entry_points_equal_those_of_the_standard_library(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(group)
    assert bool(found) == (group != "no.such.group")
    forbid_asking(monkeypatch)
    assert sorted(entry_points(group)) == found


def test_every_kind_of_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(
        first,
        "Some.Plug_in-1.0.dist-info",
        "# a comment",
        "[console_scripts]",
        "script = some:main",
        f"[{GROUP}]",
        "one=some.module:Class",
        "  two  =  some.module:Class.nested [an-extra]  ",
        "",
        "# three = some:Three",
        "[gradir.frontends]",
        "four = some:Four",
    )
    install(second, "some_plug.in-2.0.dist-info", f"[{GROUP}]", "shadowed = some:Shadowed")
    install(second, "legacy-1.0-py3.10.egg-info", f"[{GROUP}]", "five = legacy:Five")
    install(second, "unversioned.egg-info", f"[{GROUP}]", "six = unversioned:Six")
    install(second, "cömposed-1.0.dist-info", f"[{GROUP}]", "sïeben = composed:Sïeben")
    install(second, "not_a_distribution", f"[{GROUP}]", "seven = no:Seven")
    install(second, "unrelated-1.0.dist-info", f"[{GROUP}.more]", "eight = unrelated:Eight")
    (second / "silent-1.0.dist-info").mkdir()
    (second / "a_file-1.0.egg-info").write_text("Metadata-Version: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(first), str(tmp_path / "missing"), str(second), str(first)])
    found = expected()
    assert found == sorted(
        [
            ("one", "some.module:Class"),
            ("two", "some.module:Class.nested [an-extra]"),
            ("five", "legacy:Five"),
            ("six", "unversioned:Six"),
            ("sïeben", "composed:Sïeben"),
        ]
    )
    forbid_asking(monkeypatch)
    assert sorted(entry_points(GROUP)) == found


def test_the_working_directory_is_on_the_path_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "here-1.0.dist-info", f"[{GROUP}]", "here = here:Here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [""])
    assert entry_points(GROUP) == [EntryPoint("here", "here:Here")]


def test_a_file_that_is_no_text_harms_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (install(tmp_path, "broken-1.0.dist-info") / "entry_points.txt").write_bytes(b"\xff\xfe[console_scripts]\x00")
    install(tmp_path, "whole-1.0.dist-info", f"[{GROUP}]", "whole = whole:WholeModule")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert entry_points(GROUP) == [EntryPoint("whole", "whole:WholeModule")]


@pytest.mark.parametrize("name", ["packed.zip", "packed.egg"])
def test_a_zip_archive_is_left_to_the_standard_library(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        info = "EGG-INFO" if name.endswith(".egg") else "packed-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 1.0\n")
        archive.writestr(f"{info}/entry_points.txt", f"[{GROUP}]\npacked = packed:Packed\n")
    install(tmp_path, "beside-1.0.dist-info", f"[{GROUP}]", "beside = beside:Beside")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / name), *sys.path])
    found = expected()
    assert {("beside", "beside:Beside"), ("packed", "packed:Packed")} <= set(found)
    assert sorted(entry_points(GROUP)) == found


def test_a_path_that_is_no_text_is_left_to_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
    assert "dot" in [point.name for point in entry_points("gradir.exporters")]


def test_an_import_hook_is_left_to_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hooked(metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return {
                "METADATA": "Metadata-Version: 2.1\nName: hooked\nVersion: 1.0\n",
                "entry_points.txt": f"[{GROUP}]\nhooked = hooked:Hooked\n",
            }.get(filename)

        def locate_file(self, path: object) -> NoReturn:
            raise NotImplementedError

    class Finder(metadata.DistributionFinder):
        def find_distributions(self, context: object = None) -> list[metadata.Distribution]:
            return [Hooked()]

        def find_spec(self, *_: object) -> None:
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert EntryPoint("hooked", "hooked:Hooked") in entry_points(GROUP)
    assert "dot" in [point.name for point in entry_points(GROUP)]
