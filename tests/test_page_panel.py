"""The panel at the right: what it tells before anything is selected, and of the source line of a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser, Opened, details, drawing
from msgspec.structs import replace
from page_graphs import layers_graph

from gradir.cli import main
from gradir.lines import add_lines, line_text, remember

PROGRAM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)

    def forward(self, x):
        return self.fc(x).exp()  # <b>\u202ethe line</b>

def loss():
    model = Net()
    return model, model(torch.ones(1, 2)).sum()
"""


def ranks(page: Opened, title: str) -> list[list[str]]:
    """The rows of one ranking: amount, name, number of equals."""
    rows = page.page.locator(f"h3:text-is('{title}') + ul > li")
    return [row.replace("\xa0", " ").split("\n") for row in rows.all_inner_texts()]


def test_the_panel_ranks_the_largest_before_a_selection(browser: Browser) -> None:
    with browser.open(layers_graph(flow=True).to("html")) as page:
        said = details(page)
        assert "1 of 11 parameters gets no gradient: detach() cuts lost.weight" in said
        kept = " ".join(ranks(page, "Saved for backward")[0])
        assert all(words in kept for words in ("h.0.mlp", "×4", "1.5 kB")), kept
        widths = page.page.evaluate("[...document.querySelectorAll('.bar')].map((bar) => bar.offsetWidth)")
        assert widths[0] > widths[1] > 0
        largest = " ".join(ranks(page, "Parameters by size")[0])
        assert "256" in largest
        assert "×4" in largest
        assert not page.violations()
        page.page.locator("[aria-label=Details] button.link").first.click()
        assert page.ask("selection") == {"kind": "module", "name": "h.0.mlp"}
        drawing(page).press("Escape")
        assert "Saved for backward" in details(page)


def test_a_source_file_leads_to_its_operations(browser: Browser) -> None:
    with browser.open(layers_graph().to("html")) as page:
        page.page.get_by_label("Details").get_by_role("button", name="net.py").click()
        page.wait("hits.length > 0")
        found = {node.id for node in layers_graph().nodes.values() if node.source}
        assert {*page.ask("hits")} == found


def test_a_node_shows_the_text_of_its_line(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("lined_net.py").write_text(PROGRAM, encoding="utf-8")
    assert main(["view", "lined_net.py:loss", "--sources", "-o", "page.html"]) == 0
    written = Path("page.html").read_text(encoding="utf-8")
    with browser.open(written, "#node=exp:1") as page:
        page.page.get_by_label("Details").get_by_text("return self.fc(x).exp()").wait_for()
        assert page.text("[aria-label=Details] pre") == "return self.fc(x).exp()  # <b>\\u202ethe line</b>"
        assert str(tmp_path) not in page.page.content()
        assert not page.violations()


def test_no_file_is_read_because_a_graph_names_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n" * 99, encoding="utf-8")
    nodes = {
        key: replace(node, source=replace(node.source, file=str(secret)) if node.source else None)
        for key, node in layers_graph().nodes.items()
    }
    graph = replace(layers_graph(), nodes=nodes)
    assert add_lines(graph) == graph
    # Other tests have programs of the common name.
    remember("only_here.py", str(secret))
    assert line_text("only_here.py", 41) == "password = 1"
    remember("net.py", str(secret))
    remember("net.py", str(tmp_path / "other.py"))
    # Which of the two it is cannot be told.
    assert line_text("net.py", 41) == ""
    assert add_lines(layers_graph()) == layers_graph()


def test_an_editor_is_linked_once_the_reader_gives_the_folder(browser: Browser) -> None:
    answers = ["javascript:alert(1)", "vscode://file/home/me/{file}:{line}"]
    with browser.open(layers_graph().to("html"), "#node=h.0.mlp/mm:1", viewport={"width": 1400, "height": 900}) as page:
        page.page.on("dialog", lambda dialog: dialog.accept(answers.pop(0)))
        panel = page.page.get_by_label("Details")
        panel.get_by_role("button", name="Open in an editor…").wait_for()
        assert panel.get_by_role("link").count() == 0
        panel.get_by_role("button", name="Open in an editor…").click()
        assert panel.get_by_role("link").count() == 0, "no script"
        panel.get_by_role("button", name="Open in an editor…").click()
        assert panel.get_by_role("link").get_attribute("href") == "vscode://file/home/me/net.py:41"
        assert not page.violations()
        page.page.reload()
        panel.get_by_role("link").wait_for()
    # Another title is another matter.
    with browser.open(layers_graph().to("html", title="other"), "#node=h.0.mlp/mm:1") as page:
        page.page.get_by_role("button", name="Open in an editor…").wait_for()
