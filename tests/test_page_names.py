"""What a page is called, and how many there are of what: the same words and numbers as on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Browser, details, drawing
from msgspec.structs import replace
from page_graphs import WEIGHT, change_layers, layers_graph

import gradir
from gradir.cli import main
from gradir.cli.sources import shorten_names
from gradir.ir import Builder, Cut, Graph, Scope, TensorMeta

HOSTILE = '<img src=x onerror="alert(1)">\u202e\x1b[31m'
META = TensorMeta("float32", (8, 32))


def activated(op: str, name: str) -> Graph:
    """A linear layer with an activation that is a module of its own, called twice."""
    b = Builder()
    value = b.tensor("x", META, role="leaf")
    for _ in range(2):
        value = b.function("exp", [b.function(op, [value], [META], scope="act")], [META], scope="fc")
    b.output(value)
    return b.build(scopes=[Scope("", "Net"), Scope("fc", "Linear"), Scope("act", name, calls=2)])


def test_title_tab_outline_and_saved_file_name_the_model_and_the_file(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gradir.save(layers_graph(), tmp_path / "model.gir")
    for name in ("export", "view"):
        assert main([name, str(tmp_path / "model.gir"), "-o", str(tmp_path / "page.html")]) == 0
        written = (tmp_path / "page.html").read_text(encoding="utf-8")
        with browser.open(written) as page:
            assert page.page.title() == page.text("h1") == "Model: model.gir"
            assert page.text("[role=treeitem] >> nth=0").startswith("▾Model: model.gir")
            drawing(page)
            with page.page.expect_download() as download:
                page.press("s")
            assert download.value.suggested_filename == "Model-model.gir.svg"
        assert str(tmp_path) not in written
    assert not capsys.readouterr().err


def test_a_page_without_a_file_is_called_by_the_class(browser: Browser) -> None:
    with browser.open(layers_graph().to("html")) as page:
        assert page.page.title() == "Model"
    with browser.open(replace(layers_graph(), scopes={}).to("html")) as page:
        assert page.page.title() == "Graph"
    with browser.open(layers_graph().to("html", title="my own", file="model.gir")) as page:
        assert page.page.title() == "my own"


def test_hostile_names_of_files_and_classes_are_text(browser: Browser) -> None:
    graph = replace(layers_graph(), scopes={**layers_graph().scopes, "": Scope("", HOSTILE)})
    with browser.open(graph.to("html", file=HOSTILE)) as page:
        assert page.page.title().count("<img src=x") == 2
        assert page.page.locator("img").count() == 0
        assert not {"\u202e", "\x1b"} & {*page.page.title(), *page.text("body")}
    review = gradir.diff(graph, change_layers(graph)).to("html", before=HOSTILE, after="b")
    with browser.open(review) as page:
        drawing(page).press("b")
        assert page.page.locator("img").count() == 0
        assert not {"\u202e", "\x1b"} & {*page.page.title(), *page.text("body")}


def test_a_review_names_both_sides(browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, graph in (("old", layers_graph()), ("new", change_layers(layers_graph()))):
        (tmp_path / folder).mkdir()
        gradir.save(graph, tmp_path / folder / "model.gir")
    files = [str(tmp_path / folder / "model.gir") for folder in ("old", "new")]
    assert main(["diff", *files, "-o", str(tmp_path / "review.html")]) == 1
    written = (tmp_path / "review.html").read_text(encoding="utf-8")
    assert str(tmp_path) not in written
    with browser.open(written) as page:
        assert page.page.title() == page.text("h1") == "Model: old/model.gir → new/model.gir"
        words = {entry["words"] for entry in page.ask("legend")}
        assert {"added: only in new/model.gir", "removed: only in old/model.gir"} <= words
        drawing(page).press("b")
        assert page.page.locator(".stage > p").all_inner_texts() == ["old/model.gir", "new/model.gir"]
        assert not page.violations()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["model.gir"], ["model.gir"]),
        (["/there/train.py:loss"], ["train.py:loss"]),
        (["pkg.train:loss"], ["pkg.train:loss"]),
        (["HEAD~1:runs/a.gir", "runs/a.gir"], ["HEAD~1:a.gir", "a.gir"]),
        (["main:a.gir", "topic:a.gir"], ["main:a.gir", "topic:a.gir"]),
        (["/a/b/c.gir", "/a/d/c.gir"], ["b/c.gir", "d/c.gir"]),
        (["/a/b/c.gir", "/a/b/c.gir"], ["c.gir", "c.gir"]),
        (["C:\\runs\\a.gir"], ["a.gir"]),
        (["x:runs/a.gir", "runs/a.gir"], ["runs/a.gir", "runs/a.gir"]),
    ],
)
def test_names_have_no_more_folders_than_distinguish_them(names: list[str], short: list[str]) -> None:
    assert shorten_names(names) == short


def test_a_removed_module_has_the_class_that_it_had(browser: Browser) -> None:
    review = gradir.diff(activated("relu", "ReLU"), activated("gelu", "GELU")).to("html")
    with browser.open(review) as page:
        drawing(page).press("0")
        words = {box["label"][0] for box in page.ask("boxes") if box["name"].startswith("act")}
        assert words
        assert not any("GELU" in each and "ReLU" not in each for each in words), words
        page.press("e")
        captions = [frame["caption"] for frame in page.ask("frames")]
        assert any("ReLU → GELU" in each for each in captions), captions
    gone, came = activated("relu", "ReLU"), activated("gelu", "GELU")
    # With other operations around them nothing of the one is matched with the other.
    apart = {key: replace(node, op="sin" if node.op == "exp" else node.op) for key, node in came.nodes.items()}
    with browser.open(gradir.diff(gone, replace(came, nodes=apart)).to("html")) as page:
        drawing(page).press("0")
        for box in page.ask("boxes"):
            if box["name"].startswith("act") and box["status"] in {"removed", "added"}:
                assert ("ReLU" if box["status"] == "removed" else "GELU") in box["label"][0]


def told(words: str) -> dict[str, int]:
    """The numbers of a line of ``gradir capture``: "45 nodes, 52 edges, …"."""
    found = re.findall(r"([\d,]+) (node|edge|parameter element|cut|parameter)s?( without gradient)?", words)
    return {f"{noun}s{more}": int(number.replace(",", "")) for number, noun, more in found}


def figures(text: str) -> dict[str, int]:
    lines = text.splitlines()
    return {
        name: int(lines[at + 1].replace(",", ""))
        for at, name in enumerate(lines[:-1])
        if re.fullmatch(r"[\d,]+", lines[at + 1])
    }


def test_the_numbers_are_those_of_the_command_line(browser: Browser) -> None:
    from gradir.cli.programs import summarize_graph

    graph = layers_graph(flow=True)
    more = Cut("unreached", ("h.0.other",), "h.0", WEIGHT)
    graph = replace(graph, cuts=(*graph.cuts, more))
    expected = told(summarize_graph(graph))
    assert expected["cuts"] == 1
    assert expected["parameters without gradient"] == 2
    with browser.open(graph.to("html")) as page:
        found = figures(details(page))
        assert found | expected == found
        assert found["modules"] == len(graph.scopes)


def test_a_review_has_the_numbers_of_both_sides(browser: Browser) -> None:
    before = layers_graph()
    diff = gradir.diff(before, change_layers(before))
    with browser.open(diff.to("html", before="a.gir", after="b.gir")) as page:
        rows = page.page.locator(".sides tr").all_inner_texts()
        cells = {row.split("\t")[0]: row.split("\t")[1:] for row in rows}
        assert cells["count"] == ["a.gir", "b.gir"]
        for name, field in (("nodes", "nodes"), ("edges", "edges"), ("parameter elements", "parameters")):
            assert cells[name] == [f"{getattr(side, field):,}" for side in (diff.before, diff.after)]
