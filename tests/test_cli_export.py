"""``gradir export`` and ``gradir view`` in one process: pictures, Markdown, help."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from samples import chain, everything

import gradir
from gradir.cli import main
from gradir.errors import ExportError
from gradir.ir import Builder, Graph, Scope, TensorMeta
from gradir.markdown import fence_code, replace_block


def layers(count: int) -> Graph:
    """A network of layers, too large for Mermaid unless it is folded."""
    b = Builder()
    meta = [TensorMeta("float32", (3,))]
    value = b.tensor("x", meta[0])
    for number in range(count):
        value = b.function("exp", [value], meta, scope=f"h.{number // 10}")
    b.output(value)
    return b.build(scopes=[Scope(f"h.{number}", "Block") for number in range(count // 10)])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    gradir.save(everything(), "everything.gir")
    gradir.save(layers(1000), "layers.gir")
    gradir.save(chain(1000), "chain.gir")
    return tmp_path


Read = pytest.CaptureFixture[str]


@pytest.mark.usefixtures("dot_program")
@pytest.mark.parametrize(("picture", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_pictures(picture: str, start: bytes, folder: Path) -> None:
    assert main(["export", "everything.gir", "--to", picture, "-O", "theme=dark", "-o", f"a.{picture}"]) == 0
    assert (folder / f"a.{picture}").read_bytes().startswith(start)


@pytest.mark.usefixtures("dot_program")
def test_a_picture_that_takes_too_long_is_one_line(folder: Path, capfd: Read) -> None:
    gradir.save(layers(20_000), "large.gir")
    assert main(["export", "large.gir", "--to", "svg", "--all", "--seconds", "0.2", "-o", "a.svg"]) == 2
    assert "did not finish laying out" in capfd.readouterr().err
    assert not (folder / "a.svg").exists()


def test_without_a_program_a_picture_is_one_line(folder: Path, capfd: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("gradir.pictures._script_folders", list)
    assert main(["export", "everything.gir", "--to", "png"]) == 2
    assert capfd.readouterr().err == (
        "gradir: cannot draw PNG: no layout program; install Graphviz ('dot') or 'pip install graphviz-pure', "
        "or use --to mermaid\n"
    )


@pytest.mark.parametrize("name", ["dot", "mermaid", "tree", "svg"])
def test_help_lists_the_options_of_the_exporter(name: str, capfd: Read) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["export", "--to", name, "--help"])
    shown = capfd.readouterr().out
    assert shown.startswith("usage: gradir export")
    assert f"options of {name}, each as -O KEY=VALUE:" in shown
    option = {"dot": "show_attrs=true|false", "mermaid": "accumulators=", "tree": "max_depth=integer", "svg": "theme="}
    assert option[name] in shown


def test_help_of_an_unknown_exporter_names_the_right_ones(capfd: Read) -> None:
    assert main(["export", "--to", "dott", "--help"]) == 2
    assert "did you mean 'dot'?" in capfd.readouterr().err


@pytest.mark.parametrize("to", ["dot", "mermaid"])
def test_a_large_picture_is_made_readable_and_says_so(to: str, capfd: Read) -> None:
    assert main(["export", "layers.gir", "--to", to]) == 0
    shown = capfd.readouterr()
    assert "1,002 nodes as 12 boxes: equal layers once" in shown.out
    assert re.match(
        r"gradir: warning: 1,002 nodes as 12 boxes: equal layers once; --all, .* --focus choose\n$", shown.err
    )
    assert main(["export", "layers.gir", "--to", to, "--depth", "1"]) == 0
    assert capfd.readouterr().err == ""


def test_all_draws_every_node_or_fails_where_the_format_has_a_limit(capfd: Read) -> None:
    assert main(["export", "layers.gir", "--to", "dot", "--all"]) == 0
    assert capfd.readouterr().out.count("tooltip=") > 1_002
    assert main(["export", "layers.gir", "--to", "mermaid", "--all"]) == 2
    assert "leave all out" in capfd.readouterr().err
    assert main(["export", "everything.gir", "--to", "mermaid", "--all"]) == 0
    assert main(["export", "everything.gir", "--to", "tree", "--all"]) == 2
    assert "--all is for pictures: dot, mermaid, svg, png, pdf; tree leaves nothing out" in capfd.readouterr().err


def test_fences(capfd: Read) -> None:
    for name, language in (("mermaid", "mermaid"), ("dot", "dot"), ("tree", "text")):
        assert main(["export", "everything.gir", "--to", name, "--fence"]) == 0
        shown = capfd.readouterr().out
        assert shown.startswith(f"```{language}\n")
        assert shown.endswith("\n```\n")
        assert shown[len(language) + 4 : -4] == everything().to(name)


DOCUMENT = "# Title\n\n<!-- gradir: model -->\n<!-- /gradir: model -->\n\nEnd without a line end"


def test_a_block_in_a_document_is_kept_up_to_date(folder: Path, capfd: Read) -> None:
    (folder / "README.md").write_text(DOCUMENT)
    line = ["export", "everything.gir", "--to", "mermaid", "--into", "README.md", "--marker", "model"]
    assert main([*line, "--check"]) == 1
    assert capfd.readouterr().out == "README.md: the block 'model' is out of date\n"
    assert (folder / "README.md").read_text() == DOCUMENT
    assert main(line) == 0
    block = fence_code(everything().to("mermaid"), "mermaid")
    assert (folder / "README.md").read_text() == DOCUMENT.replace("model -->\n<", f"model -->\n{block}<")
    before = (folder / "README.md").stat().st_mtime_ns
    assert main([*line, "--check"]) == main(line) == 0
    assert (folder / "README.md").stat().st_mtime_ns == before
    assert main([*line, "-O", "direction=LR"]) == 0
    assert (folder / "README.md").read_text().count("```mermaid") == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--into", "README.md"], "--into needs --marker"),
        (["--marker", "model"], "need --into FILE"),
        (["--check"], "need --into FILE"),
        (["--into", "README.md", "--marker", "model", "-o", "x"], "cannot use --into with --output"),
        (["--into", "README.md", "--marker", "other"], "README.md: it needs the lines <!-- gradir: other -->"),
        (["--into", "missing.md", "--marker", "model"], "missing.md: cannot be read"),
        (["--into", "binary.md", "--marker", "model"], "binary.md: "),
    ],
)
def test_a_block_that_cannot_be_written_is_one_line(words: list[str], said: str, folder: Path, capfd: Read) -> None:
    (folder / "README.md").write_text(DOCUMENT)
    (folder / "binary.md").write_bytes(b"\xff")
    assert main(["export", "everything.gir", "--to", "mermaid", *words]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert (folder / "README.md").read_text() == DOCUMENT


def test_line_ends_of_the_document_are_kept() -> None:
    document = "a\r\n<!-- gradir: m -->\r\nold\r\n<!-- /gradir: m -->\r\nb"
    assert replace_block(document, "m", "1\n2\n") == document.replace("old", "1\r\n2")


@pytest.mark.parametrize(
    "document", ["", "<!-- gradir: m -->", "<!-- /gradir: m -->\n<!-- gradir: m -->", 2 * DOCUMENT]
)
def test_markers_must_be_there_once(document: str) -> None:
    with pytest.raises(ExportError, match="once each and in this order"):
        replace_block(document, "m", "")
    with pytest.raises(ExportError, match="once each and in this order"):
        replace_block(2 * DOCUMENT, "model", "")


@pytest.mark.parametrize("picture", ["png", "pdf"])
def test_a_picture_is_nothing_for_a_terminal(picture: str, capsys: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["export", "everything.gir", "--to", picture]) == 2
    assert capsys.readouterr() == (
        "",
        f"gradir: cannot print a {picture} on a terminal: give -o FILE, or use 'gradir view'\n",
    )


def test_exporters_can_be_listed_one_by_one(capfd: Read) -> None:
    assert main(["exporters", "tree", "plain"]) == 0
    shown = capfd.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if not line.startswith(" ")] == ["tree", "plain"]
    assert main(["exporters", "tre", "dot"]) == 2
    shown = capfd.readouterr()
    assert shown.out.startswith("dot ")
    assert "unknown exporter 'tre' (did you mean 'tree'?)" in shown.err


@pytest.mark.parametrize("command", ["view", "summary", "convert", "check", "capture", "exporters"])
def test_descriptions_are_as_wide_as_the_terminal(command: str, capfd: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    usage, _, rest = capfd.readouterr().out.partition("\n\n")
    assert usage.startswith(f"usage: gradir {command}")
    assert max(map(len, rest.partition("\n\n")[0].splitlines())) <= 60


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--drop", "leaf", "--focus", "x"], "focus 'x': --drop, which runs before it, left out what it names"),
        (["--focus", "exp:2", "--drop", "leaf", "--ancestors", "h.0"], "focus 'exp:2': --ancestors, which runs before"),
        (["--drop", "leaf", "--between", "x", "output"], "between 'x' and 'output': --drop, which runs before it"),
        (["--drop", "leaf", "--focus", "nothing"], "focus 'nothing': no node, name or module with nodes matches"),
    ],
)
def test_a_node_that_an_earlier_pass_left_out_is_reported_as_left_out(
    words: list[str], said: str, folder: Path, capfd: Read
) -> None:
    b = Builder()
    value = b.tensor("x", TensorMeta())
    for scope in ("h.0", "", ""):
        value = b.function("exp", [value], [TensorMeta()], scope=scope)
    b.output(value)
    gradir.save(b.build(), folder / "exps.gir")
    assert main(["export", "exps.gir", "--to", "tree", *words]) == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"gradir: exps.gir: {said}")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("name", ["jpg", "PNG", "svgg"])
def test_an_unknown_format_is_reported_of_pictures(name: str, capfd: Read) -> None:
    assert main(["export", "everything.gir", "--to", name]) == 2
    error = capfd.readouterr().err
    assert "choose from cytoscape, dot" in error
    assert "svg, png and pdf are pictures" in error
    assert error.count("\n") == 1
    with pytest.raises(ExportError, match="unknown exporter 'svg': svg, png and pdf are pictures, drawn by"):
        everything().to("svg")


def test_wrong_options_of_a_picture_are_reported_as_its_own(capfd: Read) -> None:
    assert main(["export", "everything.gir", "--to", "png", "-O", "colour=red"]) == 2
    assert main(["export", "everything.gir", "--to", "png", "-O", "theme=red"]) == 2
    assert main(["view", "everything.gir", "--to", "svg", "-O", "theme=red"]) == 2
    unknown, wrong, viewed = capfd.readouterr().err.splitlines()
    assert unknown.startswith("gradir: a picture (png) has no option 'colour': its options are direction")
    assert wrong == "gradir: a picture (png): option theme: expected classic|dark|light|paper, not 'red'"
    assert viewed == "gradir: a picture (svg): option theme: expected classic|dark|light|paper, not 'red'"
    with pytest.raises(ExportError, match=r"a picture \(svg\) has no option 'colour'"):
        gradir.render(everything(), "svg", colour="red")


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "1e7"])
def test_a_wrong_number_of_seconds_is_one_line(seconds: str, capfd: Read) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["export", "everything.gir", "--to", "svg", "--seconds", seconds])
    wrong = f"argument --seconds: expected number, above 0 and 1,000,000 or less, not '{seconds}'"
    assert capfd.readouterr().err == f"gradir: {wrong}; see gradir export --help\n"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What a browser was asked to show."""
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: shown.append(address) or True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return shown


def test_view_opens_a_page_and_needs_no_graphviz(
    opened: list[str], capfd: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["view", "everything.gir"]) == 0
    assert main(["view", "chain.gir", "-O", "title=A <chain>"]) == 0
    named, titled = (Path(unquote(urlparse(address).path)) for address in opened)
    assert named.suffix == ".html"
    assert ": everything.gir</title>" in named.read_text()
    assert "<title>A &lt;chain&gt;</title>" in titled.read_text()
    assert main(["view", "everything.gir", "-O", "theme=dark"]) == 2
    assert capfd.readouterr() == ("", "gradir: exporter 'html' has no option 'theme': its options are title, file\n")


@pytest.mark.usefixtures("dot_program")
@pytest.mark.parametrize(("form", "head"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_view_opens_a_picture(form: str, head: bytes, opened: list[str], capfd: Read) -> None:
    assert main(["view", "everything.gir", "--to", form, "-O", "legend=true"]) == 0
    (address,) = opened
    path = Path(unquote(urlparse(address).path))
    assert path.read_bytes().startswith(head)
    assert form != "svg" or "legend" in path.read_text()
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("dot_program")
def test_view_folds_a_graph_that_is_too_large_to_read(opened: list[str], capfd: Read) -> None:
    assert main(["view", "layers.gir", "--to", "svg"]) == 0
    assert "102 layers and operations as 3 boxes: repeated steps once; --all" in capfd.readouterr().err
    assert main(["view", "chain.gir", "--to", "svg"]) == 0
    assert "1,002 nodes as 3 boxes: repeated steps once; --all" in capfd.readouterr().err
    b = Builder()
    b.output(b.function("cat", [b.tensor(f"x{number}", TensorMeta()) for number in range(200)], [TensorMeta()]))
    gradir.save(b.build(), "wide.gir")
    assert main(["view", "wide.gir", "--to", "svg"]) == 0
    assert capfd.readouterr().err == ""
    *_, wide = (Path(unquote(urlparse(address).path)).read_text() for address in opened)
    assert "202 nodes, all drawn: no step makes them fewer" in wide


def test_view_writes_where_it_is_asked_to_and_opens_nothing(opened: list[str], capfd: Read) -> None:
    assert main(["view", "everything.gir", "-o", "page.html"]) == 0
    assert ": everything.gir</title>" in Path("page.html").read_text()
    assert main(["view", "everything.gir", "-o", "-"]) == 0
    assert capfd.readouterr().out == Path("page.html").read_text()
    assert main(["view", "everything.gir", "-o", "tree.txt"]) == 2
    assert main(["view", "everything.gir", "--to", "html", "-o", "page.svg"]) == 2
    assert main(["view", "everything.gir", "-o", "everything.gir"]) == 2
    assert opened == []


def test_view_without_a_browser_says_where_the_page_is(
    capfd: Read, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["view", "everything.gir"]) == 0
    said = capfd.readouterr()
    assert Path(said.out.strip()).read_text().startswith("<!doctype html>")
    assert said.err == ""
