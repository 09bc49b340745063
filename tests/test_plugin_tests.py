"""The tests of gradir.testing pass for the plug-ins of tests/plugin and fail for faulty ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from plugins import PLUGIN, register

PROGRAM = "from terms import Term\n\ndef loss():\n    return Term('x') + Term('y').view()\n"
FAULTY = """
import msgspec, terms
from gradir_edges import EdgesExporter
from gradir_terms import TermsFrontend

class FaultyFrontend(TermsFrontend):
    def capture(self, request):
        target = request.target
        names = sorted("abcdefgh", key=hash)
        for name in names:
            target = target + terms.Term(name)
        return super().capture(msgspec.structs.replace(request, target=target))

    def verify(self, live, *, keep_graph=True):
        return None

class FaultyExporter(EdgesExporter):
    def export(self, graph, options):
        return super().export(graph, options) + " ".join({*graph.nodes}) + open(__file__).read()
"""


def outcomes(folder: Path, frontend: str, exporter: str) -> dict[str, set[str]]:
    (folder / "program.py").write_text(PROGRAM)
    paths = os.pathsep.join([str(folder), str(PLUGIN), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--pyargs", "gradir.testing"]
    command += ["--gradir-frontend", frontend, "--gradir-program", "program.py:loss", "--gradir-exporter", exporter]
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONUTF8": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    found: dict[str, set[str]] = {}
    for test, outcome in re.findall(r"::(test_\S+) (PASSED|FAILED|ERROR|SKIPPED)", done.stdout):
        found.setdefault(outcome, set()).add(test)
    assert found, done.stdout + done.stderr
    return found


def test_sound_plugins_pass_every_test(tmp_path: Path) -> None:
    register(tmp_path, "terms", "gradir_terms:TermsFrontend", "gradir.frontends")
    register(tmp_path, "edges", "gradir_edges:EdgesExporter")
    assert {outcome: len(tests) for outcome, tests in outcomes(tmp_path, "terms", "edges").items()} == {"PASSED": 8}


def test_each_fault_fails_the_test_of_it(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    register(tmp_path, "terms", "faulty:FaultyFrontend", "gradir.frontends")
    register(tmp_path, "edges", "faulty:FaultyExporter")
    assert outcomes(tmp_path, "terms", "edges")["FAILED"] == {
        "test_importing_the_frontend_loads_no_framework",
        "test_features_and_methods_agree",
        "test_a_program_gives_the_same_bytes_twice",
        "test_a_graph_gives_the_same_text_in_every_process[hostile]",
        "test_an_exporter_is_pure_and_refuses_unknown_options",
        "test_a_graph_gives_the_same_text_in_every_process[deep]",
    }
