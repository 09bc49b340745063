"""The page at first sight: layers, shapes on lines, what gets no gradient, and words that can be read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Opened, details, drawing
from first_sight import DESKTOP, LEAST, PHONE
from msgspec.structs import replace
from page_graphs import failing_graph, layers_graph

from gradir.ir import Builder, Cut, Graph, Node, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.cuts import FLOW

META = TensorMeta("float32", (4, 8))
SQUARE = TensorMeta("float32", (8, 8))


def adversarial(*, flow: bool, kept: bool = False) -> Graph:
    """A discriminator that is called twice, and a generator whose output is detached, with the place if ``flow``.

    With ``kept`` both calls keep a buffer.
    """
    b = Builder()
    weight = b.tensor("disc.0.weight", SQUARE, role="parameter", scope="disc.0")
    mean = b.tensor("disc.0.mean", META, role="buffer", scope="disc.0") if kept else None
    results = []
    for name in ("real", "fake"):
        x = b.tensor(name, META, role="input")
        turned = b.function("t", [weight], [SQUARE], scope="disc.0")
        saved = [(Saved("mean", storage="disc.0.mean"), mean)] if kept else []
        value = b.function("mm", [x, turned], [META], scope="disc.0", saved=saved)
        results.append(b.function("relu", [value], [META], scope="disc.1"))
    b.output(b.function("add", results, [META]))
    scopes = [
        Scope("", "Gan"),
        *(
            Scope(f"gen{inner}", name, calls=1, own=own, total=64, trainable=64)
            for inner, name, own in (("", "Net", 0), (".0", "Linear", 64))
        ),
        *(Scope(f"disc{inner}", name, calls=2) for inner, name in (("", "Net"), (".0", "Linear"), (".1", "ReLU"))),
    ]
    place = Cut("detach", ("gen.0.weight",), "", META, "detach", Source("gan.py", 12), into="disc.0/mm:2", slot=0)
    lost = Cut("unreached", ("gen.0.weight",), "gen.0", SQUARE)
    graph = b.build(scopes=scopes)
    return replace(
        graph, cuts=(lost, place) if flow else (lost,), producer=Producer(options={FLOW: True} if flow else {})
    )


def two_ways() -> Graph:
    """A residual connection round two operations, and what it begins and ends with."""
    b = Builder()
    value = b.function("first", [b.tensor("w", META, role="parameter")], [META])
    inner = b.function("tanh", [b.function("exp", [value], [META])], [META])
    b.function("beside", [value], [META])
    b.output(b.function("last", [b.function("add", [value, inner], [META])], [META]))
    return b.build()


def box(opened: Opened, name: str) -> Any:
    return next(each for each in opened.ask("boxes") if each["name"] == name)


def test_a_module_without_a_node_is_drawn_where_it_gets_no_gradient(browser: Browser) -> None:
    with browser.open(adversarial(flow=False).to("html"), viewport=DESKTOP) as page:
        gen = box(page, "gen")
        assert gen["isLost"]
        assert gen["fill"] == "lost"
        assert gen["label"] == ["gen: Net", "64 parameters", "no gradient"]
        assert not any(edge["from"] == "gen" for edge in page.ask("edges")), "where it would lead to is not known"
        drawing(page).open("gen")
        assert box(page, "gen.0")["label"] == ["0: Linear", "weight [8, 8]", "no gradient"]
        page.press("e")
        assert box(page, "gen.0")["isLost"], "it has nothing in it to open"
        page.press("u")
        page.page.get_by_role("option").filter(has_text="gen.0.weight").click()
        assert page.ask("selection")["kind"] == "cut"


@pytest.mark.parametrize(("call", "words"), [(2, "detach adversary.py:12"), (1, "detach")])
def test_the_line_of_a_cut_gives_way_to_a_frame_beside_it(browser: Browser, call: int, words: str) -> None:
    graph = adversarial(flow=True)
    lost, place = graph.cuts
    graph = replace(graph, cuts=(lost, replace(place, into=f"disc.0/mm:{call}", source=Source("adversary.py", 12))))
    with browser.open(graph.to("html"), "#open=disc,disc#2", viewport=DESKTOP) as page:
        with drawing(page).page.expect_download() as download:
            page.press("s")
        svg = Path(download.value.path()).read_text(encoding="utf-8")
        assert re.findall(">(detach[^<]*)<", svg) == [words]


def test_modules_without_gradient_are_in_sight_on_a_phone(browser: Browser) -> None:
    b = Builder()
    x = b.tensor("x", META)
    heads = ("one", "two", "three")
    weights = [b.tensor(f"{name}.weight", SQUARE, role="parameter", scope=name) for name in heads]
    found = [b.function("mm", [x, weight], [META], scope=name) for name, weight in zip(heads, weights, strict=True)]
    b.output(b.function("add", found, [META]))
    graph = b.build(scopes=[Scope(""), *(Scope(name, "Linear", calls=1) for name in (*heads, "gen"))])
    lost = Cut("unreached", ("gen.weight",), "gen", SQUARE)
    with browser.open(replace(graph, cuts=(lost,)).to("html"), viewport=PHONE) as page:
        view, gen = page.ask("view"), box(page, "gen")
        assert view["x"] > min(each["x"] for each in page.ask("boxes")), "not all is in sight"
        assert gen["x"] + gen["width"] <= view["x"] + view["width"] / view["k"]


@pytest.mark.parametrize("link", ["", "#open=disc#2", "#open=gen,disc#2.0"])
def test_a_dashed_line_leads_from_a_lost_module_to_its_reader(browser: Browser, link: str) -> None:
    with browser.open(adversarial(flow=True).to("html"), link) as page:
        ends = [(edge["from"], edge["to"]) for edge in page.ask("edges") if edge["from"].startswith("gen")]
        (tail, head), *others = ends
        assert not others
        assert tail == ("gen.0" if "gen" in link else "gen")
        assert head.startswith("disc")
        assert "#2" in head or head == "disc.0/mm:2"


def test_a_lost_module_within_a_closed_one_is_reported_there(browser: Browser) -> None:
    graph = adversarial(flow=False)
    scopes = [*graph.scopes.values(), Scope("disc.aux", "Linear", own=64, total=64, trainable=64)]
    cut = Cut("unreached", ("disc.aux.weight",), "disc.aux", SQUARE)
    with browser.open(Graph.of([*graph.nodes.values()], scopes, cuts=[cut]).to("html"), "#open=") as page:
        assert [stub["box"] for stub in page.ask("stubs")] == ["disc"]
        drawing(page).open("disc")
        assert not page.ask("stubs")
        assert box(page, "disc.aux")["isLost"]


def test_very_many_lost_modules_are_reported_of_the_one_around_them(browser: Browser) -> None:
    graph = adversarial(flow=False)
    paths = [f"disc.{number}" for number in range(10, 100)]
    scopes = [*graph.scopes.values(), *(Scope(path, "Linear", own=64, total=64) for path in paths)]
    cuts = [Cut("unreached", (f"{path}.weight",), path, SQUARE) for path in paths]
    for link in ("#open=", "#open=disc"):
        with browser.open(Graph.of([*graph.nodes.values()], scopes, cuts=cuts).to("html"), link) as page:
            assert [stub["box"] for stub in page.ask("stubs")] == ["disc"] * 90
            assert not any(each["isLost"] for each in page.ask("boxes"))


@pytest.mark.parametrize("kept", [False, True], ids=["", "with a buffer"])
def test_two_calls_of_a_module_have_a_frame_each(browser: Browser, kept: bool) -> None:
    with browser.open(adversarial(flow=False, kept=kept).to("html"), "#open=disc,disc#2") as page:
        assert {frame["name"] for frame in page.ask("frames")} == {"disc", "disc#2"}
        lines = {(edge["from"], edge["to"]) for edge in page.ask("edges")}
        assert {("disc.0", "disc.1"), ("disc#2.0", "disc#2.1")} <= lines
        assert not {("disc.0", "disc#2.1"), ("disc#2.0", "disc.1"), ("disc.0", "disc#2.0")} & lines
        assert box(page, "disc#2.0")["label"] == ["0: Linear", "weight [8, 8]"]


def test_a_layer_is_one_box_and_shapes_are_on_the_lines(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), viewport=DESKTOP) as page:
        assert page.ask("switches")["layers"]
        drawing(page).open("h.0")
        assert box(page, "h.0.attn")["label"] == ["attn: ATTN", "weight [8, 8]"]
        assert box(page, "h.0/add:1")["label"] == ["add"]
        assert "[4, 8]" in {edge["words"] for edge in page.ask("edges")}
        page.open("h.0.attn")
        assert {name for name in page.names() if name.startswith("h.0.attn")} == {"h.0.attn/mm:1", "h.0.attn/softmax:1"}
        page.page.get_by_role("button", name="Operations").click()
        page.wait("boxes.some(({name}) => name === 'h.0.attn/view:1')")
        assert "float32 [4, 8]" in box(page, "h.0.attn/mm:1")["label"]
        assert {edge["words"] for edge in page.ask("edges")} == {""}
        page.page.get_by_role("button", name="Operations").click()
        page.wait("boxes.every(({name}) => !name.startsWith('h.0.attn/'))")


def test_hidden_operations_leave_their_lines_connected(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), "#open=*&on=layers,shapes,accumulators,inline") as page:
        lines = {(edge["from"], edge["to"]) for edge in page.ask("edges")}
        assert ("h.0/add:1", "h.0.mlp/mm:1") in lines
        assert not any("view" in end for line in lines for end in line)


def test_a_class_of_module_has_one_colour(browser: Browser) -> None:
    fills = []
    for layers in (2, 3):
        with browser.open(layers_graph(layers).to("html"), "#open=h.0", color_scheme="dark") as page:
            assert page.ask("colour") == "class"
            fills.append([box(page, name)["fill"] for name in ("h.0.attn", "h.0.mlp", "head")])
    assert fills[0] == fills[1]
    assert len({*fills[0]}) == 3


def test_inputs_are_drawn_where_the_file_knows_them(browser: Browser) -> None:
    with browser.open(adversarial(flow=False).to("html")) as page:
        assert {"real", "fake"} <= {*page.names()}


def test_the_module_with_most_of_the_graph_is_opened_first(browser: Browser) -> None:
    with browser.open(layers_graph(40).to("html"), viewport=DESKTOP) as page:
        assert page.ask("opened") == ["", "h", "h.0"]
        captions = [frame["caption"] for frame in page.ask("frames")]
        assert captions == ["h: ModuleList", "0\u201339: Block \u00d740"]


def test_all_ways_to_the_loss_are_lit_and_what_they_share_the_most(browser: Browser) -> None:
    with browser.open(two_ways().to("html"), "#node=first:1") as page:
        drawing(page).press("l")
        page.wait("trail === 'path'")
        lit = {each["name"]: (each["lit"], each["isShared"]) for each in page.ask("boxes")}
        assert {name for name, (is_lit, _) in lit.items() if is_lit} == {
            "first:1",
            "exp:1",
            "tanh:1",
            "add:1",
            "last:1",
            "output",
        }
        assert {name for name, (_, shared) in lit.items() if shared} == {"first:1", "add:1", "last:1", "output"}


def test_a_far_line_goes_round_the_boxes(browser: Browser) -> None:
    b = Builder()
    mask = b.function("mask", [b.tensor("x", META)], [META])
    value = mask
    for _ in range(40):
        value = b.function("tanh", [b.function("mul", [value, mask], [META])], [META])
    b.output(value)
    with browser.open(b.build().to("html"), "#on=layers") as page:
        crossed = page.page.evaluate("""
        () => {
          const {boxes, edges} = told;
          const far = edges.filter(({marked}) => marked);
          const isWithin = (at, start, length) => at > start + 1 && at < start + length - 1;
          const isIn = (x, y) => (box) => isWithin(x, box.x, box.width) && isWithin(y, box.y, box.height);
          const hits = far.filter(({way, from, to}) => {
            const others = boxes.filter(({name}) => name !== from && name !== to);
            for (let at = 0; at + 3 < way.length; at += 2) for (let step = 1; step < 50; step++) {
              const [x, y] = [at, at + 1].map((side) => way[side] + (way[side + 2] - way[side]) * step / 50);
              if (others.some(isIn(x, y))) return true;
            }
            return false;
          });
          return [far.length, hits.length];
        }""")
        assert crossed[0] > 10
        assert crossed[1] == 0


def test_a_failed_operation_shows_the_shapes_of_its_inputs(browser: Browser) -> None:
    graph = failing_graph()
    left = Node("output", "output", inputs=(Ref("relu:1", 0),), outputs=(META,))
    with browser.open(replace(graph, nodes={**graph.nodes, "output": left}).to("html"), viewport=DESKTOP) as page:
        label = box(page, "add:1")["label"]
        assert label[0] == "add"
        unread = box(page, "output")
        assert (unread["role"], unread["label"]) == ("other", ["never read", "float32 [4, 8]"])
        assert {"[4, 8]", "[8, 8]"} <= {*" ".join(label[1:]).replace(" · ", ";").replace("weight ", "").split(";")}
        said = details(page)
        assert "float32[4, 8]" in said
        assert "float32[8, 8]" in said


def test_the_view_follows_an_opened_module(browser: Browser) -> None:
    with browser.open(
        layers_graph(6).to("html"), "#open=h&on=layers,shapes,accumulators,inline", viewport=DESKTOP
    ) as page:
        drawing(page)
        for name in ("h.5", "h.5.mlp", "h.0"):
            page.ask("toggle(it)", name)
            view = page.ask("view")
            frame = next(each for each in page.ask("frames") if each["name"] == name)
            assert 12 * view["k"] >= LEAST
            for side, size in (("x", "width"), ("y", "height")):
                assert view[side] <= frame[side] <= view[side] + view[size] / view["k"]
        page.press("e", "f")
        assert 12 * page.ask("view")["k"] >= 6, "what is fitted has words"


def test_back_undoes_opening_and_selection(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), "#open=h") as page:
        drawing(page).open("h.1")
        page.click("h.1.attn")
        assert page.ask("selection")["name"] == "h.1.attn"
        page.page.go_back()
        page.wait("selection.name === 'h.1'")
        page.page.go_back()
        page.page.go_back()
        page.wait("frames.every(({name}) => name !== 'h.1')")
        assert page.ask("opened") == ["h"]


def test_a_switch_turns_the_direction(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), "#open=h.0.mlp") as page:
        down = page.ask("boxes")
        drawing(page).press("j")
        across = {each["name"]: each for each in page.ask("boxes")}
        assert {*across} == {each["name"] for each in down}
        for edge in page.ask("edges"):
            tail, head = across[edge["from"]], across[edge["to"]]
            assert tail["x"] + tail["width"] <= head["x"]
        page.click("h.0.attn")
        page.press("ArrowRight")
        assert page.ask("selection")["name"] == "h.0/add:1"
        assert "across" in page.page.url
        assert page.ask("view")["k"] * 12 >= LEAST
