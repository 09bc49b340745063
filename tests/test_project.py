"""The table ``[tool.gradir]`` of pyproject.toml: where it is found, what it may say, and what comes of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import gradir
from gradir.cli.main import main
from gradir.errors import GradirError
from gradir.explanations.model import Cause, Explanation
from gradir.ir import Cut, Graph, Node, Source
from gradir.project import Project, project

ABOVE = str(Path("..", "pyproject.toml"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, two folders below one that no test writes to."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return inner


def write(text: str | bytes, folder: str = ".") -> None:
    (Path(folder) / "pyproject.toml").write_bytes(text if isinstance(text, bytes) else text.encode())


def table(**more: object) -> str:
    return "[tool.gradir]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())


def test_the_nearest_file_with_the_table_counts(folder: Path) -> None:
    assert project(folder) == Project()
    write(table(allow=["teacher.*"]), "..")
    assert project(folder) == Project(("teacher.*",), ABOVE)
    # One without the table says nothing, whatever else is wrong with it.
    write("[project]\nname = ")
    assert project(folder).allow == ("teacher.*",)
    write("[tool.ruff]\nsrc = ['gradir']\n")
    assert project(folder).allow == ("teacher.*",)
    write(table())
    assert project(folder) == Project((), "pyproject.toml")


def test_a_folder_of_that_name_is_none(folder: Path) -> None:
    Path("pyproject.toml").mkdir()
    assert project(folder) == Project()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tool.gradir]\nalow = ["a"]', "tool.gradir has no key 'alow' (did you mean 'allow'?): it has allow"),
        ("[tool.gradir.explain]\nallow = []", "tool.gradir has no key 'explain': it has allow"),
        ('tool.gradir = "a"', "tool.gradir must be a table: write [tool.gradir], and its keys below it"),
        *(
            (f"[tool.gradir]\nallow = {value}", 'tool.gradir.allow must be a list of patterns, such as ["teacher.*"]')
            for value in ('"a"', "3", "[3]", '[""]', '[["a"]]', "{ a = 1 }")
        ),
        (f"[tool.gradir]\nallow = {['a'] * 1001}", "tool.gradir.allow has more than 1,000 patterns: '*' is any text"),
        ("[tool.gradir]\nallow = [", "is not TOML: "),
        ("[tool.gradir]\nallow = " + "[" * 100_000, "is not TOML: "),
        ("[tool.gradir]\n" + "a." * 500_000 + "a = 1", "has a key with too many parts"),
        (b"[tool.gradir]\n# \xff", "is not TOML: 'utf-8' codec can't decode byte 0xff in position 16"),
        ("[tool.gradir]\n" + "#" * 2**20, "is larger than 1 MiB, the limit"),
    ],
)
def test_an_invalid_setting_is_one_line_with_file_and_key(
    text: str | bytes, said: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(text, "..")
    with pytest.raises(GradirError):
        project(folder)
    gradir.save(Graph.of([]), "a.gir")
    assert main(["explain", "a.gir"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"gradir: {ABOVE}: {said}")


def test_a_file_that_cannot_be_read_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("pyproject.toml").mkdir()
    monkeypatch.setattr(os.path, "isfile", lambda path: True)
    with pytest.raises(GradirError, match="cannot be read: "):
        project(folder)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with 3.11")
def test_a_file_without_the_table_is_not_parsed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomllib", None)
    write("[tool.ruff]\n")
    assert project(folder) == Project()


# What is allowed.


def cut(*names: str, kind: str = "detach") -> Cut:
    return Cut(kind, names, op=kind, source=Source("net.py", 3))


def lost(name: str) -> Cut:
    return Cut("unreached", (name,))


def test_the_command_line_adds_to_the_table_and_both_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
    gradir.save(Graph.of([Node("w")], cuts=(lost("a"), lost("b"), cut("a", "b"))), "loss.gir")
    write(table(allow=["a", "teacher.*"]))
    assert main(["explain", "loss.gir"]) == 1
    assert capfd.readouterr().out.endswith(
        "\nallowed:\n"
        "  a (pyproject.toml): nothing, as no cause is of this kind or of such names alone\n"
        "  teacher.* (pyproject.toml): nothing, as no cause is of this kind or of such names alone\n"
    )
    assert main(["explain", "loss.gir", "--allow", "b"]) == 0
    out = capfd.readouterr().out
    assert "1 note (detach 1)" in out
    assert out.splitlines()[-3:] == [
        "  a (pyproject.toml): 1 cause",
        "  teacher.* (pyproject.toml): nothing, as no cause is of this kind or of such names alone",
        "  b (--allow): 1 cause",
    ]
    assert main(["explain", "loss.gir", "--allow", "b", "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["allowed"] == [
        {"pattern": "a", "where": "pyproject.toml", "causes": 1},
        {"pattern": "teacher.*", "where": "pyproject.toml", "causes": 0},
        {"pattern": "b", "where": "--allow", "causes": 1},
    ]
    assert main(["explain", "loss.gir", "--allow", "b", "--format", "markdown"]) == 0
    assert capfd.readouterr().out.endswith("- allowed: `b` (`--allow`): 1 cause\n")


def test_without_anything_allowed_nothing_is_reported_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    gradir.save(Graph.of([Node("w")]), "loss.gir")
    assert main(["explain", "loss.gir"]) == 0
    assert "allowed" not in capfd.readouterr().out


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_pattern_is_refused_before_anything_runs(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["explain", "absent.py:loss", "--allow", text])
    assert end.value.code == 2
    assert "a pattern is a name or a kind of cause, such as 'teacher.*' or detach" in capfd.readouterr().err


def test_brackets_in_names_are_themselves_and_a_star_is_any_text() -> None:
    names = "blocks[0].w", "blocks['a?'].w"
    found = Explanation(dict.fromkeys(names, "cut"), (Cause("detach", "error", "detach", names),))
    for patterns in (names, ["blocks[*].w"], ["*"], ["det*"], [names[0], "*a?*"]):
        assert found.allow(patterns).level == "none", patterns
    for patterns in (["blocks[0].w"], ["blocks?0?.w", names[1]], ["blocks[0-9].w", names[1]], ["*W"], ["d?tach"]):
        assert found.allow(patterns).level == "error", patterns


def test_two_calls_of_allow_add_up() -> None:
    found = Explanation({"a": "cut", "b": "cut"}, (Cause("detach", "error", "detach", ("a", "b")),))
    once = found.allow(["a"], "one")
    assert (once.level, [each.causes for each in once.allowed]) == ("error", [0])
    both = once.allow(["b", "c"], "other")
    assert both.level == "none"
    assert [(each.pattern, each.where, each.causes) for each in both.allowed] == [
        ("a", "one", 1),
        ("b", "other", 1),
        ("c", "other", 0),
    ]
    with pytest.raises(TypeError, match=r"patterns are a list, such as \['a'\]"):
        found.allow("a")


def test_many_stars_take_no_time() -> None:
    found = Explanation({"a" * 500: "cut"}, (Cause("detach", "error", "detach", ("a" * 500,)),))
    assert found.allow(["*a" * 40 + "b"]).level == "error"
