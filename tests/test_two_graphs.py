"""Programs and files are compared by both graphs, so an edit that leaves nothing in the autograd graph is seen."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked_python")

from released import PROGRAMS  # noqa: E402
from tools import needs  # noqa: E402
from unseen_edits import EDITS, MODEL, edit_model  # noqa: E402

import gradir  # noqa: E402
from gradir import capturing, claims  # noqa: E402
from gradir.cli.main import main  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.forwards import IGNORED, has_forward  # noqa: E402
from gradir.request import CaptureRequest  # noqa: E402

Read = pytest.CaptureFixture[str]

SAME = "no difference in the autograd graph and the forward graph\n"
ONE = "no difference in the autograd graph; the forward graph was not compared: "
OTHER = "no difference in the autograd graph; in the forward graph:\n\n"
FILL = edit_model("the fill of the mask")
RANDOM = MODEL.replace("-1e9", "-1e9 - __import__('random').SystemRandom().random()")
READY = "import torch\nw = torch.ones(3, requires_grad=True)\ny = w.exp().sum()\ndef loss():\n    return y\n"
COMPILED = """
import torch
from torch import nn
def loss():
    torch.compiler.reset()
    model = nn.Linear(3, 2)
    inner = torch.compile(lambda x: x.sin() * 2.0, backend="eager")
    return model, inner(model(torch.ones(4, 3))).sum()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", MODEL), ("fill", FILL), ("changing", RANDOM), ("ready", READY), ("compiled", COMPILED)):
        Path(f"{name}.py").write_text(text)
    return tmp_path


def request(target: Callable[[], Any], graph: Any = "both") -> CaptureRequest:
    return CaptureRequest(target=target, is_program=True, graph=graph)


def both(source: str) -> capturing.Both:
    module = types.ModuleType("model")
    exec(source, vars(module))
    return capturing.capture_both(request(module.loss))


def test_every_edit_is_seen_in_one_of_the_graphs() -> None:
    before, again = both(MODEL), both(MODEL)
    assert not gradir.diff(before.graph, again.graph)
    assert not gradir.diff(before.forward, again.forward)
    for name in EDITS:
        after = both(edit_model(name))
        assert not gradir.diff(before.graph, after.graph), name
        assert gradir.diff(before.forward, after.forward, ignore=IGNORED), name


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_graphs_are_those_of_a_capture_each(name: str) -> None:
    found = capturing.capture_both(request(PROGRAMS[name]))
    assert gradir.dumps(found.forward) == gradir.dumps(capturing.capture_graph(request(PROGRAMS[name], "forward")))
    # torch has two words for a reshape, and takes the other one while a forward is noted.
    assert not gradir.diff(found.graph, capturing.capture_graph(request(PROGRAMS[name], None)), normalize=True)
    assert has_forward(found.graph)


def test_lines_variables_and_order_are_no_difference() -> None:
    moved = MODEL.replace("        causal = ", "\n\n        causal = ").replace("window", "far")
    moved = moved.replace("q, k = rope(q), rope(k)", "k = rope(k)\n        q = rope(q)")
    assert moved.count("far") == 2
    assert "q, k = rope" not in moved
    before, after = both(MODEL), both(moved)
    assert not gradir.diff(before.graph, after.graph)
    assert not gradir.diff(before.forward, after.forward, ignore=IGNORED)


def test_a_file_and_a_program_are_compared_by_what_the_file_has(capfd: Read) -> None:
    assert main(["capture", "a.py:loss", "--graph", "both", "-o", "both.gir"]) == 0
    assert main(["capture", "a.py:loss", "-o", "one.gir"]) == 0
    wrote = capfd.readouterr().err
    assert "wrote both.gir: 57 nodes" in wrote
    assert "wrote both.forward.gir: 89 nodes" in wrote
    assert gradir.load("both.forward.gir").producer.options["graph"] == "forward"

    def said(*words: str) -> tuple[int, str]:
        status = main([*words])
        return status, capfd.readouterr().out

    assert said("check", "a.py:loss", "--against", "both.gir") == (0, SAME)
    assert said("check", "a.py:loss", "--against", "one.gir") == (0, f"{ONE}one.gir has none\n")
    assert said("check", "fill.py:loss", "--against", "one.gir")[0] == 0
    status, text = said("check", "fill.py:loss", "--against", "both.gir")
    assert (status, text.startswith(OTHER)) == (1, True)
    assert "attrs.value: -inf -> -10000.0" in text
    assert said("diff", "both.gir", "fill.py:loss") == (1, text)
    assert said("diff", "fill.py:loss", "both.gir")[0] == 1
    assert said("diff", "both.gir", "both.gir") == (0, SAME)
    assert said("diff", "one.gir", "one.gir") == (0, f"{ONE}one.gir has none\n")
    assert said("diff", "both.forward.gir", "both.forward.gir") == (0, "no difference in the forward graph\n")
    Path("both.forward.gir").unlink()
    assert said("diff", "both.gir", "both.gir") == (0, f"{ONE}there is no both.forward.gir\n")


def test_every_form_shows_the_changes(capfd: Read) -> None:
    for name in ("a", "fill"):
        main(["capture", f"{name}.py:loss", "--graph", "both", "-o", f"{name}.gir"])
    capfd.readouterr()

    def said(*words: str) -> tuple[str, str]:
        assert main(["diff", "a.gir", "fill.gir", *words]) == 1
        return capfd.readouterr()

    report = said("--format", "markdown").out
    assert report.startswith("### Autograd graph: no difference\n\n### Forward graph\n\n**Nodes:** 1 changed")
    out, err = said("--format", "json")
    assert [change["id"] for change in json.loads(out)["changes"]] == ["0/masked_fill:1"]
    assert err == "gradir: the autograd graph has no difference; shown is the change of the forward graph\n"
    assert main(["diff", "a.gir", "a.gir", "--format", "markdown"]) == 0
    assert capfd.readouterr().out == "### Autograd and forward graph: no difference\n"
    assert main(["diff", "a.gir", "fill.gir", "--fail-on", "cuts,nodes"]) == 0
    assert "--fail-on looks at the autograd graph alone" in capfd.readouterr().err


def test_the_difference_of_the_forward_is_one_line(capfd: Read) -> None:
    Path("more.py").write_text(FILL.replace("nn.Linear(8, 3))", "nn.Linear(8, 3), nn.Tanh())"))
    for name in ("a", "more"):
        main(["capture", f"{name}.py:loss", "--graph", "both", "-o", f"{name}.gir"])
    capfd.readouterr()
    assert main(["diff", "a.gir", "more.gir"]) == 1
    *above, last = capfd.readouterr().out.splitlines()
    assert last.startswith("in the forward graph: +1 -0 ~")
    assert last.endswith("; --details shows it")
    assert not any("masked_fill" in line for line in above)
    for option in ("--details", "--full"):
        assert main(["diff", "a.gir", "more.gir", option]) == 1
        assert "attrs.value: -inf -> -10000.0" in capfd.readouterr().out


def test_two_programs_are_compared_by_both_graphs(capfd: Read) -> None:
    assert main(["diff", "a.py:loss", "fill.py:loss"]) == 1
    out, err = capfd.readouterr()
    assert out.startswith(OTHER)
    assert err == ""
    assert main(["diff", "a.py:loss", "fill.py:loss", "--graph", "autograd"]) == 0
    assert capfd.readouterr().out == f"{ONE}--graph autograd leaves it out\n"


def test_a_forward_that_is_another_in_every_run_fails_nothing(capfd: Read) -> None:
    assert main(["capture", "changing.py:loss", "--graph", "both", "-o", "c.gir"]) == 0
    capfd.readouterr()
    assert main(["check", "changing.py:loss", "--against", "c.gir"]) == 0
    assert capfd.readouterr().out == f"{ONE}changing.py:loss gives another in every run\n"


def test_a_program_without_a_forward_graph_does_not_fail(capfd: Read) -> None:
    assert main(["capture", "ready.py:loss", "--graph", "both", "-o", "r.gir"]) == 0
    assert "gradir: r.forward.gir is not written: ready.py:loss gives none (no operation ran" in capfd.readouterr().err
    assert not Path("r.forward.gir").exists()
    assert main(["diff", "ready.py:loss", "ready.py:loss"]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == (f"{ONE}ready.py:loss gives none (no operation ran while it was recorded)\n", "")


def test_compiled_code_is_reported_as_opaque(capfd: Read) -> None:
    assert main(["capture", "compiled.py:loss", "--graph", "both", "-o", "c.gir"]) == 0
    capfd.readouterr()
    assert main(["check", "compiled.py:loss", "--against", "c.gir"]) == 0
    told = SAME.replace("\n", "; gradir did not compare the inside of 1 opaque operation\n")
    assert capfd.readouterr().out == told


def test_an_update_writes_both_of_a_new_file_and_keeps_one_of_an_old_one(capfd: Read) -> None:
    main(["capture", "a.py:loss", "-o", "one.gir"])
    assert main(["check", "fill.py:loss", "--against", "new.gir", "--update"]) == 0
    assert Path("new.forward.gir").exists()
    assert main(["check", "a.py:loss", "--against", "new.gir", "--update"]) == 0
    assert main(["check", "a.py:loss", "--against", "new.gir"]) == 0
    assert main(["check", "fill.py:loss", "--against", "one.gir", "--update"]) == 0
    assert not Path("one.forward.gir").exists()
    assert main(["check", "fill.py:loss", "--against", "one.gir", "--update", "--graph", "both", "--normalize"]) == 0
    assert Path("one.forward.gir").exists()
    capfd.readouterr()
    assert main(["check", "fill.py:loss", "--against", "one.gir"]) == 0
    assert capfd.readouterr().out == SAME


@needs("git")
def test_a_revision_has_both_files(capfd: Read) -> None:
    def git(*words: str) -> None:
        author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *author, *words], check=True, capture_output=True)

    git("init", "-q")
    main(["capture", "a.py:loss", "--graph", "both", "-o", "m.gir"])
    git("add", "m.gir")
    git("commit", "-q", "-m", "one")
    git("add", "m.forward.gir")
    git("commit", "-q", "-m", "both")
    capfd.readouterr()
    assert main(["check", "fill.py:loss", "--against", "HEAD:m.gir"]) == 1
    assert capfd.readouterr().out.startswith(OTHER)
    assert main(["diff", "HEAD~1:m.gir", "m.gir"]) == 0
    assert capfd.readouterr().out == f"{ONE}there is no HEAD~1:m.forward.gir\n"


def test_a_file_of_another_capture_is_not_compared(capfd: Read) -> None:
    main(["capture", "fill.py:loss", "--graph", "both", "-o", "m.gir"])
    main(["capture", "a.py:loss", "-o", "m.gir"])
    capfd.readouterr()
    assert main(["check", "a.py:loss", "--against", "m.gir"]) == 0
    assert capfd.readouterr().out == f"{ONE}m.gir has none\n"


def test_two_graphs_are_refused_where_one_is_wanted(capfd: Read) -> None:
    assert main(["capture", "a.py:loss", "--graph", "both"]) == 2
    assert "name them with -o FILE" in capfd.readouterr().err
    assert main(["info", "a.py:loss", "--graph", "both"]) == 2
    assert "--graph both captures two graphs, but this needs one" in capfd.readouterr().err
    with pytest.raises(CaptureError, match="graph='both' captures two graphs"):
        gradir.capture(torch.nn.Linear(3, 2), torch.ones(1, 3), graph="both")


def test_a_name_forges_no_line(capfd: Read) -> None:
    name = "a\n\x1b[31m::error::.gir"
    gradir.save(gradir.capture(torch.ones(2, requires_grad=True).exp()), name)
    assert main(["diff", name, name]) == 0
    out, err = capfd.readouterr()
    assert out.count("\n") == 1
    assert all(map(str.isprintable, out[:-1]))
    assert err == ""


def test_a_front_end_without_flow_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = claims.kinds()["torch"]
    monkeypatch.setattr(kind, "features", kind.features - {"flow"})
    found = both(MODEL)
    assert (found.forward, found.missing) == (None, "front-end 'torch' cannot record every operation of a forward")
    assert sys.modules.get("torch")
