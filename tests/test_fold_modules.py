"""Modules that a pattern names become one node each."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import everything, hostile
from strategies import graphs

import gradir
from gradir import codecs
from gradir.cli.main import main
from gradir.errors import PassError
from gradir.ir import Builder, Graph, Scope, TensorMeta
from gradir.ir.validate import check
from gradir.passes import fold, fold_modules, layers, rollup
from gradir.registry import exporter_names

META = TensorMeta("float32", (2, 3))


def model() -> Graph:
    """Two blocks of attention and a perceptron."""
    b = Builder()
    value = b.tensor("x", META)
    scopes = [Scope("", "GPT", calls=1), Scope("h", "ModuleList")]
    for number in range(2):
        scopes.append(Scope(f"h.{number}", "Block", calls=1))
        for name, kind in (("attn", "Attention"), ("mlp", "MLP")):
            path = f"h.{number}.{name}"
            scopes += [Scope(path, kind, calls=1), Scope(f"{path}.fc", "Linear", calls=1)]
            weight = b.tensor(f"{path}.fc.weight", META, role="parameter", scope=f"{path}.fc")
            value = b.function("mm", [value, weight], [META], scope=f"{path}.fc")
            value = b.function("exp", [value], [META], scope=path)
    b.output(value)
    return b.build(scopes=scopes)


def boxes(graph: Graph) -> list[str]:
    return [node.label for node in graph.nodes.values() if node.role == "module"]


def test_paths_and_classes_name_modules() -> None:
    assert boxes(fold_modules(model(), ["h.*.attn"])) == ["h.0.attn", "h.1.attn"]
    assert boxes(fold_modules(model(), ["class:MLP"])) == ["h.0.mlp", "h.1.mlp"]
    assert boxes(fold_modules(model(), ["h.0.attn", "class:Bl?ck"])) == ["h.0", "h.1"]
    assert boxes(fold_modules(model(), ["class:GPT"])) == ["GPT"]
    assert boxes(fold_modules(rollup(model()), ["h.*.attn"])) == ["h.0-1.attn"]
    assert boxes(fold_modules(layers(model()), ["class:Attention"]))[::2] == ["h.0.attn", "h.1.attn"]


def test_a_box_has_its_operations_parameters_and_bytes() -> None:
    box = fold_modules(model(), ["h.0.attn"]).nodes["h.0.attn"]
    assert (box.native, dict(box.attrs)) == ("Attention", {"nodes": 3, "parameters": 6, "saved_bytes": 0})
    assert [*fold_modules(model(), ["h.0.attn"]).scopes][:4] == ["", "h", "h.0", "h.0.attn"]
    assert "h.0.attn.fc" not in fold_modules(model(), ["h.0.attn"]).scopes


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("h.*.atn", "fold 'h.*.atn': no module matches (did you mean 'h.1.attn' or 'h.0.attn' or 'h.1.attn.fc'?)"),
        (
            "class:Atention",
            "fold 'class:Atention': no module matches (did you mean 'class:Attention' or 'class:Linear'?)",
        ),
        ("class:", "fold 'class:': no module matches (did you mean 'class:MLP' or 'class:GPT' or 'class:Block'?)"),
        ("nothing", "fold 'nothing': no module matches"),
    ],
)
def test_a_pattern_that_names_nothing_is_refused_in_one_line(pattern: str, said: str) -> None:
    with pytest.raises(PassError) as caught:
        fold_modules(model(), ["h.0", pattern])
    assert str(caught.value) == said


@given(graphs(), st.sampled_from(["a", "a.*", "layers.?", "*", "a.b", "class:*"]))
def test_a_module_is_folded_exactly_where_a_pattern_names_it(graph: Graph, pattern: str) -> None:
    try:
        folded = fold_modules(graph, [pattern])
    except PassError:
        return
    check(folded)
    assert codecs.decode(codecs.encode(folded)) == folded
    assert fold_modules(graph, [pattern, pattern]) == folded
    if pattern.startswith("class:"):
        return
    for node in graph.nodes.values():
        parts = node.scope.split(".") if node.scope else []
        inside = any(fnmatchcase(".".join(parts[: stop + 1]), pattern) for stop in range(len(parts)))
        is_root = pattern == "*" and "" in graph.scopes
        if node.role not in {"output", "view_base"}:
            assert (node.id in folded.nodes and folded.nodes[node.id].role == node.role) == (not inside and not is_root)


def test_hostile_names_are_folded() -> None:
    for graph in (hostile(), everything()):
        for path in filter(None, {node.scope for node in graph.nodes.values()}):
            escaped = path.replace("[", "[[]")
            assert any(node.role == "module" for node in fold_modules(graph, [escaped]).nodes.values())


def test_folding_all_at_a_depth_equals_depth() -> None:
    assert fold_modules(model(), ["h.0", "h.1"]).nodes == fold(model(), 2).nodes


def test_every_exporter_and_picture_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gradir.save(model(), "m.gir")
    for name in exporter_names():
        assert main(["export", "m.gir", "--to", name, "--fold", "h.*.attn", "--fold", "class:MLP", "-o", "out"]) == 0
    assert "attn module" in model().to("tree", fold=["h.*.attn"])


def test_the_command_line_says_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "m.gir")
    gradir.save(model(), path)
    assert main(["export", path, "--to", "tree", "--fold", "h.*.atn"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.endswith("fold 'h.*.atn': no module matches (did you mean 'h.1.attn' or 'h.0.attn' or 'h.1.attn.fc'?)\n")
