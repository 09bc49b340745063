"""What a diff says of edits that people make, against what a reviewer would say of them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from real_changes import CHANGES, PAGE, pair, update  # noqa: E402
from real_models import versions  # noqa: E402
from reports import all_changes, attach_findings, findings_of_kinds, markdown, words_of  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402
from gradir.diffs.changes import Change, Diff  # noqa: E402
from gradir.ir import Graph  # noqa: E402

each_change = pytest.mark.parametrize("name", CHANGES)


def diff_of(name: str, *ignore: str) -> Diff:
    return gradir.diff(*pair(name), ignore=ignore)


def kinds(diff: Diff) -> dict[tuple[str, str], int]:
    return dict(Counter((change.subject, change.kind) for change in diff.changes))


def changes(diff: Diff, subject: str, kind: str) -> list[Change]:
    return [change for change in diff.changes if (change.subject, change.kind) == (subject, kind)]


def fields(change: Change) -> dict[str, tuple[str | None, str | None]]:
    return {field.name: words_of(field) for field in change.fields}


def parameters(graph: Graph) -> set[str]:
    return {node.id for node in graph.nodes.values() if node.role == "parameter"}


@each_change
def test_the_diff_leads_from_one_to_the_other(name: str) -> None:
    a, b = pair(name)
    found = gradir.diff(a, b)
    assert found
    assert gradir.patch(a, found) == b
    assert gradir.unpatch(b, found) == a


@each_change
def test_there_and_back_are_equally_long(name: str) -> None:
    a, b = pair(name)
    mirrored = {"added": "removed", "removed": "added"}
    back = kinds(gradir.diff(b, a))
    assert kinds(gradir.diff(a, b)) == {(what, mirrored.get(kind, kind)): count for (what, kind), count in back.items()}


@each_change
def test_made_again_it_is_the_same(name: str) -> None:
    assert [gradir.dumps(graph) for graph in CHANGES[name]()] == [gradir.dumps(graph) for graph in pair(name)]


@each_change
def test_twelve_lines_say_what_changed_and_all_is_reported(name: str) -> None:
    a, b = pair(name)
    found = gradir.diff(a, b)
    lines = str(found).splitlines()
    assert sum(map(bool, lines)) <= 12
    if "(by module)" in lines:
        assert findings_of_kinds(found, "summary"), "what is no more than a list has a sentence above it"
    assert Counter(all_changes(attach_findings(found, (a, b)))) == Counter(found.changes)


def test_one_more_layer_is_that_layer_and_its_reader() -> None:
    a, b = pair("one-more-layer")
    found = diff_of("one-more-layer")
    layer = "bert.encoder.layer.2"
    inside = [node.id for node in b.nodes.values() if f"{node.scope}.".startswith(f"{layer}.")]
    assert sorted(change.id for change in changes(found, "node", "added")) == sorted(inside)
    modules = [path for path in b.scopes if f"{path}.".startswith(f"{layer}.")]
    assert [change.id for change in changes(found, "scope", "added")] == modules
    (reader,) = changes(found, "node", "changed")
    assert reader.id == "cls.predictions.transform.dense/view:1"
    norm = "output.LayerNorm/native_layer_norm:1"
    assert fields(reader) == {"in[0]": (f"bert.encoder.layer.1.{norm}", f"{layer}.{norm}")}
    assert len(found.changes) == len(inside) + len(modules) + 1
    assert len(b.nodes) == len(a.nodes) + len(inside)


def test_a_removed_dropout_is_its_nodes_and_their_readers() -> None:
    found = diff_of("dropout-removed")
    dropouts = [f"transformer.h.{n}.{where}" for n in range(2) for where in ("attn.resid_dropout", "mlp.dropout")]
    assert [change.id for change in changes(found, "node", "removed")] == [f"{path}/mul:1" for path in dropouts]
    assert [(change.id, fields(change)) for change in changes(found, "scope", "changed")] == [
        (path, {"detail": ('"p=0.1, inplace=False"', '"p=0.0, inplace=False"')}) for path in dropouts
    ]
    bypassed = {}
    for change in changes(found, "node", "changed"):
        ((before, after),) = fields(change).values()
        bypassed[before] = after
    assert bypassed == {f"{path}/mul:1": f"{path.rpartition('.')[0]}.c_proj/view:2" for path in dropouts}, (
        "each reader reads what its dropout read"
    )
    assert kinds(found) == {("scope", "changed"): 4, ("node", "removed"): 4, ("node", "changed"): 4}


def test_fewer_key_value_heads_change_shapes_alone() -> None:
    found = diff_of("fewer-key-value-heads")
    assert kinds(found) == {("scope", "changed"): 4, ("node", "changed"): 48}
    weights = [f"model.layers.{n}.self_attn.{which}_proj.weight" for n in range(2) for which in "kv"]
    shrunk = {change.id: fields(change) for change in found.changes if change.id.endswith("_proj.weight")}
    assert shrunk == {weight: {"out[0].shape": ("[16, 16]", "[8, 16]")} for weight in weights}
    touched = {field.name.rpartition(".")[2] for change in changes(found, "node", "changed") for field in change.fields}
    assert touched == {"shape", "bytes", "self_sym_sizes", "mat2_sym_sizes"}


def test_the_cause_of_fewer_key_value_heads_is_four_changes() -> None:
    found = diff_of("fewer-key-value-heads", "out", "attrs", "saved")
    assert [change.id for change in found.changes] == [
        f"model.layers.{n}.self_attn.{which}_proj" for n in range(2) for which in "kv"
    ]
    assert all(set(fields(change)) == {"detail", "own"} for change in found.changes)


def test_another_normalization_is_another_operation_and_lost_buffers() -> None:
    a, b = pair("batch-norm-to-group-norm")
    found = diff_of("batch-norm-to-group-norm")
    norms = [path for path, scope in a.scopes.items() if scope.class_name == "BatchNorm2d"]
    assert len(norms) == 20
    assert [(change.id, fields(change)["class"]) for change in changes(found, "scope", "changed")] == [
        (path, ("BatchNorm2d", "GroupNorm")) for path in norms
    ]
    assert {change.id for change in changes(found, "node", "removed")} == {
        f"{path}.{buffer}" for path in norms for buffer in ("running_mean", "running_var")
    }
    assert {(change.old_id, change.id) for change in changes(found, "node", "changed")} == {
        (f"{path}/native_batch_norm:1", f"{path}/native_group_norm:1") for path in norms
    }
    assert len(found.changes) == 4 * len(norms)
    assert parameters(a) == parameters(b)


def test_a_rename_is_one_line() -> None:
    (change,) = diff_of("rename").changes
    assert (change.kind, change.subject, change.old_id, change.id) == ("renamed", "module", "encoder", "blocks")
    assert change.nodes == 57
    assert change.fields == ()


def test_a_detach_cuts_exactly_the_parameters_above_it() -> None:
    a, b = pair("detach-by-accident")
    found = diff_of("detach-by-accident")
    cut = {f"encoder.1.{name}.{kind}" for name in ("norm", "up", "down") for kind in ("weight", "bias")}
    assert {change.id for change in changes(found, "cut", "added")} == cut == parameters(a) - parameters(b)
    assert all(change.label == "unreached" for change in changes(found, "cut", "added"))
    gone = changes(found, "node", "removed")
    assert {change.id for change in gone} == a.nodes.keys() - b.nodes.keys()
    assert all(f"{change.scope}.".startswith("encoder.1.") for change in gone)
    (place,) = changes(found, "node", "changed")
    assert (place.id, fields(place)) == ("encoder.1/add:1", {"in[1]": ("encoder.1.down/addmm:1", "-")})
    assert kinds(found) == {("cut", "added"): 6, ("node", "removed"): len(gone), ("node", "changed"): 1}
    assert "**Cuts:** `+ 6 cuts, unreached: encoder.1.{norm,up,down}.{weight,bias}`  \n" in markdown(a, b, found)


def test_a_diff_reports_hooked_slots_of_a_checkpoint_in_one_line() -> None:
    a, b = pair("checkpointing")
    found = diff_of("checkpointing")
    slots = {
        (node.id, saved.slot)
        for node in b.nodes.values()
        for saved in node.saved
        if saved.state == "hooked" and node.id in a.nodes
    }
    said = [
        (change.id, field.name.removeprefix("saved."))
        for change in changes(found, "node", "changed")
        for field in change.fields
        if words_of(field)[1] == "hooked"
    ]
    assert len(said) == len(set(said)) > 0
    assert set(said) == slots
    assert all(
        field.name.count(".") == 1
        for change in found.changes
        for field in change.fields
        if field.name.startswith("saved.") and words_of(field)[1] == "hooked"
    )
    assert not changes(found, "cut", "added")
    assert parameters(a) == parameters(b)
    rest = diff_of("checkpointing", "saved")
    scopes = {change.scope for change in rest.changes if change.subject == "node"}
    assert scopes == {"transformer.h.0.attn", "transformer.h.1.attn"}, "what is left is the cache"
    assert [change.id for change in changes(rest, "node", "removed")] == [
        f"transformer.h.{n}.attn/cat:{m}" for n in range(2) for m in (1, 2)
    ]


def test_a_reentrant_checkpoint_hides_the_layers() -> None:
    a, b = pair("checkpointing-reentrant")
    found = diff_of("checkpointing-reentrant")
    hidden = {name for name in parameters(a) if name.startswith("transformer.h.")}
    assert {change.id for change in changes(found, "cut", "added")} == hidden == parameters(a) - parameters(b)
    assert all(change.label == "hidden" for change in changes(found, "cut", "added"))
    assert [change.id for change in changes(found, "node", "added")] == [
        f"transformer.h.{n}/checkpoint_function:1" for n in range(2)
    ]
    assert all(change.scope.startswith("transformer.h.") for change in changes(found, "node", "removed"))
    (reader,) = changes(found, "node", "changed")
    assert reader.id == "transformer.ln_f/native_layer_norm:1"


def test_the_page_shows_what_the_commands_print_now() -> None:
    text = PAGE.read_text(encoding="utf-8")
    stated = re.search(r"^With (.*):$", text, re.MULTILINE)
    assert stated, "the page says what its outputs depend on"
    if stated[1] != versions():
        pytest.skip(f"the page was made with {stated[1]}")
    assert update(text) == text, "run `make reviewing`, which writes it"


def test_the_options_that_the_page_names_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {}
    for line in re.findall(r"^    gradir (.*?)(?: +#.*)?$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        command, *words = shlex.split(line)
        named.setdefault(command, set()).update(word for word in words if word.startswith("--") and word != "--")
    assert "diff" in named
    named["diff"] |= {"--ignore", "--details", "--format", "--full", "--run"}
    for command, options in named.items():
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = capsys.readouterr().out
        assert all(option in text for option in options), command
