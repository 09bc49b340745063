"""The tests of gradir.testing pass for the plug-ins of tests/plugin and fail for faulty ones."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plugins import NO_OTHER_PLUGINS, PLUGIN, PYTEST, register

from gradir import testing

PROGRAM = "from terms import Term\n\ndef loss():\n    return Term('x') + Term('y').view()\n"
FAULTY = """
import msgspec, terms
import gradir
from gradir import Graph
from gradir_edges import ChangesRenderer, EdgesExporter, OnlyOpsPass
from gradir_terms import TermsFrontend

class FaultyFrontend(TermsFrontend):
    def capture(self, request):
        target = terms.Term()
        for op in sorted("abcdefgh", key=hash):
            target = terms.Term(op=op, inputs=(target,))
        return super().capture(msgspec.structs.replace(request, target=target))

    def verify(self, live, *, keep_graph=True):
        return None

class FaultyExporter(EdgesExporter):
    def export(self, graph, options):
        return super().export(graph, options) + " ".join({*graph.nodes}) + open(__file__).read()

class FaultyRenderer(ChangesRenderer):
    def render(self, diff, options):
        return " ".join({change.id for change in diff.changes}) + open(__file__).read() + "."

class FaultyPass(OnlyOpsPass):
    def run(self, graph, options):
        open(__file__).close()
        nodes = [*graph.nodes.values()]
        if len(nodes) > 1000:
            return Graph.of(nodes[1:])
        first = {node.names[0]: node.id for node in nodes if node.names}
        return Graph.of(nodes, producer=gradir.Producer(options={"first": [*{*first}][0]} if first else {}))
"""


def outcomes(folder: Path) -> dict[str, set[str]]:
    (folder / "program.py").write_text(PROGRAM)
    paths = os.pathsep.join([str(folder), str(PLUGIN), os.environ.get("PYTHONPATH", "")])
    command = [*PYTEST, "-v", "--pyargs", "gradir.testing", "--gradir-frontend", "terms"]
    command += ["--gradir-program", "program.py:loss", "--gradir-exporter", "edges"]
    command += ["--gradir-renderer", "changes", "--gradir-pass", "only", "--gradir-option", "only_ops=x,op"]
    environment = {**os.environ, **NO_OTHER_PLUGINS, "PYTHONPATH": paths, "PYTHONUTF8": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    found: dict[str, set[str]] = {}
    for test, outcome in re.findall(r"::(test_\S+) (PASSED|FAILED|ERROR|SKIPPED)", done.stdout):
        found.setdefault(outcome, set()).add(test)
    assert found, done.stdout + done.stderr
    return found


def test_sound_plugins_pass_every_test(tmp_path: Path) -> None:
    register(tmp_path, "terms", "gradir_terms:TermsFrontend", "gradir.frontends")
    register(tmp_path, "edges", "gradir_edges:EdgesExporter")
    register(tmp_path, "changes", "gradir_edges:ChangesRenderer", "gradir.renderers")
    register(tmp_path, "only", "gradir_edges:OnlyOpsPass", "gradir.passes")
    found = outcomes(tmp_path)
    assert {outcome: len(tests) for outcome, tests in found.items()} == {"PASSED": 23, "SKIPPED": 6}


def test_an_exporter_without_a_last_newline_fails_with_the_reason() -> None:
    exporter: Any = SimpleNamespace(kind="exporter", run=lambda _: "x")
    with pytest.raises(AssertionError, match="the text does not end in a newline"):
        testing.test_a_graph_gives_what_fits_the_plugin(exporter, "empty")


def test_each_fault_fails_the_test_of_it(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    register(tmp_path, "terms", "faulty:FaultyFrontend", "gradir.frontends")
    register(tmp_path, "edges", "faulty:FaultyExporter")
    register(tmp_path, "changes", "faulty:FaultyRenderer", "gradir.renderers")
    register(tmp_path, "only", "faulty:FaultyPass", "gradir.passes")
    kinds = ("exporter", "renderer", "pass")
    assert outcomes(tmp_path)["FAILED"] == {
        "test_importing_the_frontend_loads_no_framework",
        "test_features_and_methods_agree",
        "test_a_program_gives_the_same_bytes_twice",
        "test_a_program_is_explained",
        *(f"test_a_graph_gives_the_same_in_every_process[{kind}]" for kind in kinds),
        *(f"test_a_plugin_reads_and_writes_nothing[{kind}]" for kind in kinds),
        *(f"test_a_graph_gives_what_fits_the_plugin[renderer-{graph}]" for graph in ("hostile", "deep", "empty")),
        "test_a_graph_gives_what_fits_the_plugin[pass-deep]",
        "test_a_pass_returns_a_graph_itself_that_it_leaves_as_it_is[pass-empty]",
    }
