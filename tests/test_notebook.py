"""A real notebook, executed: what a cell that ends in a graph shows."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from page_reader import page_data

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

GRAPH = """
from gradir.ir import Builder, TensorMeta
def layers(count):
    b = Builder()
    value = b.tensor("x", TensorMeta("float32", (3,)))
    for number in range(count):
        value = b.function("exp", [value], [TensorMeta("float32", (3,))], scope=f"h.{number // 10}")
    b.output(value)
    return b.build()
"""


@pytest.fixture(scope="module")
def shown() -> dict[str, dict[str, Any]]:
    """What each cell of the notebook shows, by its source."""
    sources = [
        GRAPH,
        "layers(5)",
        "layers(1000)",
        "import os; os.environ['GRADIR_DOT'] = '/nowhere/dot'",
        "layers(6)",
        "del os.environ['GRADIR_DOT']",
        "import gradir; gradir.make_dot",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    done = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = {cell.source: cell.outputs for cell in done.cells}
    return {source: out[0].data for source, out in outputs.items() if out}


@pytest.mark.usefixtures("dot_program")
def test_a_small_graph_is_a_picture(shown: dict[str, dict[str, Any]]) -> None:
    small = shown["layers(5)"]
    assert small["text/plain"] == "<gradir.Graph: 7 nodes, 6 edges, 1 output>"
    assert "<svg" in small["image/svg+xml"]
    assert small["image/svg+xml"].count("<title>") >= 7


@pytest.mark.usefixtures("dot_program")
def test_a_large_graph_is_made_small_and_the_picture_says_how(shown: dict[str, dict[str, Any]]) -> None:
    large = shown["layers(1000)"]
    assert large["text/plain"] == "<gradir.Graph: 1002 nodes, 1001 edges, 1 output>"
    assert 3 <= large["image/svg+xml"].count('class="node') <= 60
    assert "1,002 nodes as 12 boxes: equal layers once" in large["image/svg+xml"]


def test_any_graph_is_a_page(shown: dict[str, dict[str, Any]]) -> None:
    for source in ("layers(5)", "layers(1000)", "layers(6)"):
        frame = shown[source]["text/html"]
        assert frame.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
        assert 'sandbox="allow-scripts allow-downloads"' in frame
        assert frame.count("<") == 4, "nothing of the page is markup of the notebook"
    assert "gradir.Graph: 1002 nodes" in shown["layers(1000)"]["text/html"]


TRAINED = """
import torch, gradir
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.head(self.encoder(x).detach())
model, x = Net(), torch.ones(2, 4)
def told(shown):
    print(shown._repr_mimebundle_()["text/html"])
"""
RECORDED = """
with gradir.record(model, flow=True, sources=True) as rec:
    loss = model(x).sum()
graph = rec.capture(loss)
"""


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What each cell of a notebook with a model prints, by its source."""
    pytest.importorskip("torch")
    sources = [
        TRAINED,
        "told(gradir.capture(model(x).sum(), model=model))",
        RECORDED,
        "told(graph)",
        "print(rec.explain(loss))",
        "told(gradir.diff(gradir.capture(model(x).sum(), model=model), graph))",
        "print('text/html' in gradir.diff(graph, graph)._repr_mimebundle_())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    done = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return {
        cell.source: "".join(out.text for out in cell.outputs if out.output_type == "stream") for cell in done.cells
    }


def page_of(shown: str) -> str:
    """The data of the page in a frame."""
    return page_data(unescape(shown.partition('srcdoc="')[2].partition('" title=')[0]))


def test_a_graph_without_modules_says_how_to_get_them(printed: dict[str, str]) -> None:
    blind = printed["told(gradir.capture(model(x).sum(), model=model))"]
    assert "with gradir.record(model) as rec:" in blind
    assert "rec.capture(loss)" in blind
    assert "gradir.record" not in printed["told(graph)"].partition("</iframe>")[2]


def test_places_are_cells(printed: dict[str, str]) -> None:
    assert "detach() cuts all of encoder (cell 1, line 7 in Net.forward)" in printed["print(rec.explain(loss))"]
    data = page_of(printed["told(graph)"])
    assert "detach() cuts all of encoder (cell 1, line 7 in Net.forward)." in data
    assert "cell 3, line 2" in data
    # The text of the line, and no name that Python made up for a cell.
    assert "return self.head(self.encoder(x).detach())" in data
    assert not re.search(r"\d{6,}\.py", data)


def test_a_diff_is_a_page(printed: dict[str, str]) -> None:
    shown = printed["told(gradir.diff(gradir.capture(model(x).sum(), model=model), graph))"]
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert "Net: before → after" in page_of(shown)
    assert printed["print('text/html' in gradir.diff(graph, graph)._repr_mimebundle_())"] == "False\n"


def test_a_graph_too_large_for_a_notebook_is_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from samples import everything

    from gradir import display

    assert "text/html" in display.mimebundle(everything())
    monkeypatch.setattr(display, "_LARGEST_PAGE", 1000)
    assert "text/html" not in display.mimebundle(everything())


def test_a_graph_that_cannot_be_drawn_is_mermaid(shown: dict[str, dict[str, Any]]) -> None:
    plain = shown["layers(6)"]
    assert "image/svg+xml" not in plain
    assert "flowchart TB" in plain["text/vnd.mermaid"]
