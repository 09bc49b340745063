"""A third-party exporter and pass, installed as a distribution of their own, and others that are broken."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, defstruct
from plugins import gir, gradir, installed, recipe, register
from samples import everything

from gradir import registry
from gradir.options import OptionError, Options, expect_sound, fill_options

__all__ = ["gir", "installed"]


def test_it_exports(installed: Path, gir: Path) -> None:
    result = gradir(installed, "export", gir, "--to", "edges")
    assert (result.returncode, result.stderr) == (0, "")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [(r["source"], int(r["output"]), r["target"], int(r["input"]), r["kind"]) for r in rows] == list(
        everything().edges
    )
    assert (rows[0]["dtype"], rows[0]["shape"]) == ("float32", "4x3")


def test_its_options_are_typed(installed: Path, gir: Path) -> None:
    result = gradir(installed, "export", gir, "--to", "edges", "-O", "kind=view", "-O", "delimiter=;")
    assert (result.returncode, result.stderr) == (0, "")
    views = [edge for edge in everything().edges if edge.kind == "view"]
    assert len(result.stdout.splitlines()) == 1 + len(views)
    assert result.stdout.startswith("source;output;")


def test_it_is_listed(installed: Path) -> None:
    result = gradir(installed, "exporters")
    assert (result.returncode, result.stderr) == (0, "")
    (line,) = [line for line in result.stdout.splitlines() if line.split()[:1] == ["edges"]]
    assert "A CSV edge list" in line


@pytest.mark.parametrize(
    ("option", "named"),
    [("colour=red", "colour"), ("kidn=view", "kind"), ("kind=some", "some"), ("delimiter=|", "|"), ("kind", "kind")],
)
def test_a_wrong_option_is_one_clear_line(installed: Path, gir: Path, option: str, named: str) -> None:
    result = gradir(installed, "export", gir, "--to", "edges", "-O", option)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("gradir: ")
    assert result.stderr.count("\n") == 1
    assert named in result.stderr


def test_without_the_plugin_the_message_lists_the_exporters_there_are(tmp_path: Path, gir: Path) -> None:
    result = gradir(tmp_path, "export", gir, "--to", "edges")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert all(name in result.stderr for name in ("edges", "dot", "mermaid", "plain", "tree"))


BROKEN = {
    "missing-import": "import a_library_that_is_not_there\n",
    "several-lines": "raise RuntimeError('first line\\nsecond line')\n",
    "syntax": "class Exporter(:\n",
    "no-class": "",
    "not-an-exporter": "Exporter = 3\n",
    "exits": "raise SystemExit('gone')\n",
    "old-style": "class Exporter:\n    def export(self, graph):\n        return ''\n",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_is_one_clear_line(tmp_path: Path, gir: Path, source: str) -> None:
    (tmp_path / "broken_plugin.py").write_text(source)
    register(tmp_path, "broken", "broken_plugin:Exporter")
    result = gradir(tmp_path, "export", gir, "--to", "broken")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("gradir: ")
    assert result.stderr.count("\n") == 1
    assert "'broken'" in result.stderr
    assert "broken_plugin" in result.stderr


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import os\nimport jsonn\n", "ModuleNotFoundError: No module named 'jsonn' at broken_plugin.py:2"),
        ("import os\n\nos.nothing\n", "AttributeError: module 'os' has no attribute 'nothing' at broken_plugin.py:3"),
        ("import os\nimport part\n", "ZeroDivisionError: division by zero at broken_plugin.py:2"),
        ("import os\nx = (\n", "SyntaxError: '(' was never closed (broken_plugin.py, line 2)"),
        ("import os\nimport no_python\n", "SyntaxError: '(' was never closed (no_python.py, line 3)"),
    ],
)
def test_a_plugin_that_cannot_be_imported_says_one_place_in_it(
    tmp_path: Path, gir: Path, source: str, told: str
) -> None:
    (tmp_path / "broken_plugin.py").write_text(source)
    (tmp_path / "part.py").write_text("1 / 0\n")
    (tmp_path / "no_python.py").write_text("\n\nx = (\n")
    register(tmp_path, "broken", "broken_plugin:Exporter")
    result = gradir(tmp_path, "export", gir, "--to", "broken")
    line = f"gradir: exporter 'broken' (broken_plugin:Exporter) cannot be loaded: {told}\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", line)


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_leaves_the_others_usable(tmp_path: Path, gir: Path, source: str) -> None:
    (tmp_path / "broken_plugin.py").write_text(source)
    register(tmp_path, "broken", "broken_plugin:Exporter")
    assert gradir(tmp_path, "export", gir, "--to", "plain").returncode == 0
    listed = gradir(tmp_path, "exporters")
    assert {"dot", "mermaid", "plain", "tree"} <= {line.split(" ")[0] for line in listed.stdout.splitlines()}
    assert listed.returncode == 2
    assert listed.stderr.startswith("gradir: exporter 'broken' ")
    assert listed.stderr.count("\n") == 1
    # The suffix may be that of the broken exporter.
    chosen = gradir(tmp_path, "export", gir, "-o", tmp_path / "model.mmd")
    assert chosen.returncode == 0
    assert chosen.stderr.startswith("gradir: warning: exporter 'broken' ")
    assert chosen.stderr.count("\n") == 1


UNSOUND = {
    "no-dot": ("suffix = '.d2'", "suffix = 'd2'", "its 'suffix' is 'd2', which has no dot in front"),
    "no-suffix": ("suffix = '.d2'", "", "it has no 'suffix'"),
    "suffix": ("suffix = '.d2'", "suffix = 2", "its 'suffix' is no str"),
    "no-options": ("options = Mine", "", "it has no 'options'"),
    "default": ("= 1.0", "= 'abc'", "its option scale is number, and its default is 'abc'"),
    "bounds": (
        "float = 1.0",
        "Annotated[int, Meta(ge=1)] = 0",
        "its option scale is integer, 1 or more, and its default is 0",
    ),
    "dict": (
        "float = 1.0",
        "dict[str, int] = {}",
        "its option scale has a type with keys and values, which no option can take",
    ),
    "list-of-dicts": (
        "float = 1.0",
        "list[dict] | None",
        "its option scale has a type with keys and values, which no option can take",
    ),
    "name": ("scale", "graph", "its option graph has the name of an argument of the function that takes the options"),
    "annotation": ("float", "flaot", "its options cannot be read: NameError: name 'flaot' is not defined"),
}


@pytest.mark.parametrize(("found", "instead", "told"), UNSOUND.values(), ids=UNSOUND)
def test_an_exporter_that_nobody_could_use_is_one_clear_line(
    tmp_path: Path, gir: Path, found: str, instead: str, told: str
) -> None:
    source = (
        "from __future__ import annotations\nfrom typing import Annotated\nfrom msgspec import Meta\n"
        "from gradir.protocols import Options\n\nclass Mine(Options, frozen=True, kw_only=True):\n"
        "    scale: float = 1.0\n\nclass Exporter:\n    suffix = '.d2'\n    options = Mine\n"
        "    def export(self, graph, options): return 'written'\n"
    )
    (tmp_path / "unsound.py").write_text(source.replace(found, instead))
    register(tmp_path, "d2", "unsound:Exporter")
    result = gradir(tmp_path, "export", gir, "--to", "d2")
    line = f"gradir: exporter 'd2' (unsound:Exporter) cannot be loaded: TypeError: {told}\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", line)


def test_the_options_of_gradirs_own_plugins_are_sound() -> None:
    kinds = [registry.exporter(name).options for name in registry.exporter_names()]
    kinds += [registry.renderer(name).options for name in registry.renderer_names()]
    for kind in (*kinds, *(each.options for each in registry.passes().values())):
        expect_sound(kind, ("self", "graph", "diff", "exporter", "renderer"))


FAILING = {
    "raises": "raise KeyError('a\\nb')",
    "returns-nothing": "return None",
    "returns-bytes": "return b''",
    "exits": "raise SystemExit(0)",
    "leaves": "raise GeneratorExit",
    "returns-what-no-file-holds": "return 'a\\ud800'",
}


@pytest.mark.parametrize("body", FAILING.values(), ids=FAILING)
def test_a_plugin_that_fails_is_one_clear_line_and_writes_nothing(tmp_path: Path, gir: Path, body: str) -> None:
    (tmp_path / "failing_plugin.py").write_text(
        "from gradir.protocols import NoOptions\n\n\n"
        "class Exporter:\n"
        "    suffix = '.txt'\n"
        "    options = NoOptions\n\n"
        "    def export(self, graph, options):\n"
        f"        {body}\n"
    )
    register(tmp_path, "failing", "failing_plugin:Exporter")
    output = tmp_path / "output.txt"
    result = gradir(tmp_path, "export", gir, "--to", "failing", "-o", output)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("gradir: exporter 'failing' failed: ")
    assert result.stderr.count("\n") == 1
    # What returns something else has no line of its own that failed.
    assert ("at failing_plugin.py:9" in result.stderr) == body.startswith(("raise", "return graph.")), result.stderr
    assert not output.exists()
    whole = gradir(tmp_path, "export", gir, "--to", "failing", "--traceback").stderr
    assert whole.endswith(result.stderr)
    assert ('failing_plugin.py", line 9, in export' in whole) == ("failing_plugin.py:9" in result.stderr)


def test_two_packages_with_one_name_clash_over_that_name_only(tmp_path: Path, gir: Path) -> None:
    register(tmp_path, "plain", "their_plain:Exporter")
    assert gradir(tmp_path, "export", gir, "--to", "tree").returncode == 0
    result = gradir(tmp_path, "export", gir, "--to", "plain")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "their_plain" in result.stderr
    assert "gradir_exporters.plain" in result.stderr


def test_the_recipe_for_an_exporter_works() -> None:
    exporter = recipe("EdgeTableExporter")
    edges = [[edge.src, edge.dst, edge.kind] for edge in everything().edges]
    header, *rows = csv.reader(exporter.export(everything(), exporter.options()).splitlines())
    assert (header[0], [row[:2] for row in rows]) == ("source", [edge[:2] for edge in edges])
    some = fill_options(exporter.options, {"kind": "data", "header": "false", "most": "3"}, "edges", strict=False)
    kept = [edge[:2] for edge in edges if edge[2] == "data"][:3]
    assert [row[:2] for row in csv.reader(exporter.export(everything(), some).splitlines())] == kept
    with pytest.raises(OptionError, match=r"^edges: option kind: expected all\|data\|view, not 'views'$"):
        fill_options(exporter.options, {"kind": "views"}, "edges")
    with pytest.raises(OptionError, match="most: expected integer, 1 or more, not 0"):
        fill_options(exporter.options, {"most": 0}, "edges")


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"gt": 0, "le": 10}, "above 0 and 10 or less"),
        ({"ge": 1, "lt": 10}, "1 or more and below 10"),
        ({"gt": 0, "lt": 10}, "above 0 and below 10"),
        ({"ge": 1, "le": 10}, "1 to 10"),
        ({"gt": 0}, "above 0"),
    ],
)
def test_both_bounds_of_an_option_are_reported(bounds: dict[str, int], told: str) -> None:
    scale = ("scale", Annotated[float, Meta(**bounds)] | None, None)
    bounded = defstruct("Bounded", [scale], bases=(Options,), frozen=True, kw_only=True)
    with pytest.raises(OptionError, match=f"^mine: option scale: expected number, {told}, not '0'$"):
        fill_options(bounded, {"scale": "0"}, "mine", strict=False)


def test_the_recipe_for_a_pass_works() -> None:
    only = recipe("OnlyOpsPass")
    assert list(only.run(everything(), only.options(only_ops=("mul", "addmm"))).nodes) == ["fc/addmm:1", "mul:1"]


ODD_OPTIONS = """
import enum, pathlib
from typing import Annotated
import msgspec
from gradir.protocols import Options

class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"

class Odd(Options, frozen=True, kw_only=True):
    ops: Annotated[list[str], msgspec.Meta(description="which operations")]
    sizes: tuple[int, int] = (1, 2)
    more: list[int] = []
    colour: Colour = Colour.RED
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    folder: pathlib.Path = pathlib.Path("a")
    text: str = ""

class Exporter:
    "Odd options."
    suffix = ".txt"
    options = Odd
    def export(self, graph, options):
        return repr(options) + "\\n"
"""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    (tmp_path / "odd_plugin.py").write_text(ODD_OPTIONS)
    register(tmp_path, "odd", "odd_plugin:Exporter")
    return tmp_path


def test_options_of_any_type_are_listed_with_all_others(odd: Path) -> None:
    listed = gradir(odd, "exporters", "dot", "odd")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert re.findall(r"^odd .*\n((?:    .*\n)+)", listed.stdout, re.MULTILINE) == [
        "    ops=string,...  which operations (required)\n"
        "    sizes=integer,integer  (default: 1,2)\n"
        "    more=integer,...  (default: empty)\n"
        "    colour=blue|red  (default: red)\n"
        "    limit=integer  (default: none)\n"
        "    folder=value  (default: a)\n"
        "    text=string  (default: empty)\n"
    ]


def test_options_of_any_type_are_read(odd: Path, gir: Path) -> None:
    given = ("ops=exp, sin", "sizes=3,4", "more=", "colour=blue", "limit=none", "text=a,b")
    done = gradir(odd, "export", gir, "--to", "odd", *(word for pair in given for word in ("-O", pair)))
    assert (done.returncode, done.stderr) == (0, "")
    assert "ops=['exp', 'sin'], sizes=(3, 4), more=[], colour=<Colour.BLUE: 'blue'>, limit=None" in done.stdout
    assert "text='a,b'" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "exporter 'odd': option ops has to be given: it is string,..."),
        (("ops=a", "sizes=1"), "exporter 'odd': option sizes: expected integer,integer, not '1'"),
        (("ops=a", "more=1,b"), "exporter 'odd': option more: expected integer,..., not '1,b'"),
        (("ops=a", "colour=green"), "exporter 'odd': option colour: expected blue|red, not 'green'"),
        (("ops=a", "limit=0"), "exporter 'odd': option limit: expected integer, 1 or more, not '0'"),
    ],
)
def test_wrong_values_of_any_type_are_reported_in_the_words_of_the_list(
    options: tuple[str, ...], said: str, odd: Path, gir: Path
) -> None:
    done = gradir(odd, "export", gir, "--to", "odd", *(word for pair in options for word in ("-O", pair)))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gradir: {said}\n")


def test_every_broken_plugin_is_named(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        register(tmp_path, name, f"no_such_module_{name}:Exporter")
    listed = gradir(tmp_path, "exporters")
    assert listed.returncode == 2
    assert {"dot", "mermaid", "tree"} <= {line.split(" ")[0] for line in listed.stdout.splitlines()}
    assert [line.split()[2] for line in listed.stderr.splitlines()] == ["'first'", "'second'", "'third'"]
