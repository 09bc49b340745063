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
