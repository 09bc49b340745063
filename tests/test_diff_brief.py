"""What a reviewer reads first: little, in order, and nothing left out that is not said to be."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from brief_text import check_text
from diff_pairs import edit_sample, pairs, valid_pairs
from edit_scripts import plan, script
from hypothesis import assume, given
from msgspec.structs import replace
from reports import UNKNOWN, all_changes, attach_findings, entries, markdown, render_details, render_text
from samples import HOSTILE_LABELS, everything, hostile

import gradir
from gradir.cli import main
from gradir.diffs.changes import Change, Diff, FieldChange
from gradir.diffs.compare import compare
from gradir.ir import Builder, Cut, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.totals import Totals
from gradir.review.wording import ANSI, Palette, change_lines

META = [TensorMeta("float32", (2, 4))]

Golden = Callable[[str, str], None]


def network(
    layers: int = 3,
    *,
    op: str = "relu",
    special: dict[int, str] = {},  # noqa: B006 (read only)
    drop: bool = False,
    state: str = "held",
    cut: tuple[int, ...] = (),
    extra: str = "",
) -> Graph:
    """A stack of layers between an embedding and a head: each a weight, a product and an activation.

    ``special`` gives layers another activation, ``drop`` puts a module behind each, ``state`` is that of what is saved,
    and the layers of ``cut`` have a weight without a gradient.
    """
    b = Builder()
    value = b.function("embedding", [b.tensor("x", META[0])], META, scope="embed")
    scopes = [Scope("", "Net"), Scope("embed", "Embedding"), Scope("h", "ModuleList")]
    for number in range(layers):
        path = f"h.{number}"
        scopes += [Scope(path, "Layer"), Scope(f"{path}.fc", "Linear"), Scope(f"{path}.act", "Activation")]
        slot = Saved("mat2", *((None, None, None) if state != "held" else ("float32", (2, 4), 32)), state=state)
        if number in cut:
            value = b.function("mm", [value, None], META, scope=f"{path}.fc", saved=[(slot, None)])
        else:
            name = f"{path}.fc.weight"
            weight = b.tensor(name, META[0], role="parameter", scope=f"{path}.fc")
            summed = b.function("accumulate_grad", [weight], META, scope=f"{path}.fc")
            value = b.function("mm", [value, summed], META, scope=f"{path}.fc", saved=[(slot, None)])
        value = b.function(special.get(number, op), [value], META, scope=f"{path}.act")
        if drop:
            scopes.append(Scope(f"{path}.drop", "Dropout", "p=0.1"))
            value = b.function("mul", [value], META, scope=f"{path}.drop")
    if extra:
        value = b.function(extra, [value], META, scope=extra)
        scopes.append(Scope(extra, extra.title()))
    scopes.append(Scope("head", "Linear"))
    b.output(b.function("mm", [value], META, scope="head"))
    cuts = [Cut("unreached", (f"h.{number}.fc.weight",), f"h.{number}.fc", META[0]) for number in cut]
    # What accumulates a gradient is called after its tensor, as a capture calls it.
    text = gradir.dumps(b.build(scopes=scopes, cuts=cuts))
    return gradir.loads(re.sub(rb"(h\.\d+\.fc)/accumulate_grad", rb"\1.weight/accumulate_grad", text))


def brief(a: Graph, b: Graph) -> str:
    return render_details(compare(a, b), (a, b))


EDITS = {
    "layer": (network(3), network(4)),
    "layers": (network(6), network(3)),
    "equal": (network(12), network(12, special=dict.fromkeys((0, 1, 2, 3, 5), "gelu"))),
    "modules": (network(4), network(4, drop=True)),
    "cut": (network(3), network(3, cut=(1,))),
    "cuts": (network(8), network(8, cut=(0, 1, 2, 5))),
    "hooked": (network(3), network(3, state="hooked")),
    "place": (network(3), network(3, extra="pool")),
}


@pytest.mark.parametrize("name", EDITS)
def test_each_edit_has_a_golden(name: str, golden: Golden) -> None:
    a, b = EDITS[name]
    golden(f"diff/brief/{name}.txt", gradir.diff(a, b).to("text", details=True))
    golden(f"diff/brief/{name}.md", markdown(a, b, compare(a, b)))


def test_edits_of_everything_have_a_golden(golden: Golden) -> None:
    golden("diff/brief/edited.txt", gradir.diff(everything(), edit_sample()).to("text", details=True))
    golden("diff/brief/edited-back.txt", gradir.diff(edit_sample(), everything()).to("text", details=True))
    made = script(plan(60, 3), ["insert layer", "rename prefix", "swap op"], 4)
    golden("diff/brief/renamed.txt", gradir.diff(made.before, made.after).to("text", details=True))


def test_one_more_layer_is_two_lines() -> None:
    lines = brief(*EDITS["layer"]).splitlines()
    assert lines[2:] == [
        "  + module h.3  Layer  4 nodes, 1 parameter (8), 2 modules in it, saved 32 B",
        "      ~ head/mm:1  in[0]: h.2.act/relu:1 -> h.3.act/relu:1",
    ]


def test_equal_changes_are_reported_once_and_different_ones_apart() -> None:
    a, b = EDITS["equal"]
    headings = [line for line in brief(a, b).splitlines()[1:] if line[:1] not in {"", " "}]
    assert headings == ["h.{0..3,5}.act: the same change in each of 5 modules, here in h.0.act"]
    other = network(12, special={0: "gelu", 1: "gelu", 2: "tanh", 3: "gelu"})
    headings = [line for line in brief(a, other).splitlines()[1:] if line[:1] not in {"", " "}]
    assert headings == ["h.{0,1,3}.act: the same change in each of 3 modules, here in h.0.act", "h.2.act"]


def test_a_parameter_without_a_gradient_is_one_line_and_the_first() -> None:
    a, b = EDITS["cut"]
    lines = brief(a, b).splitlines()
    assert lines[0].startswith("+1 -0 ~0 cuts; ")
    assert lines[2:4] == ["(whole graph)", "  + cut h.1.fc.weight  unreached float32[2, 4], 2 nodes removed"]
    assert sum("h.1.fc.weight" in line for line in lines) == 2, "and once as what the product read"
    report = markdown(a, b, compare(a, b)).splitlines()
    assert report[2] == "**Cuts:** `+ cut h.1.fc.weight  unreached float32[2, 4], 2 nodes removed`  "


def test_an_order_that_alone_is_another_is_shown() -> None:
    x, *both = [Node("x", "leaf"), *(Node(f"{op}:1", op=op, inputs=(Ref("x", 0),)) for op in "ab")]
    found = gradir.diff(Graph.of([x, *both]), Graph.of([x, *both[::-1]]))
    assert found.to("text").splitlines()[1:] == ["", "(whole graph)", "  ~ order", "      nodes: a:1 -> b:1"]


def test_added_and_removed_nodes_are_in_the_order_of_the_model() -> None:
    a = network(3, special={2: "exp"}, extra="pool")
    b = replace(network(3, special={0: "sin"}), scopes=network(3).scopes)
    lines = [line.split()[0] if line[:1] != " " else line.split()[2] for line in brief(a, b).splitlines()[1:] if line]
    heads = [word for word in lines if word in {"h.0.act", "h.2.act", "pool", "head"}]
    assert heads == ["h.0.act", "h.2.act", "pool"]


def test_a_module_that_was_only_rewritten_is_not_folded() -> None:
    def made(*ops: str) -> Graph:
        nodes = [Node("x", role="leaf")]
        for op in ops:
            nodes.append(Node(f"m/{op}:1", op=op, scope="m", inputs=(Ref(nodes[-1].id, 0),)))
        return Graph.of(nodes, [Scope("", "Net"), Scope("m", "Block")])

    text = brief(made("exp", "sin", "cos"), made("tanh", "erf", "log", "relu"))
    assert "all of" not in text
    for op in ("tanh", "erf", "log", "relu"):
        assert f"m/{op}:1" in text


def test_a_kept_node_inside_an_added_module_is_listed_by_itself() -> None:
    def made(path: str, op: str) -> Graph:
        nodes = [Node("x", role="leaf"), Node(f"{path}/exp:1", op="exp", scope=path, inputs=(Ref("x", 0),))]
        nodes.append(Node("new/sin:1", op=op, scope="new", inputs=(Ref(nodes[1].id, 0),)))
        return Graph.of(
            [*nodes, Node("output", role="output", inputs=(Ref("new/sin:1", 0),))], [Scope(""), Scope(path)]
        )

    a = made("fc", "sin")
    b = replace(made("new.fc", "sin"), scopes={path: Scope(path) for path in ("", "new", "new.fc")})
    found = attach_findings(compare(a, b), (a, b))
    assert not [entry for entry in entries(found) if entry.kind != "same" and "new" in entry.subjects]


def test_a_long_text_starts_with_changes_by_module() -> None:
    a = network(12)
    b = network(12, special={number: f"op{number}" for number in range(12)})
    lines = str(gradir.diff(a, b)).splitlines()
    assert lines[3:5] == ["(by module)", "  ~ 12 modules h.{0..11}.act  each ~1 node (op)"]
    assert sum(line.startswith("h.") for line in brief(a, b).splitlines()) == 12, "since each is another"


@given(pairs())
def test_every_change_is_reported_exactly_once(pair: tuple[Graph, Graph]) -> None:
    found = compare(*pair)
    for sides in (pair, UNKNOWN):
        assert Counter(all_changes(attach_findings(found, sides))) == Counter(found.changes)


@given(pairs())
def test_the_text_names_every_change_when_its_ranges_are_expanded(pair: tuple[Graph, Graph]) -> None:
    check_text(compare(*pair), pair)


HOSTILE_PATHS = (
    "a b",
    "{0..3}",
    "h.{0,1}",
    'q"',
    "é.0",
    "٣",
    "0",
    "1",
    "h..0",
    "h.\n",
    "(top level)",
    "x: the same",
    "\\",
)


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_modules_of_hostile_names_are_put_together_by_exact_ranges(path: str) -> None:
    def made(op: str) -> Graph:
        paths = [f"{path}.{number}" for number in (0, 1, 2, 4)] + [f"{path}{number}" for number in (0, 1)]
        nodes = [Node(f"{scope}/{op}:1", op=op, scope=scope) for scope in paths]
        return Graph.of(nodes, [Scope(scope) for scope in paths], [Cut(op, (f"{scope}.w",), scope) for scope in paths])

    a, b = made("exp"), made("sin")
    check_text(compare(a, b), (a, b))
    check_text(compare(Graph.of([]), b), (Graph.of([]), b))
    (entry,) = entries(attach_findings(compare(a, b), (a, b)))
    assert len(entry.subjects) == 6


def test_hostile_graphs_stay_on_their_lines() -> None:
    for a, b in ((hostile(), Graph.of([])), (Graph.of([]), hostile())):
        check_text(compare(a, b), (a, b))
        for width in (20, 80):
            text = render_details(compare(a, b), (a, b), width=width)
            assert max(map(len, text.splitlines())) <= width
            coloured = render_details(compare(a, b), (a, b), width=width, palette=ANSI)
            assert re.sub(r"\x1b\[\d+m", "", coloured) == text
    assert HOSTILE_LABELS


@given(pairs())
def test_colour_only_decorates(pair: tuple[Graph, Graph]) -> None:
    diff = compare(*pair)
    coloured = render_details(diff, pair, palette=Palette("\1", "\2", "\3", "\4", "\5"))
    assert re.sub("[\1-\5]", "", coloured) == render_details(diff, pair)


def test_a_diff_from_elsewhere_cannot_break_a_line() -> None:
    evil = "a\n\x1b[31m\u202e"
    changes = [
        Change(kind, subject, f"{evil}{number}", evil, evil, (FieldChange((evil,), evil, evil),))
        for kind in ("added", "removed", "changed")
        for subject in ("cut", "node", "scope", "graph")
        for number in range(2)
    ]
    for sides in (UNKNOWN, (Graph.of([]), hostile())):
        diff = Diff(Totals(), Totals(), tuple(changes))
        assert all(line.isprintable() for line in render_details(diff, sides).split("\n"))


def many(modules: int, equal: bool) -> Diff:
    """Ten changes in each module: the same ones, or others."""
    return Diff(
        Totals(),
        Totals(),
        tuple(
            Change(
                "changed",
                "node",
                f"h.{module}/f:{number}",
                f"h.{module}",
                "f",
                (
                    FieldChange(("attrs", "v"), 0, 1 if equal else module),
                    FieldChange(("in", 0), Ref(f"h.{module}/x", 0), Ref("y", 0)),
                ),
            )
            for module in range(modules)
            for number in range(10)
        ),
    )


def calls(work: Callable[[], object]) -> int:
    """How many functions are called, Python's own too."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("equal", [True, False])
def test_twice_as_many_changes_take_twice_as_many_steps(equal: bool) -> None:
    small, large = many(100, equal), many(200, equal)
    steps = [calls(lambda diff=diff: render_details(diff, UNKNOWN)) for diff in (small, large)]
    assert steps[1] < 2.1 * steps[0]


def test_twice_as_many_modules_that_were_added_take_twice_as_many_steps() -> None:
    steps = []
    for layers in (50, 100):
        sides = network(1), network(layers)
        diff = compare(*sides)
        steps.append(calls(lambda diff=diff, sides=sides: render_details(diff, sides)))
    assert steps[1] < 2.1 * steps[0]


def test_ten_thousand_changes_are_reported() -> None:
    equal, different = (render_details(many(1_000, flag), UNKNOWN) for flag in (True, False))
    assert equal.splitlines()[2] == "h.{0..999}: the same 10 changes in each of 1,000 modules, here in h.0"
    assert len(equal.splitlines()) == 3 + 10 * 3
    lines = 1_000 * (2 + 10 * 3)
    assert len(different.splitlines()) == 1 + lines
    assert len(render_text(many(1_000, False), UNKNOWN).splitlines()) == 1 + lines


@given(valid_pairs)
def test_a_report_names_every_changed_node(pair: tuple[Graph, Graph]) -> None:
    found = compare(*pair)
    text = markdown(*pair, found)
    assert "more lines" not in text
    # What only follows from a change of the whole, such as another batch, is told once for all.
    assume(" changed nodes:**" not in text)
    for change in found.changes:
        line = next(change_lines(change)).text
        # A module without nodes that came or went is called one in both texts.
        assert line in text or line.replace(" scope ", " module ", 1) in text


def test_the_command_line_shows_little_or_everything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a, b = EDITS["layer"]
    files = [str(tmp_path / f"{side}.gir") for side in "ab"]
    for path, graph in zip(files, (a, b), strict=True):
        gradir.save(graph, path)
    assert main(["diff", *files]) == 1
    assert capfd.readouterr().out == brief(a, b)
    assert main(["diff", *files, "--full"]) == 1
    assert capfd.readouterr().out == render_text(compare(a, b), (a, b))


def test_the_report_folds_all_changes_below_those_that_are_put_together() -> None:
    a, b = EDITS["equal"]
    text = markdown(a, b, compare(a, b))
    summaries = re.findall("<details><summary>(.*)</summary>", text)
    assert summaries == ["What changed", "Every change by itself"]
    assert "| `h.{0..3,5}.act` (5 modules) |  |  | 5 |  |  |  |" in text.splitlines()
    assert text.count("h.5.act/gelu:1") == 1, "in the list of every change, and not with the equal ones"
    alone = markdown(*EDITS["place"], compare(*EDITS["place"]))
    assert alone.count("<details>") == 2
    cut = EDITS["cut"]
    assert "- h.1.fc.weight/accumulate_grad:1" in markdown(*cut, compare(*cut)), "which the text above only counts"
    small = Graph.of([Node("x")]), Graph.of([Node("x", op="exp")])
    assert markdown(*small, compare(*small)).count("<details>") == 1, "nothing was put together"
