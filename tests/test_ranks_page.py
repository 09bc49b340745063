"""What is found of ranks as a page, in Chromium, and as JSON that the published schema describes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import jsonschema
import pytest
from browser import Browser, Opened
from msgspec.structs import replace
from ranks_by_hand import make_rank, net, reduce
from samples import hostile

import gradir
from gradir.cli import main
from gradir.distributed.model import Finding, Group, Ranks
from gradir.ir import Builder, Collective, Cut, Graph, Rank, Source, TensorMeta

SCHEMA = Path(__file__).parents[1] / "schemas" / "gir-ranks-1.0.schema.json"
EVIL = "</style></script><img src=x onerror=alert(1)>\"'&\u202e\x1b[31m"


def placed(rank: int, issued: Sequence[Collective] = (), **more: Any) -> Graph:
    return make_rank(rank, issued, coordinates={"dp": rank // 2, "tp": rank % 2}, **more)


def hanging() -> list[Graph]:
    """Four ranks, the last of which has left out a module."""
    full = [placed(rank, [reduce(node="b/mul:1"), reduce(2, source=Source("train.py", 7))]) for rank in range(3)]
    return [*full, placed(3, [reduce(node="b/mul:1")], graph=net(branch=False))]


@contextmanager
def report(browser: Browser, html: str, **context: Any) -> Iterator[Opened]:
    """A page from the disk, which in the end has said nothing and asked for nothing but itself and its frames."""
    address = browser.write(html)
    with browser.visit(Path(url2pathname(urlsplit(address).path)), **context) as opened:
        yield opened
        assert opened.said == []
        assert {each for each in opened.asked if not each.startswith("blob:")} <= {address, "about:srcdoc"}


def document(found: Ranks) -> dict[str, object]:
    made: dict[str, object] = json.loads(found.to("json"))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(made)
    return made


def test_the_published_schema_matches_the_records() -> None:
    from report_schemas import schemas

    assert SCHEMA.read_text(encoding="utf-8") == schemas()[SCHEMA.name]


def test_json_matches_the_schema() -> None:
    made = document(gradir.ranks(hanging()))
    assert (made["format"], made["version"], made["world"]) == ("gir-ranks", "1.0", 4)
    assert [finding["kind"] for finding in made["findings"]] == ["hang", "graphs", "cuts"]  # type: ignore[index]
    document(gradir.ranks(hanging()[:1]))
    text = gradir.ranks([replace(hostile(), rank=Rank(0, 1))]).to("json")
    assert text.isascii() or text.replace("\n", "").isprintable()
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    for wrong in ({"world": "four"}, {"findings": [{"kind": "odd", "ranks": [], "lines": []}]}, {"version": "2.0"}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({**made, **wrong})


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_says_all_that_the_text_says_and_can_be_read_by_all(browser: Browser, theme: str, width: int) -> None:
    found = gradir.ranks(hanging())
    with report(browser, found.to("html"), color_scheme=theme, viewport={"width": width, "height": 800}) as opened:
        page = opened.page
        assert page.title() == "gradir ranks"
        shown = page.inner_text("main")
        for line in (
            *("4 of 4 ranks, 2 graphs", "HANG: ranks 0-2", "another graph: rank 3", "no gradient on any rank for c"),
            *(line for finding in found.findings for line in finding.lines),
        ):
            assert line in shown, line
        assert "(train.py:7)" in shown
        rows = page.locator("table").first.locator("tbody tr").all_inner_texts()
        assert [re.split(r"\s*\t\s*", row) for row in rows] == [
            ["A ranks 0-2", "5", "4", "0", "8", "2"],
            ["B rank 3", "3", "2", "0", "4", "1"],
        ]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.violations() == []


def test_the_graph_of_a_group_is_opened_in_the_page(browser: Browser) -> None:
    with report(browser, gradir.ranks(hanging()).to("html")) as opened:
        page = opened.page
        names = page.locator("summary").all_inner_texts()
        assert names == ["graph of ranks 0-2: 5 nodes", "graph of rank 3: 3 nodes"]
        page.locator("summary").nth(1).click()
        # Chromium draws no frame that is out of sight.
        page.locator("details[open] iframe").scroll_into_view_if_needed()
        frame = page.frame_locator("details[open] iframe")
        frame.locator("[role=application]").wait_for()
        (inner,) = [each for each in page.frames if each != page.main_frame and each.evaluate("!!window.gradir")]
        inner.wait_for_function("() => window.gradir?.timings.picture > 0")
        assert inner.title() == "graph of rank 3: 3 nodes"
        assert inner.evaluate("(() => { try { return parent.document.title } catch { return 'apart' } })()") == "apart"


def test_names_of_others_are_text_and_nothing_else(browser: Browser) -> None:
    graph = replace(hostile(), rank=Rank(0, 2, groups={EVIL: (0, 1)}, coordinates={EVIL: 0}))
    issued = Collective("backward", EVIL, EVIL, node=EVIL, source=Source(EVIL, 1))
    other = Graph.of([], cuts=[Cut("unreached", (EVIL,))], rank=Rank(1, 2, EVIL, {EVIL: 1}, {EVIL: (0, 1)}))
    found = gradir.ranks([replace(graph, collectives=(issued,)), other])
    assert [finding.kind for finding in found.findings] == ["hang", "graphs", "cuts"]
    html = found.to("html")
    document(found)
    assert "<img" not in html
    assert "\x1b" not in html
    with report(browser, html) as opened:
        assert "</style></script><img src=x" in opened.page.inner_text("main")
        assert opened.page.locator("img").count() == 0
        assert opened.page.evaluate("document.querySelectorAll('script').length") == 0
        assert opened.violations() == []
        opened.page.locator("summary").first.click()
        opened.page.locator("details[open] iframe").scroll_into_view_if_needed()
        opened.page.frame_locator("details[open] iframe").locator("[role=application]").wait_for()


def tables(html: str) -> list[list[list[str]]]:
    """The rows of each table of a page, without the names of its groups of equal graphs."""
    found = []
    for table in html.split("<table")[1:]:
        rows = re.findall(r"<tr>(.*?)</tr>", table.split("</table>")[0], re.DOTALL)
        found.append([re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows])
    return found


def test_the_first_mismatch_is_marked_and_the_mesh_is_a_grid() -> None:
    groups, mesh, lanes = tables(gradir.ranks(hanging()).to("html"))
    assert [row[0] for row in groups[1:]] == [
        '<b class="chip g0">A</b> ranks 0-2',
        '<b class="chip g1">B</b> rank 3',
    ]
    assert mesh == [["", "tp 0", "tp 1"], ["dp 0", "0 A", "1 A"], ["dp 1", "2 A", "3 B"]]
    # No dimension tells the ranks of a place apart if nothing is exchanged in it.
    alone = (replace(each, rank=replace(each.rank, coordinates={"dp": each.rank.rank // 2})) for each in hanging())
    assert tables(gradir.ranks(alone).to("html"))[1] == [["", "dp 0", "dp 1"], ["rank", "0 A, 1 A", "2 A, 3 B"]]
    waiting = ["AR<small>world</small>", "✗ AR<small>world</small>"]
    assert lanes == [
        ["", "1", "2"],
        *([f'rank {rank} <b class="chip g0">A</b>', *waiting] for rank in range(3)),
        ['rank 3 <b class="chip g1">B</b>', waiting[0], "✗ ended"],
    ]


def test_the_first_mismatch_is_linked_and_mixed_tensors_are_no_proof() -> None:
    html = gradir.ranks(hanging()).to("html")
    assert '<a href="#mismatch">' in html
    assert html.count('id="mismatch"') == 1
    sides = [replace(reduce(), phase="forward", scope=scope) for scope in ("a", "b")]
    html = gradir.ranks(placed(rank, [sides[rank // 3]]) for rank in range(4)).to("html")
    assert '<p class="names">1 collective, each entered' in html
    assert html.count("✗ AR") == 4


def test_ranks_without_a_graph_have_no_empty_table() -> None:
    whys = ("fails", "waits", "waits", "waits")
    html = gradir.ranks(make_rank(rank, [reduce()], graph=Graph({}), stopped=why) for rank, why in enumerate(whys)).to(
        "html"
    )
    assert "groups of ranks" not in html
    assert "no graph, waited in the last collective" in html


def test_few_ranks_in_a_large_mesh_make_no_large_page() -> None:
    alike = Graph.of([])
    places = [Rank(rank, 100, coordinates={"dp": rank, "tp": rank}) for rank in range(100)]
    html = gradir.ranks(replace(alike, rank=rank) for rank in places).to("html")
    assert "10,000 places: too many to draw" in html
    assert '<table class="mesh">' not in html


def test_of_many_ranks_and_collectives_those_around_the_mismatch_are_shown() -> None:
    lists = [[reduce(1 + number) for number in range(200)], [reduce(1 + number) for number in range(120)]]
    html = gradir.ranks(make_rank(rank, lists[rank == 7], world=40) for rank in range(40)).to("html")
    *_, (heads, *rows) = tables(html)
    assert (heads[1], heads[-1]) == ("97", "144")
    assert [row[0] for row in rows] == ["ranks 0-6, 8-39", "rank 7"]
    assert [row.index(marked) for row, marked in zip(rows, ["✗ AR<small>world</small>", "✗ ended"], strict=True)] == [
        25,
        25,
    ]
    assert "the first 96 are not shown" in html


def test_the_policy_of_the_page_lets_nothing_in() -> None:
    html = gradir.ranks(hanging()).to("html")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html.split("<main>")[0])
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org)", html.split("<main>")[0])


def test_of_many_groups_the_first_are_drawn_and_of_what_was_read_none() -> None:
    many = []
    for rank in range(12):
        b = Builder()
        b.output(b.function(f"op{rank}", [b.tensor("w", TensorMeta("float32", (2,)))], [TensorMeta("float32", (2,))]))
        many.append(replace(b.build(), rank=Rank(rank, 12)))
    html = gradir.ranks(many).to("html")
    assert html.count("<iframe ") == 8
    assert "4 graphs more are not in this page." in html
    bare = Ranks(2, (0, 1), (Group((0, 1), 1, 0, 0, 0, 0),), (Finding("cuts", (0,), ("no gradient for w",)),))
    assert "<iframe" not in bare.to("html")
    assert "script-src 'none'" in bare.to("html")


def test_the_command_writes_what_the_name_says(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{rank}.gir") for rank in range(4)]
    for graph, path in zip(hanging(), paths, strict=True):
        graph.save(path)
    starts = {"html": "<!doctype html>", "json": '{\n  "format": "gir-ranks"', "md": "**4 of 4 ranks", "txt": "4 of 4"}
    for suffix, start in starts.items():
        written = tmp_path / f"ranks.{suffix}"
        assert main(["ranks", *paths, "-o", str(written)]) == 1
        assert written.read_text(encoding="utf-8").startswith(start)
    assert main(["ranks", *paths, "--format", "text", "-o", str(tmp_path / "as.html")]) == 1
    assert (tmp_path / "as.html").read_text(encoding="utf-8").startswith("4 of 4")
