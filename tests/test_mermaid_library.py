"""mermaid-py behind the exporter ``mermaid``: when it is imported, and that it prints nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gradir_exporters.mermaid import MermaidExporter, MermaidOptions
from samples import everything


def run_python(code: str, environment: dict[str, str], seed: str = "0") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
        cwd=Path(__file__).parent / "support",
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout.decode()


def test_nothing_but_the_picture_reaches_standard_output(clean_environment: dict[str, str]) -> None:
    code = (
        "import sys; sys.modules['IPython'] = None\n"
        "from samples import everything\n"
        "from gradir_exporters.mermaid import MermaidExporter, MermaidOptions\n"
        "sys.stdout.write(MermaidExporter().export(everything(), MermaidOptions(show_saved=True)))\n"
    )
    expected = MermaidExporter().export(everything(), MermaidOptions(show_saved=True))
    for seed in ("1", "2"):
        assert run_python(code, clean_environment, seed).replace("\r\n", "\n") == expected


def test_mermaid_py_is_imported_only_to_draw(clean_environment: dict[str, str]) -> None:
    code = (
        "import sys, gradir_exporters.mermaid; print([name for name in ('mermaid', 'requests') if name in sys.modules])"
    )
    assert run_python(code, clean_environment).strip() == "[]"


LOADED_AMID_ANOTHER_THREAD = """
import sys, threading
sys.modules["IPython"] = None
out = sys.stdout

class Spy:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "requests":
            assert sys.stdout is out
            thread = threading.Thread(target=print, args=("from a thread",))
            thread.start()
            thread.join()

sys.meta_path.insert(0, Spy)
from gradir.ir import Graph, Node
Graph.of([Node("x", role="leaf")]).to("mermaid")
assert sys.stdout is out
import mermaid, mermaid.__main__
assert mermaid.__main__.Mermaid is mermaid.Mermaid and not hasattr(mermaid.__main__, "print")
"""


def test_standard_output_is_left_to_other_threads(clean_environment: dict[str, str]) -> None:
    assert run_python(LOADED_AMID_ANOTHER_THREAD, clean_environment).splitlines() == ["from a thread"]


LOADED_AGAIN = """
import sys
from gradir.ir import Graph, Node
graph = Graph.of([Node("x", role="leaf")])
sys.modules["requests"] = None
try:
    graph.to("mermaid")
except Exception as error:
    print(error)
del sys.modules["requests"]
print(graph.to("mermaid").splitlines()[0])
"""


def test_a_failure_to_load_is_not_kept(clean_environment: dict[str, str]) -> None:
    said, first = run_python(LOADED_AGAIN, clean_environment).splitlines()
    assert "requests" in said
    assert first == "---"
