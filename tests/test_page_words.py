"""The words of the page: those of who trains a model, and none of gradir's own records."""

from __future__ import annotations

import pytest
from browser import Browser, details, drawing
from msgspec.structs import replace
from page_graphs import META, WEIGHT, failing_graph, layers_graph

import gradir
from gradir.ir import Builder, Graph, Producer, Scope

PRIVATE = ('scope ""', "ext.failed", "a far line", "equals drawn once", "Unreached")


def accumulating() -> Graph:
    """A weight with its accumulator, whose gradient comes from one operation."""
    b = Builder()
    weight = b.tensor("fc.weight", WEIGHT, role="parameter", scope="fc")
    accumulated = b.function("accumulate_grad", [weight], [WEIGHT], scope="fc")
    b.output(b.function("exp", [b.function("t", [accumulated], [WEIGHT], scope="fc")], [META]))
    scopes = [Scope("", "Net"), Scope("fc", "Linear", "in=8, out=8", calls=1, own=32, total=64, trainable=16)]
    return b.build(scopes=scopes, producer=Producer(framework="torch"))


def test_a_weight_is_consumed_by_its_readers(browser: Browser) -> None:
    graph = accumulating()
    (accumulator,) = (key for key, node in graph.nodes.items() if node.op == "accumulate_grad")
    with browser.open(graph.to("html"), "#node=fc.weight") as page:
        page.page.get_by_label("Details").get_by_role("button", name="fc/t:1").wait_for()
        assert accumulator not in details(page)
        page.page.get_by_label("Details").get_by_role("button", name="fc/t:1").click()
        assert "fc.weight" in details(page)
        assert accumulator not in details(page)
        # Who asks for accumulators is told of them.
        drawing(page).press("g")
        assert accumulator in details(page)


def test_a_module_says_what_its_numbers_are(browser: Browser) -> None:
    with browser.open(accumulating().to("html"), "#module=fc") as page:
        said = details(page).splitlines()
        assert said[said.index("own parameters") + 1] == "32"
        assert said[said.index("trainable parameters") + 1] == "16"
        assert said[said.index("settings") + 1] == "in=8, out=8"
        assert not {"own", "detail", "trainable"} & {*said}


def test_a_review_calls_the_root_and_the_fields_of_modules_by_words(browser: Browser) -> None:
    before = accumulating()
    root = replace(before.scopes[""], calls=2)
    linear = replace(before.scopes["fc"], detail="in=8, out=8, bias=False", own=128, total=128)
    after = replace(before, scopes={"": root, "fc": linear})
    with browser.open(gradir.diff(before, after).to("html")) as page:
        rows = page.page.locator(".row[role=option]:not(.heading)").all_inner_texts()
        assert any("(top level)" in row for row in rows), rows
        assert not any(words in " ".join(rows) for words in PRIVATE)
        fields: set[str] = set()
        for row in range(len(rows)):
            page.page.locator(".row[role=option]:not(.heading)").nth(row).click()
            fields |= {*page.page.locator("[aria-label=Details] .fields th[scope=row]").all_inner_texts()}
        assert {"settings", "own parameters"} <= fields
        assert not {"own", "detail", "total"} & fields


@pytest.mark.parametrize("keys", [(), ("e",), ("0",), ("?",)])
def test_no_page_has_private_words(browser: Browser, keys: tuple[str, ...]) -> None:
    for graph in (failing_graph(), layers_graph(20), layers_graph(flow=True)):
        with browser.open(graph.to("html")) as page:
            drawing(page).press(*keys)
            said = page.text("body")
            assert not [words for words in PRIVATE if words in said]


def test_an_error_is_reported_once(browser: Browser) -> None:
    with browser.open(failing_graph().to("html")) as page:
        assert details(page).count("sizes 4 and 8 differ") == 1
