"""A front-end of another package: found by what is to be captured, by every way there is, with no other framework."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from plugins import NO_OTHER_PLUGINS, PYTEST, folder, gradir, installed, python, register, said

import gradir as package
from gradir.spec import calling_on_import
from gradir.vocabulary import Vocabulary

__all__ = ["folder", "installed"]

ROOT = Path(__file__).parent.parent
FRAMEWORKS = re.compile(r"torch(?!run)|jax|tensorflow|numpy", re.IGNORECASE)
NODES = ["x", "y", "view:1", "add:1", "output"]


def test_an_object_is_captured_by_the_front_end_that_claims_it(installed: Path) -> None:
    done = python(
        installed,
        "from terms import Term\n"
        "graph = gradir.capture(Term('x') + Term('y').view())\n"
        "print(*graph.nodes, graph.producer.framework)\n"
        "print(gradir.release(), *{'torch', 'jax', 'numpy'} & {*sys.modules})",
    )
    assert (done.stdout, done.stderr) == (f"{' '.join(NODES)} terms\n0\n", "")


@pytest.mark.parametrize("attribute", ["term", "make"])
def test_a_spec_is_captured_by_the_front_end_that_claims_what_it_yields(
    installed: Path, folder: Path, attribute: str
) -> None:
    done = gradir(installed, "capture", f"{folder / 'spec.py'}:{attribute}")
    assert (done.returncode, done.stderr) == (0, "loaded\n")
    assert list(package.loads(done.stdout.encode()).nodes) == NODES
    named = gradir(installed, "capture", f"{folder / 'spec.py'}:{attribute}", "--frontend", "terms")
    assert named.stdout == done.stdout


@pytest.mark.parametrize(
    ("producer", "told"),
    [
        ('gradir="0.1.0", framework="terms", framework_version="1.0"', ["gradir 0.1.0 from terms 1.0"]),
        ('framework="terms"', ["gradir from terms"]),
        ('gradir="0.1.0"', ["gradir 0.1.0"]),
        ("", []),
    ],
)
def test_info_prints_the_known_parts_of_the_producer(tmp_path: Path, producer: str, told: list[str]) -> None:
    graph = f"gradir.Graph.of([], producer=gradir.Producer({producer}))"
    python(tmp_path, f"{graph}.save({str(tmp_path / 'a.gir')!r})")
    lines = gradir(tmp_path, "info", tmp_path / "a.gir").stdout.splitlines()
    assert [line for line in lines if line.startswith("made by")] == [f"{'made by':<20}{text}" for text in told]


def test_the_front_end_of_the_page_says_what_made_a_graph(installed: Path, folder: Path) -> None:
    done = gradir(installed, "capture", f"{folder / 'spec.py'}:term", "-o", folder / "a.gir")
    assert done.returncode == 0
    told = f"{'made by':<20}gradir {package.__version__} from terms 1.0\n"
    assert told in gradir(installed, "info", folder / "a.gir").stdout


def test_a_snapshot_is_captured_by_the_front_end_that_claims_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_terms.py").write_text(
        "import sys\nfrom terms import Term\n\ndef test_it(graph_snapshot):\n"
        "    graph_snapshot.check(Term('x') + Term('y').view())\n"
        "    graph_snapshot.check(Term('x'), frontend='terms')\n"
        "    assert 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, **NO_OTHER_PLUGINS, "PYTHONPATH": str(installed)}
    for more in (["--gradir-update"], []):
        command = [*PYTEST, "-q", *more]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
    (found,) = tmp_path.glob("__graphs__/*/test_it.gir")
    assert list(package.load(found).nodes) == NODES


@pytest.mark.parametrize(
    ("call", "cannot"),
    [
        ("gradir.record(Term('x'))", "record"),
        ("gradir.record(frontend='terms')", "record"),
        ("gradir.record()", "record"),
        ("gradir.record(frontend='terms', flow=True)", "record"),
        ("gradir.capture(Term('x'), flow=True)", r"record every operation of a forward \(flow=True\)"),
        ("gradir.capture(Term('x'), params={})", r"name tensors by a model \(params\)"),
    ],
)
def test_a_missing_feature_of_a_front_end_is_one_line(installed: Path, call: str, cannot: str) -> None:
    text = said(installed, f"from terms import Term; {call}")
    assert re.fullmatch(rf"front-end 'terms' cannot {cannot}.*: of those installed ((jax and )?torch|none) can", text)


@pytest.mark.parametrize(
    ("option", "cannot"),
    [
        ("--fake", "run without data (--fake)"),
        ("--seed=3", "set a seed (--seed)"),
        ("--sources", "record source lines (--sources)"),
        ("--flow", "record every operation of a forward (--flow)"),
        ("--graph=forward", "capture a forward (--graph forward)"),
    ],
)
def test_an_option_that_a_front_end_lacks_is_one_line(installed: Path, folder: Path, option: str, cannot: str) -> None:
    spec = f"{folder / 'spec.py'}:make"
    done = gradir(installed, "capture", spec, option)
    able = ("torch",) if any(word in cannot for word in ("--fake", "forward")) else ("jax", "torch")
    if option in {"--sources", "--graph=forward"}:
        able = ("export", *able)
    # To advise a framework that is not there helps nobody.
    others = " and ".join(name for name in able if find_spec("torch" if name == "export" else name)) or "none"
    text = f"gradir: {spec}: front-end 'terms' cannot {cannot}: of those installed {others} can\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{text}loaded\n")


def test_an_error_of_the_program_is_its_traceback_and_one_line(installed: Path, folder: Path) -> None:
    spec = f"{folder / 'spec.py'}:fails"
    done = gradir(installed, "capture", spec)
    trace = f'  File "{folder / "spec.py"}", line 13, in fails\n    raise ValueError("no term")\nValueError: no term\n'
    assert done.returncode == 2
    assert done.stderr == (
        f"Traceback (most recent call last):\n{trace}gradir: {spec}: fails raised ValueError: no term\nloaded\n"
    )


def test_the_help_says_which_front_ends_there_are_and_what_they_can_do(installed: Path) -> None:
    shown = gradir(installed, "help", "program").stdout
    assert re.search(r"^  terms takes a term\n  torch takes tensors ", shown, re.MULTILINE)
    can = "    run without data\n    record source lines\n"
    assert can in shown.partition("torch takes tensors")[2]


def test_an_unclaimed_object_is_one_line_with_the_front_ends(installed: Path) -> None:
    text = said(installed, "sys.modules['torch'] = None; gradir.capture([3])")
    assert text.startswith("no front-end captures an object of type list: export takes a torch.export program")
    assert "; jax takes a function and its arguments" in text
    assert "; terms takes a term (terms is not loaded); torch " in text
    assert text.endswith("(torch is not installed: pip install 'gradir[torch]')")


def test_an_unclaimed_object_goes_to_the_only_loaded_front_end(installed: Path) -> None:
    assert said(installed, "import terms; gradir.capture(3)").startswith("only a term can be captured")


def test_an_unknown_front_end_is_one_line(installed: Path) -> None:
    text = "unknown front-end 'pytorch' (did you mean 'torch'?): choose from export, jax, terms, torch"
    assert said(installed, "gradir.capture(3, frontend='pytorch')") == text


def test_two_front_ends_that_claim_an_object_ask_for_a_choice(installed: Path, folder: Path) -> None:
    register(folder, "other", "gradir_terms:TermsFrontend", "gradir.frontends")
    text = said(installed, "from terms import Term; gradir.capture({'a': [1, Term('x')]})", folder)
    assert text == (
        "other and terms may all capture an object of type Term: choose one with frontend='other', "
        "on the command line --frontend other"
    )
    chosen = "from terms import Term; print(*gradir.capture(Term('x'), frontend='other').nodes)"
    assert python(installed, chosen, folder).stdout == "x output\n"


BROKEN = {
    "no-module": "no_such_module:Frontend",
    "no-class": "json:dumps",
    "no-framework": "gradir_edges:EdgesExporter",
}


@pytest.mark.parametrize("value", BROKEN.values(), ids=BROKEN)
def test_a_broken_front_end_is_named_and_the_others_work(installed: Path, tmp_path: Path, value: str) -> None:
    register(tmp_path, "broken", value, "gradir.frontends")
    done = python(installed, "from terms import Term; print(*gradir.capture(Term('x')).nodes)", tmp_path)
    assert done.stdout == "x output\n"
    assert f"front-end 'broken' ({value}) cannot be loaded: " in done.stderr


BOTH = """
import terms
import torch

def make():
    return terms.Term("x")

def tensor():
    return torch.ones(1, requires_grad=True).exp()

term = make()
"""


def test_a_program_of_two_frameworks_says_which_front_end(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "both.py").write_text(BOTH)
    # A function is not called to find out: that may take long, or a memory that only --fake can do without.
    lines = (":term", "-o", "term.gir"), (":tensor",), (":tensor", "--frontend", "torch", "-o", "tensor.gir")
    code = "from gradir.cli import main\nfor attr, *more in {!r}: print(main(['capture', 'both.py' + attr, *more]))"
    monkeypatch.chdir(tmp_path)
    done = python(installed, code.format(lines))
    assert done.stdout.split() == ["0", "2", "0"]
    assert "terms and torch may all capture an object of type function: choose one" in done.stderr
    assert list(package.load("term.gir").nodes) == ["x", "output"]
    assert "exp:1" in package.load("tensor.gir").nodes


def test_a_program_that_imports_its_framework_late_is_run_by_the_only_front_end(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "late.py").write_text(
        "def loss():\n    import torch\n    return torch.rand(1, requires_grad=True).exp()\n"
    )
    done = gradir(tmp_path, "capture", f"{tmp_path / 'late.py'}:loss", "--seed", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "exp:1" in package.loads(done.stdout.encode()).nodes


def test_passes_work_on_a_graph_of_an_unknown_framework(installed: Path, folder: Path) -> None:
    code = (
        "import spec\ngraph = gradir.capture(spec.term)\n"
        "assert graph.to('plain', hide_shape_ops=True, drop='accumulate_grad') == graph.to('plain')\n"
        "assert graph.to('mermaid', depth=1, rollup=True)\n"
        "named = gradir.capture(spec.Term('y').view())\n"
        "assert gradir.diff(graph, named, normalize=True)\nprint(gradir.vocabulary.vocabulary_of(graph))"
    )
    done = python(installed, f"import gradir.vocabulary\n{code}", folder)
    assert done.stdout == f"{Vocabulary()}\n", done.stderr


def test_the_vocabulary_of_another_package_is_found(installed: Path, folder: Path) -> None:
    (folder / "words.py").write_text(
        "from gradir.vocabulary import Vocabulary\nWORDS = Vocabulary(frozenset({'view'}), frozenset({'add'}))\n"
    )
    register(folder, "terms", "words:WORDS", "gradir.vocabularies")
    register(folder, "broken", "words:NOTHING", "gradir.vocabularies")
    code = (
        "import spec\ngraph = gradir.capture(spec.term)\nfrom gradir.passes import drop, hide_shape_ops\n"
        "print(*hide_shape_ops(graph).nodes)\nprint(*drop(graph, ['accumulate_grad']).nodes)"
    )
    done = python(installed, code, folder)
    assert (done.stdout, done.stderr) == ("x y add:1 output\nx y view:1 output\n", "loaded\n")
    by_hand = "from gradir.ir import Graph, Node; print(Graph.of([Node('x')]).to('tree', hide_shape_ops=True))"
    done = python(installed, by_hand, folder)
    assert done.stdout.startswith("x")
    assert "the vocabulary of 'broken' (words:NOTHING) cannot be loaded: AttributeError" in done.stderr


def test_a_call_belongs_to_the_import_of_a_module_and_not_to_a_look_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("awaited", "other"):
        (tmp_path / f"{name}.py").write_text("state = 'imported'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    calls: list[str] = []
    before = [*sys.meta_path]
    with calling_on_import({"awaited": lambda: calls.append(sys.modules["awaited"].state)}):
        assert find_spec("awaited") is not None
        import_module("other")
        assert calls == []
        import_module("awaited")
        assert calls == ["imported"]
    assert sys.meta_path == before
    for name in ("awaited", "other"):
        monkeypatch.delitem(sys.modules, name)


def named_in_code(tree: ast.AST) -> Iterator[str]:
    """The names and texts of a module without its docstrings."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.value
        yield from (str(getattr(node, field, "")) for field in ("id", "attr", "name", "module", "arg", "asname"))


def test_no_code_but_that_of_a_framework_names_one() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("gradir", "exporters")
        for path in (ROOT / folder).rglob("*.py")
        if any(map(FRAMEWORKS.search, named_in_code(ast.parse(path.read_text(encoding="utf-8")))))
    }
    allowed = re.compile(r"gradir/(frontends/(export|jax|pytorch)|integrations|vocabulary)/")
    apart = {name for name in found if allowed.match(name)}
    assert "gradir/frontends/pytorch/frontend.py" in apart
    assert sorted(found - apart) == []


@pytest.mark.parametrize("chosen", [object, 3, ["torch"], b"torch"])
def test_a_front_end_that_is_chosen_by_no_name_is_a_clear_error(chosen: object) -> None:
    for take in (package.capture, package.verify, package.record):
        with pytest.raises(TypeError, match=r"^a front-end is chosen by its name, such as '\w+', and this is (a|the) "):
            take([], frontend=chosen)
